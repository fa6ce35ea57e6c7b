"""Writes of one service: only what differs is applied, what is not ours is never touched.

A child is created by POST (but for `BORN_BY_APPLY`) and updated by server-side apply, both as field manager
`llmservice-operator`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from llmservice_operator.clients.kube import JSON_PATCH, ConflictError, KubeClient, NotFoundError
from llmservice_operator.controller.managers import created_by_post, prunable, turn_over
from llmservice_operator.controller.store import Store
from llmservice_operator.errors import LLMServiceError
from llmservice_operator.resources.diff import differs
from llmservice_operator.resources.managed_fields import unwanted
from llmservice_operator.resources.ownership import is_ours, not_ours_message
from llmservice_operator.resources.types import Identity

BORN_BY_APPLY = frozenset({"ControllerRevision"})
"""Kinds that are created by apply too. The API server keeps a ControllerRevision's data as the bytes it got and
compares bytes; those of a POST never equal what a later apply makes of the same data, and every update would be
refused as a change of the immutable data. A stranger's data are safe by the same rule."""


class ApplyResult(StrEnum):
    """What an apply came to."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class NotOursError(LLMServiceError):
    """An object of the name that we need exists and belongs to someone else."""

    def __init__(self, kind: str, observed: Mapping[str, Any], message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = str(observed.get("metadata", {}).get("name", ""))


class ApplyObserver(Protocol):
    """Is told of every apply, needed or not. Must not raise."""

    def applied(self, kind: str, result: str) -> None:
        """An apply of this kind came to `created`, `updated` or `unchanged`."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """The object as it is now, what was done, and which paths differed before."""

    result: ApplyResult
    observed: Mapping[str, Any]
    differences: tuple[str, ...] = ()


class Applier:
    """Applies children and status, and keeps the answers in the store, so that our own echo is no news."""

    def __init__(self, kube: KubeClient, store: Store, observer: ApplyObserver | None = None) -> None:
        self._kube = kube
        self._store = store
        self._observer = observer

    async def apply(self, desired: Mapping[str, Any], identity: Identity) -> Applied:
        """Bring one child to what is desired. NotOursError where its name is taken by a stranger."""
        kind, name = desired["kind"], desired["metadata"]["name"]
        observed = self._store.get(kind, identity.namespace, name)
        if observed is None:
            applied = await self._create(desired, identity)
        else:
            applied = await self._update(desired, observed, identity)
        self._tell(kind, applied.result)
        return applied

    async def apply_status(self, desired: Mapping[str, Any]) -> ApplyResult:
        """Write the whole status of a service if it differs from the observed one.

        The service may have been deleted meanwhile: that is no error, and nothing is left to be told.
        """
        kind, metadata = desired["kind"], desired["metadata"]
        observed = self._store.get(kind, metadata["namespace"], metadata["name"])
        result = ApplyResult.UNCHANGED
        if observed is not None and observed.get("status", {}) != desired["status"]:
            try:
                self._store.put(kind, await self._kube.apply_status(desired))
                result = ApplyResult.UPDATED
            except NotFoundError:
                result = ApplyResult.UNCHANGED
        self._tell(f"{kind}/status", result)
        return result

    async def delete(self, observed: Mapping[str, Any], identity: Identity) -> None:
        """Delete a child that is ours, and only the very one that was observed."""
        kind, metadata = observed["kind"], observed["metadata"]
        if not is_ours(observed, identity):
            raise NotOursError(kind, observed, not_ours_message(kind, observed, identity))
        await self._kube.delete(kind, metadata["namespace"], metadata["name"], uid=metadata["uid"])

    async def _look(self, kind: str, identity: Identity, name: str) -> Mapping[str, Any] | None:
        observed = await self._kube.get(kind, identity.namespace, name)
        if observed is not None and is_ours(observed, identity):
            self._store.put(kind, observed)
        return observed

    async def _create(self, desired: Mapping[str, Any], identity: Identity) -> Applied:
        """By POST: a conflict says that the name is taken, by ours unseen or by a stranger's."""
        kind = desired["kind"]
        if kind in BORN_BY_APPLY:
            born = await self._kube.apply(desired, force=True)
            self._store.put(kind, born)
            return Applied(result=ApplyResult.CREATED, observed=born)
        try:
            created = await self._kube.create(desired)
        except ConflictError:
            observed = await self._look(kind, identity, desired["metadata"]["name"])
            if observed is None:
                raise
            return await self._update(desired, observed, identity)
        self._store.put(kind, created)
        return Applied(result=ApplyResult.CREATED, observed=created)

    async def _update(
        self, desired: Mapping[str, Any], observed: Mapping[str, Any], identity: Identity
    ) -> Applied:
        kind = desired["kind"]
        if not is_ours(observed, identity):
            raise NotOursError(kind, observed, not_ours_message(kind, observed, identity))
        differences = (*differs(desired, observed), *unwanted(desired, prunable(observed)))
        if not differences:
            return Applied(result=ApplyResult.UNCHANGED, observed=observed)
        if created_by_post(observed):
            await self._turn_over(kind, identity.namespace, desired["metadata"]["name"])
        updated = await self._kube.apply(desired, force=True)
        self._store.put(kind, updated)
        return Applied(result=ApplyResult.UPDATED, observed=updated, differences=differences)

    async def _turn_over(self, kind: str, namespace: str, name: str) -> None:
        live = await self._kube.get(kind, namespace, name)
        if live is not None and created_by_post(live):
            await self._kube.patch(kind, namespace, name, turn_over(live), content_type=JSON_PATCH)

    def _tell(self, kind: str, result: ApplyResult) -> None:
        if self._observer:
            self._observer.applied(kind, result.value)
