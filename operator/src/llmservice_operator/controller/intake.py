"""What is done with a watch event: the store is filled and a key is enqueued. Nothing is written here."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from llmservice_operator.api import labels
from llmservice_operator.clock import Clock
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.store import Store, owner_key
from llmservice_operator.controller.workqueue import WorkQueue

CHILD_KINDS = (
    "Deployment",
    "Pod",
    "Service",
    "PodDisruptionBudget",
    "ControllerRevision",
    "PersistentVolumeClaim",
)
"""Watched where they carry the service's label."""

NODE_SETTLE_SECONDS = 1.0
"""A pool that grows brings many node events; the services that wait are reconciled once for all of them."""
NEW_LIST_AFTER_SECONDS = 5.0


def watched_kinds(*, namespaced: bool) -> tuple[str, ...]:
    """The kinds whose events are asked for. What is in no namespace only where the whole cluster is looked after."""
    return (labels.KIND, *CHILD_KINDS) + (() if namespaced else ("Node", labels.POLICY_KIND))


class WatchObserver(Protocol):
    """Is told of watch events. Must not raise."""

    def watched(self, kind: str) -> None:
        """An event of this kind came."""

    def relisted(self, kind: str) -> None:
        """The watch of this kind had to begin again with a list."""


class Intake:
    """Takes events of one kind at a time, in the order in which they come for one object."""

    def __init__(
        self,
        *,
        store: Store,
        queue: WorkQueue,
        clock: Clock,
        ask_sweep: Callable[[str], None],
        observer: WatchObserver | None = None,
    ) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._ask_sweep = ask_sweep
        self._observer = observer
        self._listed_at: dict[str, float] = {}

    def event(self, kind: str, event_type: str | None, obj: Mapping[str, Any]) -> None:
        """Take an event: ADDED, MODIFIED, DELETED, or None for an object that stood in a list."""
        if self._observer:
            self._observer.watched(kind)
        if event_type is None:
            self._listed(kind)
        take = self._store.drop if event_type == "DELETED" else self._store.put
        news = take(kind, obj)
        if news:
            self._enqueue(kind, obj)

    def _listed(self, kind: str) -> None:
        """A list cannot tell what was deleted while the watch was away: the kind is compared soon."""
        now = self._clock.monotonic()
        before = self._listed_at.get(kind)
        self._listed_at[kind] = now
        if before is None or now - before > NEW_LIST_AFTER_SECONDS:
            self._ask_sweep(kind)
            if before is not None and self._observer:
                self._observer.relisted(kind)

    def _enqueue(self, kind: str, obj: Mapping[str, Any]) -> None:
        if kind == "Node":
            for key, note in self._store.notes():
                if note.waits_for_node:
                    self._queue.add_after(key, NODE_SETTLE_SECONDS)
            return
        if kind == labels.POLICY_KIND:
            return  # the scaling loop looks at it with its next decision
        metadata = obj["metadata"]
        if kind == labels.KIND:
            self._queue.add(Key(metadata.get("namespace", ""), metadata["name"]))
            return
        owner = owner_key(obj)
        if owner is not None:
            self._queue.add(owner)
