"""The Kubernetes API as the operator sees it: a Protocol over plain objects, its kinds and its errors.

KubeError                  the API server's answer: status, reason, message
├── NotFoundError          404
├── ConflictError          409: another field manager, a taken name, a changed resourceVersion
├── ForbiddenError         401, 403
├── InvalidError           400, 415, 422: the object is wrong; trying again without a change is useless
├── NotLeaderError         no answer was asked for: this process may not write now
└── KubeUnavailableError   429, 5xx, no answer at all; an `UnavailableError` too, trying again may help
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llmservice_operator.api import labels
from llmservice_operator.errors import LLMServiceError, UnavailableError

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class KubeError(LLMServiceError):
    """The API server said no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(KubeError):
    """404: the object, its namespace or its kind does not exist."""


class ConflictError(KubeError):
    """409: another manager owns a field, the name is taken, or the resourceVersion or uid has changed."""


class ForbiddenError(KubeError):
    """401 or 403: not who or not allowed."""


class InvalidError(KubeError):
    """400, 415 or 422: the API server cannot accept this object as it is."""


class NotLeaderError(KubeError):
    """The request was not sent: this process does not hold the Lease."""


class KubeUnavailableError(KubeError, UnavailableError):
    """429, 5xx or no answer (status 0). Trying again may help."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(status, reason, message)
        self.retry_after_seconds = retry_after_seconds


def error_of(status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> KubeError:
    """The error for an answer of the API server with this status code (≥ 400)."""
    if status == 429 or status >= 500:
        return KubeUnavailableError(status, reason, message, retry_after_seconds)
    kinds: dict[int, type[KubeError]] = {
        400: InvalidError,
        401: ForbiddenError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        415: InvalidError,
        422: InvalidError,
    }
    return kinds.get(status, KubeError)(status, reason, message)


@dataclass(frozen=True)
class KubeKind:
    """Where objects of a kind live in the API."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """URL path of the collection or of the one object."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        which = f"/{name}" if name else ""
        return f"{root}{where}/{self.plural}{which}"


KINDS: Mapping[str, KubeKind] = {
    labels.KIND: KubeKind(labels.API_VERSION, labels.PLURAL),
    labels.POLICY_KIND: KubeKind(labels.API_VERSION, labels.POLICY_PLURAL, namespaced=False),
    "Deployment": KubeKind("apps/v1", "deployments"),
    "ReplicaSet": KubeKind("apps/v1", "replicasets"),
    "ControllerRevision": KubeKind("apps/v1", "controllerrevisions"),
    "Pod": KubeKind("v1", "pods"),
    "Service": KubeKind("v1", "services"),
    "ConfigMap": KubeKind("v1", "configmaps"),
    "PersistentVolumeClaim": KubeKind("v1", "persistentvolumeclaims"),
    "PodDisruptionBudget": KubeKind("policy/v1", "poddisruptionbudgets"),
    "Event": KubeKind("events.k8s.io/v1", "events"),
    "Lease": KubeKind("coordination.k8s.io/v1", "leases"),
    "Node": KubeKind("v1", "nodes", namespaced=False),
    "Namespace": KubeKind("v1", "namespaces", namespaced=False),
}
"""The kinds that the operator asks for. Secrets are not among them."""


class KubeClient(Protocol):
    """Reads and writes objects as plain dicts. Every method may raise a `KubeError`."""

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """The object, or None where there is none."""

    async def list(
        self, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[dict[str, Any]]:
        """All objects of the kind that match, each with `apiVersion` and `kind`."""

    def pages(
        self,
        kind: str,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """The same page by page, so that not all are in memory at once; on request their metadata alone."""

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True) -> dict[str, Any]:
        """Server-side apply as field manager `llmservice-operator`; creates or updates, returns the result.

        With force=False a `ConflictError` tells that another manager owns one of the fields.
        """

    async def apply_status(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply of the status subresource, always forced. The manifest holds the whole status."""

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create; `ConflictError` where the name is taken."""

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Replace; `ConflictError` where metadata.resourceVersion is no longer the current one."""

    async def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        content_type: str = MERGE_PATCH,
    ) -> dict[str, Any]:
        """Patch (JSON merge patch unless said otherwise) and return the result."""

    async def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        """Delete in the background, only if it still has this uid; an object that is gone is no error."""
