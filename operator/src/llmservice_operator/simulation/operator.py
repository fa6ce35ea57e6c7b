"""The operator's own loop in a simulated fleet: its observer and its `decide`, fed with pages of simulated engines."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

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
from llmservice_operator.simulation.observation import Observation, PodPage, Scrape
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
    period_seconds: float = 5.0
    keep: Callable[[float, Decision], None] | None = None
    """Given every decision."""
    _observer: ServiceObserver = field(default_factory=ServiceObserver)
    _state: ScalerState = field(default_factory=ScalerState)
    _scraped_at: float = -1.0

    def restart(self) -> None:
        """As the operator's process does: what was seen is gone, the state is in the service's status."""
        self._observer = ServiceObserver()

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        now = seen.now_seconds + EPOCH_SECONDS
        latest = seen.history.latest()
        if latest is not None and latest.at_seconds != self._scraped_at:
            self._scraped_at = latest.at_seconds
            self._record(latest, seen)
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

    def _record(self, scrape: Scrape, seen: Observation) -> None:
        # Pages are scraped by the operator itself, by its own clock.
        at = scrape.at_seconds + EPOCH_SECONDS + seen.now_seconds - seen.metrics_seconds
        if scrape.records is None:
            unreadable = MetricsPage(gauges={}, counters={}, histograms={}, invalid=frozenset(Series))
            pages = [unreadable] * len(scrape.pages)
        else:
            pages = metrics_pages(scrape.pages, scrape.records, self.peak_bytes_per_second)
        for pod, page in zip(scrape.pages, pages, strict=True):
            self._observer.record(str(pod.pod), page, at=at)


def metrics_pages(
    gauges: Sequence[PodPage], engines: Records, peak_bytes_per_second: float
) -> list[MetricsPage]:
    """What each engine's metrics page would tell, had it been parsed."""
    counters = {series: engines[name].astype(float).tolist() for series, name in _COUNTERS.items()}
    counters[Series.READ_BYTES] = (engines["traffic_seconds"] * peak_bytes_per_second).tolist()
    counters[Series.WRITE_BYTES] = [0.0] * len(engines)
    histograms = {
        series: (np.cumsum(engines[counts], axis=1).tolist(), engines[total].astype(float).tolist())
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
                series: Histogram(_BOUNDS[series], array("d", counts[place]), totals[place])
                for series, (counts, totals) in histograms.items()
            },
        )
        for place, gauge in enumerate(gauges)
    ]


def _gauge(value: float) -> Gauge:
    return Gauge(value, value, 1)
