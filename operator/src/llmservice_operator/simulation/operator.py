"""The operator's own loop in a simulated fleet: its observer and its `decide`, fed with pages of simulated engines.

As in a cluster it looks each five seconds and decides each fifteen, or at once where what it sees presses.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from llmservice_operator.autoscaling.cadence import (
    DECISION_SECONDS,
    LOOK_SECONDS,
    Work,
    is_pressing,
    work_of,
)
from llmservice_operator.autoscaling.capacity import CapacityModel, LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.policy import BALANCED, ScalingPolicy
from llmservice_operator.autoscaling.signals import Signal, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import Gauge, Histogram, MetricsPage
from llmservice_operator.simulation.observation import Observation, Scrape
from llmservice_operator.simulation.records import (
    LENGTH_BOUNDS_TOKENS,
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
    Records,
)

EPOCH_SECONDS = 1.7e9
"""Of a simulation's begin: the operator's clock is Unix time."""

_COUNTERS = {
    Series.PREEMPTIONS: "preemptions",
    Series.PROMPT_TOKENS: "prompt_tokens",
    Series.GENERATION_TOKENS: "generated_tokens",
    Series.FINISHED: "finished",
    Series.PREFIX_QUERIES: "prompt_tokens",
    Series.PREFIX_HITS: "cached_tokens",
    Series.STEPS: "steps",
}
_HISTOGRAMS = {
    Series.TTFT: ("ttft", "ttft_seconds", TTFT_BOUNDS_SECONDS),
    Series.TPOT: ("tpot", "tpot_seconds", TPOT_BOUNDS_SECONDS),
    Series.ITL: ("itl", "itl_seconds", TPOT_BOUNDS_SECONDS),
    Series.INPUT_LENGTH: ("inputs", "finished_input_tokens", LENGTH_BOUNDS_TOKENS),
    Series.OUTPUT_LENGTH: ("outputs", "finished_output_tokens", LENGTH_BOUNDS_TOKENS),
}
_BOUNDS = {series: (*bounds.tolist(), float("inf")) for series, (_, _, bounds) in _HISTOGRAMS.items()}


@dataclass(slots=True, kw_only=True)
class OperatorPolicy:
    """One service under the operator."""

    capacity: CapacityModel
    expected_mix: LengthMix
    objectives: Objectives
    peak_bytes_per_second: float
    """Of one GPU's memory."""
    planned_start_seconds: float
    policy: ScalingPolicy = BALANCED
    concurrency_limit: float | None = None
    weights_bytes_per_step: float | None = None
    """What each step reads on one GPU whatever its batch."""
    name: str = "operator"
    period_seconds: float = LOOK_SECONDS
    keep: Callable[[float, Decision], None] | None = None
    """Given every decision."""
    _observer: ServiceObserver = field(default_factory=ServiceObserver)
    _state: ScalerState = field(default_factory=ScalerState)
    _scraped_at: float = -1.0
    _decided: "_Decided | None" = None

    def restart(self) -> None:
        """As the operator's process does: what was seen is gone, the state is in the service's status."""
        self._observer = ServiceObserver()
        self._decided = None

    def step(self, seen: Observation) -> int:
        """Desired replicas: those that there are wherever no decision is due."""
        work = self._look(seen)
        ready = frozenset(seen.ready_since)
        if self._decided is not None and not self._decided.is_over(seen.metrics_seconds, work, ready):
            return seen.provisioned
        self._decided = _Decided(seen.metrics_seconds, work, ready)
        return self._decide(seen)

    def _look(self, seen: Observation) -> Work:
        """Take the newest pages in; what the engines have to do by them, nothing where there are none."""
        latest = seen.history.latest()
        if latest is None or latest.at_seconds == self._scraped_at:
            return Work()
        self._scraped_at = latest.at_seconds
        # Pages are scraped by the operator itself, by its own clock.
        at = latest.at_seconds + EPOCH_SECONDS + seen.now_seconds - seen.metrics_seconds
        pages = metrics_pages(latest, self.peak_bytes_per_second)
        for pod, page in zip(latest.pages, pages, strict=True):
            self._observer.record(str(pod.pod), page, at=at)
        return work_of(pages)

    def _decide(self, seen: Observation) -> int:
        now = seen.now_seconds + EPOCH_SECONDS
        context = Context(
            ttft_p95_seconds=self.objectives.ttft_p95_seconds,
            tpot_p95_seconds=self.objectives.tpot_p95_seconds,
            peak_bytes_per_second=self.peak_bytes_per_second,
            held_requests=Signal(float(seen.held_requests), SignalState.OK, now),
        )
        ready = {str(pod): since + EPOCH_SECONDS for pod, since in seen.ready_since.items()}
        decision = decide(
            Inputs(
                signals=self._observer.signals(ready, now, context),
                fleet=Fleet(
                    wanted=seen.provisioned,
                    ready=seen.ready,
                    starting=tuple(each + EPOCH_SECONDS for each in seen.starting_since),
                    unschedulable=seen.unschedulable,
                    failing=seen.failing,
                    recent_starts=seen.recent_start_seconds,
                    planned_start_seconds=self.planned_start_seconds,
                ),
                capacity=self.capacity,
                expected_mix=self.expected_mix,
                objectives=self.objectives,
                min_replicas=seen.min_replicas,
                max_replicas=seen.max_replicas,
                policy=self.policy,
                concurrency_limit=self.concurrency_limit,
                weights_bytes_per_step=self.weights_bytes_per_step,
            ),
            self._state,
            now,
        )
        self._state = decision.state
        if self.keep is not None:
            self.keep(seen.now_seconds, decision)
        return decision.desired


@dataclass(frozen=True, slots=True)
class _Decided:
    """What the last decision was made for."""

    at_seconds: float
    """By a clock that doesn't jump."""
    work: Work
    ready: frozenset[int]

    def is_over(self, now: float, work: Work, ready: frozenset[int]) -> bool:
        """Whether another decision is due."""
        if now - self.at_seconds > DECISION_SECONDS - LOOK_SECONDS / 2 or ready != self.ready:
            return True
        return is_pressing(work, self.work)


_UNREADABLE = MetricsPage(gauges={}, counters={}, histograms={}, invalid=frozenset(Series))


def metrics_pages(scrape: Scrape, peak_bytes_per_second: float) -> list[MetricsPage]:
    """What each engine's metrics page would tell, had it been parsed."""
    engines: Records | None = scrape.records
    if engines is None:
        return [_UNREADABLE] * len(scrape.pages)
    counters = {series: engines[name].astype(float).tolist() for series, name in _COUNTERS.items()}
    counters[Series.READ_BYTES] = (engines["traffic_seconds"] * peak_bytes_per_second).tolist()
    counters[Series.WRITE_BYTES] = [0.0] * len(engines)
    histograms = {
        series: (
            np.cumsum(engines[counts], axis=1, dtype=np.float64),
            engines[total].astype(float).tolist(),
        )
        for series, (counts, total, _) in _HISTOGRAMS.items()
    }
    return [
        MetricsPage(
            gauges={
                Series.RUNNING: _gauge(gauge.running),
                Series.WAITING: _gauge(gauge.waiting),
                Series.KV_USE: _gauge(gauge.kv_usage),
            },
            counters={series: values[place] for series, values in counters.items()},
            histograms={
                series: Histogram(_BOUNDS[series], array("d", counts[place].tobytes()), totals[place])
                for series, (counts, totals) in histograms.items()
            },
        )
        for place, gauge in enumerate(scrape.pages)
    ]


def _gauge(value: float) -> Gauge:
    return Gauge(value, value, 1)
