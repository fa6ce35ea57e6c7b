"""A deduplicating queue of keys: one reconcile per key at a time, backoff per key, delayed adds.

A key waits for a worker (`_ready`), waits for its time (`_due`), runs (`_processing`), or runs and will run
again (`_processing` and `_dirty`). Adding a key twice is adding it once; one that runs will run once more.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Protocol

from llmservice_operator.clock import Clock
from llmservice_operator.controller.keys import Key
from llmservice_operator.errors import LLMServiceError

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Brings one service to where it should be; returns the seconds until it wants to run again, or None."""

SOONEST_AGAIN_SECONDS = 0.05
"""A reconcile that asks for itself again at once, wrongly and for ever, still leaves the event loop to the Lease."""


class QueueObserver(Protocol):
    """Is told what the queue did, for metrics and logs. Must not raise."""

    def started(self, key: Key, waited_seconds: float) -> None:
        """A worker took the key after it had waited so long."""

    def finished(
        self, key: Key, duration_seconds: float, error: Exception | None, again_seconds: float | None
    ) -> None:
        """The reconcile ended; it runs again after so many seconds, if any."""


class InterruptedReconcileError(LLMServiceError):
    """What a reconcile waited for was cancelled, though the reconcile was not."""


class WorkQueue:
    """See the module. Not thread-safe: everything happens in one event loop.

    After an error a key waits `base * 2 ** (failures - 1)` seconds, at most `max`, times 0.5 to 1 at random.
    An event in that time brings the key forward, but never closer to the failure than `base`: a failing
    reconcile whose own writes come back as events would spin otherwise.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        random: Callable[[], float],
        observer: QueueObserver | None = None,
        base_backoff_seconds: float = 1.0,
        max_backoff_seconds: float = 300.0,
    ) -> None:
        self._clock = clock
        self._random = random
        self._observer = observer
        self._base = base_backoff_seconds
        self._max = max_backoff_seconds
        self._ready: dict[Key, float] = {}
        """Keys that wait for a worker, in order, with the time since when."""
        self._processing: set[Key] = set()
        self._dirty: dict[Key, float] = {}
        self._due: dict[Key, float] = {}
        self._timers: list[tuple[float, Key]] = []
        """A heap of (time, key); an entry counts only while `_due` holds the same time for the key."""
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._stopping = False
        self._wake_worker = asyncio.Event()
        self._wake_timer = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def depth(self) -> int:
        """Keys that wait for a worker now, not counting those that wait for their time."""
        return len(self._ready) + len(self._dirty)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    @property
    def oldest_age_seconds(self) -> float:
        """How long the key that waits longest for a worker has waited."""
        waiting = [*self._dirty.values()]
        if self._ready:
            waiting.append(next(iter(self._ready.values())))
        return self._clock.monotonic() - min(waiting) if waiting else 0.0

    def failures(self, key: Key) -> int:
        """Reconciles of this key that failed since the last one that did not."""
        return self._failures.get(key, 0)

    def add(self, key: Key) -> None:
        """Reconcile this key as soon as a worker is free (and its backoff's first step has passed)."""
        now = self._clock.monotonic()
        not_before = self._not_before.get(key, now)
        if key in self._processing:
            self._dirty.setdefault(key, now)
        elif key in self._ready:
            return
        elif not_before > now:
            self._schedule(key, not_before)
        else:
            self._make_ready(key, now)

    def add_after(self, key: Key, seconds: float) -> None:
        """Reconcile this key after so many seconds, or earlier if it is asked for earlier."""
        if seconds <= 0:
            self.add(key)
        else:
            self._schedule(key, self._clock.monotonic() + seconds)

    async def drained(self) -> None:
        """Return once no key runs or waits for a worker."""
        await self._idle.wait()

    def forget(self, key: Key) -> None:
        """Drop what is kept of a key that no longer exists."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        self._due.pop(key, None)

    async def run(self, reconcile: Reconcile, workers: int) -> None:
        """Work until `stop` is called and what was running then has ended."""
        timer = asyncio.create_task(self._tick(), name="workqueue-timer")
        tasks = [asyncio.create_task(self._work(reconcile), name=f"worker-{n}") for n in range(workers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in (timer, *tasks):
                task.cancel()
            await asyncio.gather(timer, *tasks, return_exceptions=True)

    def stop(self) -> None:
        """Take no more keys. `run` returns once the running reconciles have ended."""
        self._stopping = True
        self._wake_worker.set()

    def _make_ready(self, key: Key, now: float) -> None:
        self._due.pop(key, None)
        self._ready[key] = now
        self._idle.clear()
        self._wake_worker.set()

    def _schedule(self, key: Key, at: float) -> None:
        if self._due.get(key, at + 1) <= at or key in self._ready:
            return
        self._due[key] = at
        heapq.heappush(self._timers, (at, key))
        if self._timers[0] == (at, key):
            self._wake_timer.set()

    async def _tick(self) -> None:
        """Move keys whose time has come to the ready ones."""
        while True:
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                at, key = heapq.heappop(self._timers)
                if self._due.get(key) == at:
                    del self._due[key]
                    self.add(key)
            self._wake_timer.clear()
            if self._timers:
                await self._sleep_or_wake(self._timers[0][0] - now)
            else:
                await self._wake_timer.wait()

    async def _sleep_or_wake(self, seconds: float) -> None:
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        wake = asyncio.ensure_future(self._wake_timer.wait())
        try:
            await asyncio.wait((sleep, wake), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()

    async def _work(self, reconcile: Reconcile) -> None:
        while not self._stopping:
            if not self._ready:
                self._wake_worker.clear()
                await self._wake_worker.wait()
                continue
            key = next(iter(self._ready))
            since = self._ready.pop(key)
            await self._process(key, since, reconcile)

    async def _process(self, key: Key, since: float, reconcile: Reconcile) -> None:
        started = self._clock.monotonic()
        self._processing.add(key)
        self._due.pop(key, None)
        if self._observer:
            self._observer.started(key, started - since)
        error: Exception | None = None
        again: float | None = None
        try:
            again = await reconcile(key)
        except asyncio.CancelledError:
            if self._is_cancelled():
                raise
            error = InterruptedReconcileError("a request of the reconcile was cancelled from outside")
        except Exception as e:  # noqa: BLE001  whatever a reconcile raises, the key is tried again later
            error = e
        finally:
            self._processing.discard(key)
        if error is None:
            self._failures.pop(key, None)
            self._not_before.pop(key, None)
        else:
            again = self._back_off(key)
        self._after(key, again)
        if not self._ready and not self._processing:
            self._idle.set()
        if self._observer:
            self._observer.finished(key, self._clock.monotonic() - started, error, again)

    @staticmethod
    def _is_cancelled() -> bool:
        """Whether this worker itself is to end, and not only something it waited for.

        kopf cancels every task that was made since it started when it ends; a connection being made is one.
        """
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def _back_off(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._not_before[key] = self._clock.monotonic() + self._base
        # 2^30 seconds are 34 years; a larger exponent only overflows.
        delay = min(self._max, self._base * 2.0 ** min(failures - 1, 30))
        return max(self._base, delay * (0.5 + self._random() / 2))

    def _after(self, key: Key, again: float | None) -> None:
        if again is not None:
            self.add_after(key, max(again, SOONEST_AGAIN_SECONDS))
        if self._dirty.pop(key, None) is not None:
            self.add(key)
