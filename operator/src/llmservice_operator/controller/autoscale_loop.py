"""The scaling loop: looks at every service in its turn and hands what it finds to the service's reconcile.

Only the leader runs it. It writes nothing: an outcome goes onto the board, and the key into the queue where there is
something to be written. A service that can't be looked at delays no other.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from llmservice_operator.autoscaling.cadence import DECISION_SECONDS, LOOK_SECONDS
from llmservice_operator.clock import Clock
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_capacity import CapacityBook
from llmservice_operator.controller.autoscale_news import Allowance, News
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_scrape import Scraped, Scraper
from llmservice_operator.controller.autoscale_service import Activity, PolicyAnswer, ServiceScaler
from llmservice_operator.controller.autoscale_subject import Subject
from llmservice_operator.controller.keys import Key

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTimes:
    """How often what is done."""

    tick_seconds: float = 0.5
    """How often it is looked who is due."""
    look_seconds: float = LOOK_SECONDS
    """Between two looks at a service."""
    idle_seconds: float = 10.0
    """The same while it has no requests: as often as a signal needs, to be no older than it may."""
    decision_seconds: float = DECISION_SECONDS
    """Between two decisions; one that presses follows the look that shows it."""


class Policies(Protocol):
    """The scaling policies that there are."""

    def answer(self, name: str) -> PolicyAnswer:
        """The policy of this name, or why there is none."""


class Activities(Protocol):
    """What Prometheus says of cards."""

    def activity(self, subject: Subject, now: float) -> Activity:
        """Of the service's ready pods."""


class NoActivities:
    """Without Prometheus nothing is known of cards."""

    def activity(self, subject: Subject, now: float) -> Activity:  # noqa: ARG002 - the protocol's
        """Nothing."""
        return Activity()


class ScrapeObserver(Protocol):
    """Is told of scrapes. Must not raise."""

    def scraped(self, failure: str, duration_seconds: float) -> None:
        """A pod was asked; `failure` is empty where it answered."""


class _Watch:
    """One service in the loop."""

    def __init__(self, subject: Subject, now: float, due: float, allowance: Allowance) -> None:
        self.uid = subject.uid
        self.generation = subject.generation
        self.scaler = ServiceScaler(subject, now)
        self.news = News(allowance)
        self.due = due
        self.decision_due = due
        self.task: asyncio.Task[None] | None = None


class AutoscaleLoop:
    """See the module."""

    def __init__(
        self,
        *,
        board: Board,
        scraper: Scraper,
        capacities: CapacityBook,
        policies: Policies,
        activities: Activities,
        clock: Clock,
        enqueue: Callable[[Key], None],
        observer: ScrapeObserver | None = None,
        times: LoopTimes | None = None,
    ) -> None:
        self._board = board
        self._scraper = scraper
        self._capacities = capacities
        self._policies = policies
        self._activities = activities
        self._clock = clock
        self._enqueue = enqueue
        self._observer = observer
        self._times = times or LoopTimes()
        self._allowance = Allowance()
        self._watches: dict[Key, _Watch] = {}

    async def run(self) -> None:
        """Look at services until cancelled."""
        try:
            while True:
                self._begin_due()
                await self._clock.sleep(self._times.tick_seconds)
        finally:
            for watch in self._watches.values():
                if watch.task is not None:
                    watch.task.cancel()

    def scalers(self) -> Iterator[ServiceScaler]:
        """The services that are looked after now, for metrics."""
        for watch in self._watches.values():
            yield watch.scaler

    def _begin_due(self) -> None:
        """Begin a look at each service whose time has come. One that still goes on is not begun twice."""
        subjects, now = self._board.subjects(), self._clock.monotonic()
        for key in [key for key in self._watches if key not in subjects]:
            self._drop(key)
        for key, subject in subjects.items():
            watch = self._watches.get(key)
            if watch is None or watch.uid != subject.uid:
                self._drop(key)
                due = now + phase(key) * self._times.look_seconds
                watch = self._watches[key] = _Watch(subject, self._clock.now(), due, self._allowance)
            is_new = watch.generation != subject.generation
            if (watch.due <= now or is_new) and (watch.task is None or watch.task.done()):
                watch.generation = subject.generation
                watch.task = asyncio.create_task(self._attend(key, watch), name=f"scale-{key}")

    def _drop(self, key: Key) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None and watch.task is not None:
            watch.task.cancel()

    async def _attend(self, key: Key, watch: _Watch) -> None:
        try:
            await self._look(key, watch)
        except Exception:
            logger.exception("a service can't be looked at", extra={"service": str(key)})
        now = self._clock.monotonic()
        period = self._period(watch.scaler.outcome)
        # In step with its phase, unless it fell behind.
        watch.due = max(watch.due + period, now + period / 2)

    async def _look(self, key: Key, watch: _Watch) -> None:
        subject = self._board.subjects().get(key)
        if subject is None:
            return
        serving = [pod for pod in subject.pods if pod.serves]
        scraped = await self._scraper.scrape(serving, subject.engine_version)
        self._observe(scraped)
        # What a reconcile has found while the pods were asked is newer.
        subject = self._board.subjects().get(key, subject)
        if subject.uid != watch.uid:
            return
        watch.scaler.take(subject, scraped)
        if self._clock.monotonic() < watch.decision_due and not watch.scaler.is_pressing():
            return
        watch.decision_due = watch.due + self._times.decision_seconds - self._times.tick_seconds
        self._decide(key, watch, subject)

    def _decide(self, key: Key, watch: _Watch, subject: Subject) -> None:
        now = self._clock.now()
        model = self._capacities.model(subject.capacity)
        policy = "" if subject.bounds is None else subject.bounds.policy
        outcome = watch.scaler.decide(
            now,
            capacity=model,
            policy=self._policies.answer(policy),
            activity=self._activities.activity(subject, now),
        )
        self._capacities.ask(model)
        self._board.conclude(key, outcome)
        if watch.news.is_due(outcome, subject.wanted, now):
            self._enqueue(key)

    def _observe(self, scraped: tuple[Scraped, ...]) -> None:
        if self._observer is not None:
            for each in scraped:
                self._observer.scraped(each.failure, each.seconds)

    def _period(self, outcome: Outcome | None) -> float:
        if outcome is None:
            return self._times.look_seconds
        signals = outcome.signals
        work = (signals.running, signals.waiting, signals.arrivals_per_second)
        idle = all(signal.is_trusted and not signal.value for signal in work)
        return self._times.idle_seconds if idle else self._times.look_seconds


def phase(key: Key) -> float:
    """From 0 to 1, the same for the same name: a thousand services are not looked at in one moment."""
    return zlib.crc32(str(key).encode()) / (1 << 32)
