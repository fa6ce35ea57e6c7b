"""What a reconcile knows of the world: one frozen value, gathered before anything is decided."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.api.labels import GROUP
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import LLMServiceStatus
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.podstate import PodState
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.types import MemoryCorrection, ModelFacts, NodeAccelerators, Refusal
from llmservice_operator.resources.revision import Revision
from llmservice_operator.resources.types import Identity, RenderSettings

CORRECTION_ANNOTATION = f"{GROUP}/memory-correction"
"""On a ControllerRevision: the failed start that its plan was corrected from, as JSON."""

DEPLOYMENT = "Deployment"
SERVICE = "Service"
DISRUPTION_BUDGET = "PodDisruptionBudget"
CLAIM = "PersistentVolumeClaim"
REVISION = "ControllerRevision"


@dataclass(frozen=True, kw_only=True)
class ReconcileSettings:
    """What the reconcile is told from outside, the same for every service."""

    render: RenderSettings
    catalogue: tuple[AcceleratorRow, ...]
    """The built-in rows with the users' merged over them."""
    sees_nodes: bool = True
    """False in namespaced mode."""


@dataclass(frozen=True, kw_only=True)
class StoredRevision:
    """A ControllerRevision of the service's, unpacked."""

    revision: Revision
    data: Mapping[str, Any]
    """Its data, word for word: it can never be changed."""
    uid: str
    correction: MemoryCorrection | None = None
    """The failed start that its plan was corrected from."""


@dataclass(frozen=True, kw_only=True)
class UnreadableRevision:
    """A ControllerRevision of the service's that this release cannot read."""

    name: str
    number: int
    message: str


@dataclass(frozen=True, kw_only=True)
class ModelLookup:
    """What was found of the model, or why it was not."""

    facts: ModelFacts | None = None
    config_digest: str = ""
    """Of config.json; empty where it is not known."""
    problem: Refusal | None = None


@dataclass(frozen=True, kw_only=True)
class SeenNodes:
    """The cluster's nodes."""

    nodes: tuple[NodeAccelerators, ...]
    digest: str
    """Stands for what planning sees of them: the same while no label and no amount changes."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One LLMService and all that belongs to it, at one moment."""

    key: Key
    identity: Identity
    generation: int
    annotations: Mapping[str, str]
    spec: LLMServiceSpec | None
    """None where this release cannot read it; then `spec_error` says why."""
    spec_error: str
    status: LLMServiceStatus
    """As last written; fields of a newer release are not in it."""
    children: Mapping[str, Mapping[str, Any]]
    """Ours by kind, those that exist."""
    foreign: Mapping[str, str]
    """Kinds whose name is taken by an object that is not ours, with whose it is."""
    revisions: tuple[StoredRevision, ...]
    """Oldest first."""
    unreadable: tuple[UnreadableRevision, ...]
    """ControllerRevisions of ours that this release cannot read."""
    pods: tuple[PodState, ...]
    model: ModelLookup
    nodes: SeenNodes | None
    """None where the operator may not see nodes."""
    absent_volumes: tuple[str, ...] = ()
    """What volumes of a pod that is not made need, and is not there, such as `ConfigMap tools`."""
    scaling: Outcome | None = None
    """What the scaling loop last found; None: it has not looked yet, or does not look at this service."""

    @property
    def stored(self) -> StoredRevision | None:
        """The newest revision: what the user's newest words led to."""
        return self.revisions[-1] if self.revisions else None

    @property
    def deployment(self) -> Mapping[str, Any] | None:
        """Our Deployment."""
        return self.children.get(DEPLOYMENT)

    def revision(self, name: str) -> StoredRevision | None:
        """The stored revision of this name."""
        return next((each for each in self.revisions if each.revision.name == name), None)
