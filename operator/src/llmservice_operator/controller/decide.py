"""What is to be written for one service: from what was observed to manifests. Pure.

Order of the story: what is wanted and what runs (selection), how many (replicas), the children that follow, and
which old revisions may go.
"""

import json
from dataclasses import asdict, dataclass, field, replace

from llmservice_operator.api.labels import PAUSED_ANNOTATION, REVISION_LABEL
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.controller.candidates import Candidates
from llmservice_operator.controller.observed import CORRECTION_ANNOTATION, Observed
from llmservice_operator.controller.selection import Selection, select
from llmservice_operator.planning.types import MemoryCorrection
from llmservice_operator.resources.children import (
    render_cache_claim,
    render_deployment,
    render_pdb,
    render_service,
)
from llmservice_operator.resources.replicas import ReplicaChoice, replicas_to_apply
from llmservice_operator.resources.revision import Revision, pack, superfluous
from llmservice_operator.resources.types import Manifest


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What is to be written, and why."""

    selection: Selection = field(default_factory=Selection)
    replicas: ReplicaChoice | None = None
    paused: bool = False
    first: tuple[Manifest, ...] = ()
    """Before all others: what runs must be on record before it runs."""
    children: tuple[Manifest, ...] = ()
    """In no order."""
    superfluous: tuple[str, ...] = ()
    """ControllerRevisions that may go, once all is written."""

    @property
    def target(self) -> int:
        """Replicas wanted now."""
        if self.replicas is None or self.selection.no_replicas:
            return 0
        return self.replicas.wanted


def decide(observed: Observed, candidates: Candidates) -> Intent:
    """The writes that bring the service to what its user says. None at all while it is paused or unreadable."""
    paused = observed.annotations.get(PAUSED_ANNOTATION) == "true"
    spec = observed.spec
    if spec is None:
        return Intent(paused=paused)
    selection = select(observed, spec, candidates)
    replicas = _replicas(observed, spec, selection)
    if paused:
        return Intent(selection=_as_it_runs(observed, selection), replicas=replicas, paused=True)
    if selection.active is None:
        return Intent(selection=selection, replicas=replicas)
    return Intent(
        selection=selection,
        replicas=replicas,
        first=_revision_manifests(observed, selection),
        children=_children(observed, spec, selection.active, replicas),
        superfluous=_superfluous(observed, selection),
    )


def _as_it_runs(observed: Observed, selection: Selection) -> Selection:
    """The selection with what the Deployment runs as the active one: a pause must not tell of plans as if they ran."""
    annotations = (observed.deployment or {}).get("metadata", {}).get("annotations") or {}
    running = observed.revision(annotations.get(REVISION_LABEL, ""))
    return selection if running is None else replace(selection, active=running.revision)


def _replicas(observed: Observed, spec: LLMServiceSpec, selection: Selection) -> ReplicaChoice:
    unproven = selection.active is not None and not selection.proven
    choice = replicas_to_apply(spec, observed.deployment, unproven=unproven, decided=_decided(observed))
    if selection.no_replicas and choice.replicas is not None:
        return ReplicaChoice(replicas=0, wanted=choice.wanted)
    return choice


def _decided(observed: Observed) -> int | None:
    """What scaling wants; None: what there is.

    A Deployment that somebody deleted comes back with what was wanted last. What was decided from another number than
    runs now, which somebody else has set meanwhile, takes no replica.
    """
    if observed.scaling is None:
        told = observed.status.scaling
        return told.desired_replicas if observed.deployment is None and told is not None else None
    decided, decision = observed.scaling.desired, observed.scaling.decision
    runs = (observed.deployment or {}).get("spec", {}).get("replicas")
    if decided is None or decision is None or not isinstance(runs, int):
        return decided
    return None if decided < runs and decision.current != runs else decided


def _revision_manifests(observed: Observed, selection: Selection) -> tuple[Manifest, ...]:
    if selection.wanted is None:
        return ()
    stored = observed.revision(selection.wanted.name)
    if stored is not None and selection.wanted is stored.revision:
        return ()  # on record already, word for word
    manifest = pack(observed.identity, selection.wanted)
    if stored is not None:
        # The data of a ControllerRevision is immutable; number and annotations tell what has changed since.
        manifest["data"] = dict(stored.data)
    if selection.correction is not None:
        manifest["metadata"]["annotations"][CORRECTION_ANNOTATION] = _correction_text(selection.correction)
    return (manifest,)


def _children(
    observed: Observed, spec: LLMServiceSpec, active: Revision, replicas: ReplicaChoice
) -> tuple[Manifest, ...]:
    identity = observed.identity
    claim = render_cache_claim(identity, spec)
    return (
        render_deployment(identity, active, replicas.replicas),
        render_service(identity, spec),
        render_pdb(identity),
        *(() if claim is None else (claim,)),
    )


def _superfluous(observed: Observed, selection: Selection) -> tuple[str, ...]:
    manifests = [
        {"metadata": {"name": each.revision.name}, "revision": each.revision.number}
        for each in observed.revisions
    ]
    good = [record.revision for record in selection.records if record.proven]
    in_use = {
        *(pod.revision for pod in observed.pods),
        *(each.name for each in (selection.wanted, selection.active) if each is not None),
        *good[-1:],
    }
    return superfluous(manifests, in_use)


def _correction_text(correction: MemoryCorrection) -> str:
    # What was not said is left out, so that an older release can read it too.
    said = {name: value for name, value in asdict(correction).items() if value not in (None, "", 0)}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))
