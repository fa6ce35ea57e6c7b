"""What a policy sees of a fleet: pods, and the series that Prometheus would have of them.

A scrape is taken every few seconds; rates and quantiles are over scrapes, never over what happened between them.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmservice_operator.simulation.answers import Answers

HISTORY_SECONDS = 3600.0
"""How long scrapes are kept."""


class Policy(Protocol):
    """A rule that sets replicas."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def period_seconds(self) -> float:
        """How often it is asked."""

    def step(self, seen: "Observation") -> int:
        """Desired replicas. The fleet clamps to its own bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPage:
    """Gauges of one ready pod, as scraped. NaN: the page had no such number."""

    pod: int
    """A name that no other pod ever has."""
    running: float
    waiting: float
    kv_usage: float
    """Share of the cache that is taken."""
    pending_prompt_tokens: float
    """Prompt tokens in flight that are neither computed nor in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """All ready pods at one time."""

    at_seconds: float
    pages: tuple[PodPage, ...]
    sums: Mapping[str, float]
    """Counters over all pods, counted on over pods that went."""
    ttft: Sequence[float]
    """Buckets' counts, each alone, counted on like sums."""
    tpot: Sequence[float]
    itl: Sequence[float]
    records: Any = field(default=None, repr=False)
    """Each page's engine record, counters since that pod's start among them, in the order of `pages`."""

    def total(self, gauge: str) -> float:
        """Sum over pods; 0 where there are none."""
        return math.fsum(getattr(page, gauge) for page in self.pages)


@dataclass(slots=True)
class History:
    """Scrapes in order of time."""

    ttft_bounds_seconds: Sequence[float]
    tpot_bounds_seconds: Sequence[float]
    scrapes: list[Scrape] = field(default_factory=list, repr=False)
    _times: list[float] = field(default_factory=list, repr=False)

    def add(self, scrape: Scrape) -> None:
        """Take one more; the oldest go."""
        self.scrapes.append(scrape)
        self._times.append(scrape.at_seconds)
        old = bisect.bisect_left(self._times, scrape.at_seconds - HISTORY_SECONDS)
        if old > len(self._times) // 2:
            del self.scrapes[:old], self._times[:old]

    def latest(self) -> Scrape | None:
        """The newest one."""
        return self.scrapes[-1] if self.scrapes else None

    def before(self, at_seconds: float) -> Scrape | None:
        """The newest one that isn't later than this; else the oldest."""
        if not self.scrapes:
            return None
        return self.scrapes[max(0, bisect.bisect_right(self._times, at_seconds) - 1)]

    def within(self, window_seconds: float, now: float) -> list[Scrape]:
        """Those of the window that ends now."""
        first = bisect.bisect_left(self._times, now - window_seconds)
        return self.scrapes[first : bisect.bisect_right(self._times, now)]

    def rate(self, counter: str, window_seconds: float, now: float) -> float:
        """Per second over the window; NaN with fewer than two scrapes in it."""
        inside = self.within(window_seconds, now)
        if len(inside) < 2:
            return math.nan
        seconds = inside[-1].at_seconds - inside[0].at_seconds
        return (inside[-1].sums[counter] - inside[0].sums[counter]) / seconds

    def quantile(self, histogram: str, share: float, window_seconds: float, now: float) -> float:
        """As PromQL's histogram_quantile over bucket rates: linear within a bucket; NaN without observations."""
        inside = self.within(window_seconds, now)
        if len(inside) < 2:
            return math.nan
        newest, oldest = getattr(inside[-1], histogram), getattr(inside[0], histogram)
        counts = [new - old for new, old in zip(newest, oldest, strict=True)]
        bounds = self.ttft_bounds_seconds if histogram == "ttft" else self.tpot_bounds_seconds
        return histogram_quantile(share, counts, bounds)

    def mean(self, gauge: str, window_seconds: float, now: float) -> float:
        """avg_over_time of the sum over pods; NaN without scrapes."""
        inside = self.within(window_seconds, now)
        if not inside:
            return math.nan
        return math.fsum(scrape.total(gauge) for scrape in inside) / len(inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One step's view."""

    now_seconds: float
    """By the policy's own clock."""
    metrics_seconds: float
    """By Prometheus' clock, which queries are evaluated at."""
    provisioned: int
    """Pods that are wanted: the scale target's replicas."""
    ready: int
    min_replicas: int
    max_replicas: int
    starting_since: tuple[float, ...] = ()
    """When each pod that is on its way was created."""
    recent_start_seconds: tuple[float, ...] = ()
    """From creation to ready, the newest last."""
    unschedulable: int = 0
    failing: int = 0
    ready_since: Mapping[int, float] = field(default_factory=dict)
    """By pod."""
    held_requests: int
    """At the router, while no pod takes any."""
    history: History
    answers: Answers | None = None
    """What a router saw; None: there is none."""

    @property
    def pages(self) -> tuple[PodPage, ...]:
        """Of the newest scrape."""
        latest = self.history.latest()
        return latest.pages if latest else ()

    def total(self, gauge: str) -> float:
        """Sum over pods of the newest scrape; NaN without one."""
        latest = self.history.latest()
        return latest.total(gauge) if latest else math.nan


def histogram_quantile(share: float, counts: Sequence[float], bounds: Sequence[float]) -> float:
    """PromQL's rule: the bucket that holds the rank, linearly from its lower bound; the last bound above it."""
    total = math.fsum(counts)
    if not total > 0:
        return math.nan
    rank, below = share * total, 0.0
    for place, count in enumerate(counts):
        if below + count >= rank and count > 0:
            if place >= len(bounds):
                return bounds[-1]
            lower = bounds[place - 1] if place else 0.0
            return lower + (bounds[place] - lower) * (rank - below) / count
        below += count
    return bounds[-1]
