"""llm-d's recommended rules, all of which end in KEDA and so in an HPA.

Follows github.com/llm-d/llm-d guides/workload-autoscaling/{keda-epp,keda-epp-token-aware,slo-aware}.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from llmservice_operator.simulation.observation import Observation, histogram_quantile
from llmservice_operator.simulation.peers.hpa import SYNC_SECONDS, Actuator, Behavior, Limit, from_sum
from llmservice_operator.simulation.records import Floats

SLO_BEHAVIOR = Behavior(
    up_window_seconds=30.0,
    up=(Limit(period_seconds=60.0, percent=100.0), Limit(period_seconds=60.0, pods=4)),
    down_window_seconds=180.0,
    down=(Limit(period_seconds=120.0, pods=1),),
)
TTFT_BOUNDS_SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0
)  # fmt: skip
"""Upper bounds of the router's own histograms, llm-d-router pkg/epp/framework/plugins/requestcontrol/dataproducer/
predictedlatency/metrics.go. With most answers between 20 and 40 ms their p90 reads 38 ms, wherever in it they are:
that is the guide's "healthy" band."""
TPOT_BOUNDS_SECONDS = (
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0,
    3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0, 90.0, 120.0, 180.0, 270.0, 360.0
)  # fmt: skip
QUEUE_BEHAVIOR = Behavior(up_window_seconds=300.0, down_window_seconds=300.0)


def saturation_demand(
    saturation: float, provisioned: int, ready: int, *, up: float = 0.55, down: float = 0.40
) -> int:
    """With n replicas: n + ceil(n (s c / 0.55 - 1)) above the band, n - floor(n (1 - s / 0.40)) below, n within it.

    `c` = ready / n credits pods that are on their way, on the way up only.
    """
    n = provisioned
    if saturation > up:
        credit = ready / n if 0 < ready < n else 1.0
        return n + math.ceil(n * (saturation * credit / up - 1.0))
    if saturation < down:
        return n - math.floor(n * (1.0 - saturation / down))
    return n


def routed_p90(seen: Observation, window_seconds: float) -> tuple[float, float]:
    """P90 of TTFT and TPOT by the router's histograms over the window's scrapes; NaN where none shows an answer.

    The router counts both, predicted ones too, when an answer has ended (llm-d-router requestcontrol_hooks.go).
    """
    now = seen.metrics_seconds
    inside = seen.history.within(window_seconds, now)
    if seen.answers is None or not seen.history.rate("finished", window_seconds, now) > 0:
        return math.nan, math.nan
    ttft, tpot = seen.answers.ended(inside[0].at_seconds, inside[-1].at_seconds)
    return bucket_p90(ttft, TTFT_BOUNDS_SECONDS), bucket_p90(tpot, TPOT_BOUNDS_SECONDS)


def bucket_p90(values: Floats, bounds_seconds: Sequence[float]) -> float:
    """As Prometheus reads it from a histogram of these values; NaN of none."""
    places = np.searchsorted(bounds_seconds, values)
    return histogram_quantile(
        0.9, np.bincount(places, minlength=len(bounds_seconds) + 1).tolist(), bounds_seconds
    )


def slo_saturation(ttft_p90: float, tpot_p90: float, ttft_seconds: float, tpot_seconds: float) -> float:
    """The worse of both over their bounds; without traffic 0."""
    ratios = (ttft_p90 / ttft_seconds, tpot_p90 / tpot_seconds)
    return max((each for each in ratios if not math.isnan(each)), default=0.0)


@dataclass(slots=True)
class SloAware:
    """P90 of TTFT and TPOT over their bounds; clamped at 2, averaged over 45 s; no traffic reads as 0.

    The router's predictor of TTFT, where it is on, knows what a request will see when it comes. In its place stands
    Little's law: what waits over what is finished per second, beside an idle engine's own time; and the rule is told at
    once, where the router tells when the answer has ended.
    """

    ttft_seconds: float
    tpot_seconds: float
    up: float = 0.55
    down: float = 0.40
    clamp: float = 2.0
    idle_ttft_seconds: float | None = None
    """None: TTFT as measured, the guide's fallback; else predicted."""
    name: str = "llm-d-slo"
    period_seconds: float = SYNC_SECONDS
    rate_window_seconds: float = 60.0
    smoothing_seconds: float = 45.0
    actuator: Actuator = field(default_factory=lambda: Actuator(SLO_BEHAVIOR))
    _raw: list[tuple[float, float]] = field(default_factory=list)

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        now = seen.now_seconds
        self._raw = [(at, value) for at, value in self._raw if at > now - self.smoothing_seconds]
        self._raw.append((now, min(self._saturation(seen), self.clamp)))
        smooth = sum(value for _, value in self._raw) / len(self._raw)
        demand = saturation_demand(smooth, seen.provisioned, seen.ready, up=self.up, down=self.down)
        # A composite target of 1, AverageValue: the HPA takes the formula's number as it is.
        asked = from_sum(float(demand), 1.0, seen.provisioned)
        return self.actuator.settle(asked, seen)

    def _saturation(self, seen: Observation) -> float:
        ttft, tpot = routed_p90(seen, self.rate_window_seconds)
        if self.idle_ttft_seconds is not None:
            ttft = self._predicted_ttft(seen, self.idle_ttft_seconds)
        return slo_saturation(ttft, tpot, self.ttft_seconds, self.tpot_seconds)

    def _predicted_ttft(self, seen: Observation, idle_seconds: float) -> float:
        """P90 of the last minute."""
        history, now = seen.history, seen.metrics_seconds
        finished = history.rate("finished", self.rate_window_seconds, now)
        inside = history.within(self.rate_window_seconds, now)
        waits = sorted(
            scrape.total("waiting") / finished if finished > 0 else 0.0 for scrape in inside if scrape.pages
        )
        return idle_seconds + waits[int(0.9 * len(waits))] if waits else math.nan


@dataclass(slots=True)
class TokenAware:
    """max(ceil(uncached tokens in flight / V_P / 1.5 s), ceil(KV use / 0.8)).

    V_P: tokens of prompts that a replica computes per second, as measured. The 1.5 s are the guide's; its rule for
    others is TTFT bound - prompt / V_P.
    """

    prefill_tokens_per_second: float
    budget_seconds: float = 1.5
    kv_target: float = 0.8
    name: str = "llm-d-token"
    period_seconds: float = SYNC_SECONDS
    actuator: Actuator = field(default_factory=lambda: Actuator(Behavior()))

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        return self.actuator.settle(self.demand(seen), seen)

    def demand(self, seen: Observation) -> int:
        """Before the HPA's behavior: of two triggers the larger rules."""
        tokens, kv = seen.total("pending_prompt_tokens"), seen.total("kv_usage")
        per_replica = self.prefill_tokens_per_second * self.budget_seconds
        return max(
            from_sum(tokens if math.isfinite(tokens) else 0.0, per_replica, seen.provisioned),
            from_sum(kv if math.isfinite(kv) else 0.0, self.kv_target, seen.provisioned),
        )


def guarded(demand: int, provisioned: int, ready: int) -> int:
    """The guide's guard against a second scale-up: demand <= n ? demand : max(demand - pending, n)."""
    pending = provisioned - ready
    return demand if demand <= provisioned else max(demand - pending, provisioned)


@dataclass(slots=True)
class EppQueue:
    """Requests that wait (1 a replica) and that run (16 a replica), with the guard."""

    queue_target: float = 1.0
    running_target: float = 16.0
    name: str = "llm-d-queue"
    period_seconds: float = SYNC_SECONDS
    actuator: Actuator = field(default_factory=lambda: Actuator(QUEUE_BEHAVIOR))

    def step(self, seen: Observation) -> int:
        """Desired replicas: of two triggers the larger rules."""
        waiting, running = seen.total("waiting"), seen.total("running")
        asked = max(
            from_sum(waiting if math.isfinite(waiting) else 0.0, self.queue_target, seen.provisioned),
            from_sum(running if math.isfinite(running) else 0.0, self.running_target, seen.provisioned),
        )
        asked = guarded(asked, seen.provisioned, seen.ready)
        return self.actuator.settle(asked, seen)
