"""The HorizontalPodAutoscaler v2, and rules that end in one.

Follows kubernetes pkg/controller/podautoscaler/{horizontal,replica_calculator}.go and the defaults of
pkg/apis/autoscaling/v2/defaults.go.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmservice_operator.simulation.observation import Observation

SYNC_SECONDS = 15.0
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most so many pods, or so large a share of them, more or fewer within a period."""

    period_seconds: float
    pods: int | None = None
    percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """The object's `behavior`. Of several limits the one that allows the largest change rules."""

    up_window_seconds: float = 0.0
    up: tuple[Limit, ...] = (Limit(period_seconds=15.0, pods=4), Limit(period_seconds=15.0, percent=100.0))
    down_window_seconds: float = 300.0
    down: tuple[Limit, ...] = (Limit(period_seconds=15.0, percent=100.0),)


DEFAULT_BEHAVIOR = Behavior()


@dataclass(slots=True)
class Actuator:
    """From what a metric asks for to what is set: stabilisation, then rates."""

    behavior: Behavior
    _asked: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def remember(self, asked: int, at_seconds: float) -> None:
        """What was asked for before the begin. Without it, what there is counts as the first recommendation."""
        self._asked.append((at_seconds, asked))

    def settle(self, asked: int, seen: Observation) -> int:
        """Replicas to set, within the object's bounds."""
        current, now = seen.provisioned, seen.now_seconds
        steady = self._stabilise(asked, current, now)
        settled = steady
        if steady > current:
            settled = min(steady, max(current, self._most(current, now)), seen.max_replicas)
        elif steady < current:
            settled = max(steady, min(current, self._least(current, now)), seen.min_replicas)
        if settled != current:
            self._changes.append((now, settled - current))
        return settled

    def _stabilise(self, asked: int, current: int, now: float) -> int:
        """Up to the least that was asked for within the up window, down to the most within the down window."""
        behavior = self.behavior
        if not self._asked:
            self._asked.append((now, current))  # what there is counts as the first recommendation
        least = min([asked, *(n for at, n in self._asked if at > now - behavior.up_window_seconds)])
        most = max([asked, *(n for at, n in self._asked if at > now - behavior.down_window_seconds)])
        kept = max(behavior.up_window_seconds, behavior.down_window_seconds)
        self._asked = [(at, n) for at, n in self._asked if at > now - kept]
        self._asked.append((now, asked))
        return min(max(current, least), most)

    def _most(self, current: int, now: float) -> int:
        limits = [
            start + limit.pods if limit.pods is not None else math.ceil(start * (1.0 + percent / 100.0))
            for limit, start, percent in self._starts(self.behavior.up, current, now)
        ]
        return max(limits)

    def _least(self, current: int, now: float) -> int:
        limits = [
            start - limit.pods if limit.pods is not None else int(start * (1.0 - percent / 100.0))
            for limit, start, percent in self._starts(self.behavior.down, current, now)
        ]
        return min(limits)

    def _starts(self, limits: Sequence[Limit], current: int, now: float) -> list[tuple[Limit, int, float]]:
        """Each limit with the replicas that its period began with."""
        return [
            (
                limit,
                current - sum(change for at, change in self._changes if at > now - limit.period_seconds),
                limit.percent or 0.0,
            )
            for limit in limits
        ]


def from_sum(total: float, target: float, current: int) -> int:
    """External metric, AverageValue: ceil(sum / target), unless within tolerance of what there is."""
    if current and abs(1.0 - total / (target * current)) <= TOLERANCE:
        return current
    return math.ceil(total / target)


def from_pods(values: Sequence[float], missing: int, target: float, current: int) -> int:
    """Pods metric, AverageValue: ceil(pods x mean / target).

    Pods without the metric count as idle on the way up and as on target on the way down; if that turns the
    direction round, nothing changes.
    """
    if not values:
        return current
    ratio = sum(values) / len(values) / target
    if not missing:
        return current if abs(1.0 - ratio) <= TOLERANCE else math.ceil(ratio * len(values))
    filled = [*values, *([target] * missing if ratio < 1.0 else [0.0] * missing)]
    new_ratio = sum(filled) / len(filled) / target
    if abs(1.0 - new_ratio) <= TOLERANCE or (ratio < 1.0) != (new_ratio < 1.0):
        return current
    wanted = math.ceil(new_ratio * len(filled))
    turned = (new_ratio < 1.0 and wanted > current) or (new_ratio > 1.0 and wanted < current)
    return current if turned else wanted


@dataclass(slots=True)
class HpaPods:
    """An HPA on a gauge of the pods themselves, averaged over all Running pods."""

    target: float
    gauge: str = "waiting"
    name: str = "hpa-queue"
    period_seconds: float = SYNC_SECONDS
    actuator: Actuator = field(default_factory=lambda: Actuator(DEFAULT_BEHAVIOR))

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        values = [each for page in seen.pages if not math.isnan(each := getattr(page, self.gauge))]
        missing = max(0, seen.provisioned - len(values))
        asked = from_pods(values, missing, self.target, seen.provisioned)
        return self.actuator.settle(asked, seen)


@dataclass(slots=True)
class Keda:
    """A ScaledObject with one Prometheus trigger: an HPA on the query's value, AverageValue.

    `ignoreNullValues` is true by default: no value, NaN and infinity read as 0 (kedacore/keda
    pkg/scalers/prometheus_scaler.go).
    """

    query: Callable[[Observation], float]
    threshold: float
    name: str
    period_seconds: float = SYNC_SECONDS
    actuator: Actuator = field(default_factory=lambda: Actuator(DEFAULT_BEHAVIOR))

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        value = self.query(seen)
        asked = from_sum(value if math.isfinite(value) else 0.0, self.threshold, seen.provisioned)
        return self.actuator.settle(asked, seen)


@dataclass(slots=True)
class Static:
    """A fixed number."""

    replicas: int
    name: str = "static"
    period_seconds: float = 60.0

    def step(self, seen: Observation) -> int:  # noqa: ARG002 (it looks at nothing)
        """That number."""
        return self.replicas


def production_stack() -> Keda:
    """Of vLLM's production-stack: waiting requests over all pods, threshold 5 (its tutorial 20)."""
    return Keda(query=lambda seen: seen.total("waiting"), threshold=5.0, name="keda-production-stack")
