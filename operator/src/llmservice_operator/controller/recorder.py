"""Events on LLMServices: repeated ones are counted, floods are cut, and a reconcile never waits for one."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from llmservice_operator.api import labels
from llmservice_operator.clients.kube import KubeClient, KubeError, NotFoundError
from llmservice_operator.clock import Clock

logger = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

NOTE_MAX_LENGTH = 1024
"""Of events.k8s.io/v1."""


class EventObserver(Protocol):
    """Is told what became of each event. Must not raise."""

    def recorded(self, result: str) -> None:
        """`posted`, `repeated` (counted in a series), `limited`, `dropped` (queue full) or `failed`."""


@dataclass(frozen=True, kw_only=True)
class EventLimits:
    """How much is said. A burst and a refill per object; a rate for all; how much is remembered."""

    burst_per_object: int = 10
    refill_seconds: float = 30.0
    per_second: float = 10.0
    series_seconds: float = 600.0
    """An event repeated within this time is counted on the first one; later it is a new one."""
    series_update_seconds: float = 60.0
    """The count of a series is written at most this often."""
    queue: int = 2000
    remembered: int = 4096


@dataclass(slots=True)
class _Series:
    """What was said, and how often since the first time."""

    event: dict[str, Any]
    last_seen: float
    posted_at: float
    count: int = 1
    posted_count: int = 0


@dataclass(slots=True)
class _Budget:
    tokens: float
    at: float


_Said = tuple[str, str, str, str]


@dataclass
class Recorder:
    """`event` takes note and returns at once; `run` posts in the background."""

    kube: KubeClient
    clock: Clock
    instance: str
    observer: EventObserver | None = None
    limits: EventLimits = field(default_factory=EventLimits)
    _series: OrderedDict[_Said, _Series] = field(default_factory=OrderedDict)
    _budgets: OrderedDict[str, _Budget] = field(default_factory=OrderedDict)
    _queue: deque[_Said] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _number: int = 0

    def event(self, obj_ref: Mapping[str, Any], type_: EventType, reason: str, message: str) -> None:
        """Say something about an object: apiVersion, kind, namespace, name, uid. Never raises or waits."""
        try:
            self._note(obj_ref, type_, reason, message[:NOTE_MAX_LENGTH])
        except Exception:
            logger.exception("an event was lost", extra={"reason": reason})

    async def run(self) -> None:
        """Post what was said, until cancelled."""
        while True:
            while self._queue:
                await self._post(self._queue.popleft())
                await self.clock.sleep(1 / self.limits.per_second)
            self._wake.clear()
            await self._wake.wait()

    async def flush(self) -> None:
        """Post what is still waiting, at once."""
        while self._queue:
            await self._post(self._queue.popleft())

    def _note(self, ref: Mapping[str, Any], type_: EventType, reason: str, message: str) -> None:
        now = self.clock.monotonic()
        said = (str(ref.get("uid", "")), type_, reason, message)
        series = self._series.get(said)
        if series and now - series.last_seen < self.limits.series_seconds:
            series.count += 1
            series.last_seen = now
            self._series.move_to_end(said)
            self._tell("repeated")
            if now - series.posted_at >= self.limits.series_update_seconds:
                self._enqueue(said)
            return
        if not self._take_token(said[0], now):
            self._tell("limited")
            return
        self._series[said] = _Series(self._manifest(ref, type_, reason, message), now, now)
        self._series.move_to_end(said)
        while len(self._series) > self.limits.remembered:
            self._series.popitem(last=False)
        self._enqueue(said)

    def _take_token(self, uid: str, now: float) -> bool:
        limits = self.limits
        budget = self._budgets.pop(uid, None) or _Budget(limits.burst_per_object, now)
        tokens = budget.tokens + (now - budget.at) / limits.refill_seconds
        budget.tokens, budget.at = min(limits.burst_per_object, tokens), now
        self._budgets[uid] = budget
        while len(self._budgets) > limits.remembered:
            self._budgets.popitem(last=False)
        if budget.tokens < 1:
            return False
        budget.tokens -= 1
        return True

    def _enqueue(self, said: _Said) -> None:
        if said in self._queue:
            return
        if len(self._queue) >= self.limits.queue:
            self._tell("dropped")
            return
        self._queue.append(said)
        self._wake.set()

    async def _post(self, said: _Said) -> None:
        series = self._series.get(said)
        if series is None or series.posted_count == series.count:
            return
        count, first = series.count, series.posted_count == 0
        series.posted_at = self.clock.monotonic()
        series.posted_count = count
        try:
            if first:
                await self.kube.create(self._with_series(series.event, count))
            else:
                await self._post_count(series.event, count)
            self._tell("posted")
        except KubeError as e:
            # An event is worth no second try: what is wrong stands in the service's conditions too.
            self._tell("failed")
            logger.debug("an event could not be posted", extra={"error": str(e)})
            if isinstance(e, NotFoundError):
                self._series.pop(said, None)

    async def _post_count(self, event: Mapping[str, Any], count: int) -> None:
        metadata = event["metadata"]
        body = {"series": self._with_series(event, count)["series"]}
        await self.kube.patch("Event", metadata["namespace"], metadata["name"], body)

    def _with_series(self, event: Mapping[str, Any], count: int) -> dict[str, Any]:
        if count < 2:
            return dict(event)
        return {**event, "series": {"count": count, "lastObservedTime": self._time()}}

    def _manifest(self, ref: Mapping[str, Any], type_: str, reason: str, message: str) -> dict[str, Any]:
        self._number += 1
        unique = f"{int(self.clock.now() * 1e6):x}.{self._number:x}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": ref["namespace"], "name": f"{ref['name'][:200]}.{unique}"},
            "eventTime": self._time(),
            "type": type_,
            "reason": reason,
            "action": "Reconcile",
            "note": message,
            "reportingController": f"{labels.GROUP}/operator",
            "reportingInstance": self.instance[:128],
            "regarding": {k: ref[k] for k in ("apiVersion", "kind", "namespace", "name", "uid") if k in ref},
        }

    def _time(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _tell(self, result: str) -> None:
        if self.observer:
            self.observer.recorded(result)
