"""The store is filled by a list before anything is decided, and compared with a list from time to time.

A watch can miss a deletion (it was away, and its new list no longer holds the object); a sweep cannot. The
first one reads whole objects, later ones metadata only, and then the objects that are newer than the store's.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llmservice_operator.api import labels
from llmservice_operator.clients.kube import KubeClient, KubeError, NotFoundError
from llmservice_operator.clock import Clock
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.store import Store, owner_key
from llmservice_operator.controller.workqueue import WorkQueue

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
SETTLE_SECONDS = 3.0
"""How long after a watch's new list the kind is compared: the watch's own news should be in by then."""


class SweepObserver(Protocol):
    """Is told of sweeps. Must not raise."""

    def swept(self, kind: str) -> None:
        """The store was compared with a list of this kind."""


class Sweeper:
    """See the module."""

    def __init__(
        self,
        *,
        kube: KubeClient,
        store: Store,
        queue: WorkQueue,
        clock: Clock,
        random: Callable[[], float],
        kinds: Sequence[str],
        namespaces: Sequence[str],
        period_seconds: float,
        observer: SweepObserver | None = None,
    ) -> None:
        self._kube = kube
        self._store = store
        self._queue = queue
        self._clock = clock
        self._random = random
        self._kinds = kinds
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._period = period_seconds
        self._observer = observer
        self._asked: set[str] = set()
        self._wake = asyncio.Event()

    async def fill(self) -> None:
        """List every kind into the store, then set `store.synced` and enqueue every service.

        Tries until it succeeds: without the API server, or before the CRD is there, there is nothing to do. Without
        the CRD of policies there are none, and services go on with what is built in.
        """
        for kind in self._kinds:
            while True:
                try:
                    await self._fill_kind(kind)
                    break
                except KubeError as e:
                    missing = isinstance(e, NotFoundError) and kind in (labels.KIND, labels.POLICY_KIND)
                    what = "the CRD is not installed yet" if missing else "cannot list"
                    logger.warning(what, extra={"kind": kind, "error": str(e)})
                    if _is_not_known(kind, e):
                        break
                    await self._clock.sleep(RETRY_SECONDS)
        self._store.synced.set()
        for key in self._store.services():
            self._queue.add(key)

    def ask(self, kind: str) -> None:
        """Compare this kind soon."""
        self._asked.add(kind)
        self._wake.set()

    async def run(self) -> None:
        """Compare what was asked for, and everything once a period, until cancelled."""
        next_all = self._clock.monotonic() + self._jittered_period()
        while True:
            await self._wait_until(next_all)
            if self._clock.monotonic() >= next_all:
                next_all = self._clock.monotonic() + self._jittered_period()
                self._asked.update(self._kinds)
            else:
                await self._clock.sleep(SETTLE_SECONDS)
            self._wake.clear()
            asked, self._asked = self._asked, set()
            for kind in sorted(asked):
                try:
                    await self.compare(kind)
                except Exception as e:  # noqa: BLE001  one bad answer must not end all later sweeps
                    if _is_not_known(kind, e):
                        continue
                    logger.warning(
                        "a sweep failed, it is tried again", extra={"kind": kind, "error": repr(e)}
                    )
                    await self._clock.sleep(RETRY_SECONDS)
                    self.ask(kind)

    async def compare(self, kind: str) -> None:
        """Drop what no longer exists, read what is newer, and enqueue the services concerned."""
        before = self._store.versions(kind)
        known = dict(before.values())
        listed: set[str] = set()
        for namespace in self._namespaces:
            async for page in self._kube.pages(
                kind, _where(kind, namespace), _selector(kind), metadata_only=True
            ):
                for obj in page:
                    uid = obj["metadata"]["uid"]
                    listed.add(uid)
                    if known.get(uid, -1) < int(obj["metadata"]["resourceVersion"]):
                        await self._read(kind, obj)
        for key in self._store.drop_missing(kind, before, listed):
            self._queue.add(key)
        if self._observer:
            self._observer.swept(kind)

    async def _read(self, kind: str, listed: dict[str, Any]) -> None:
        metadata = listed["metadata"]
        obj = await self._kube.get(kind, metadata.get("namespace"), metadata["name"])
        if obj is None or not self._store.put(kind, obj):
            return
        owner = Key(metadata["namespace"], metadata["name"]) if kind == labels.KIND else owner_key(obj)
        if owner is not None and kind != "Node":
            self._queue.add(owner)

    async def _fill_kind(self, kind: str) -> None:
        for namespace in self._namespaces:
            async for page in self._kube.pages(kind, _where(kind, namespace), _selector(kind)):
                for obj in page:
                    self._store.put(kind, obj)
                # Packing a page takes a while; probes and renewals of the Lease must come through.
                await asyncio.sleep(0)
        if self._observer:
            self._observer.swept(kind)

    async def _wait_until(self, at: float) -> None:
        if self._asked:
            return
        sleep = asyncio.ensure_future(self._clock.sleep(max(0.0, at - self._clock.monotonic())))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((sleep, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()

    def _jittered_period(self) -> float:
        return self._period * (0.9 + 0.2 * self._random())


def _is_not_known(kind: str, error: Exception) -> bool:
    """Whether the API server has no policies at all: a release whose CRDs are of an older one."""
    return kind == labels.POLICY_KIND and isinstance(error, NotFoundError)


def _selector(kind: str) -> str:
    return "" if kind in (labels.KIND, labels.POLICY_KIND, "Node") else labels.SERVICE_LABEL


def _where(kind: str, namespace: str | None) -> str | None:
    return None if kind == "Node" else namespace
