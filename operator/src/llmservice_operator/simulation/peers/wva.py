"""llm-d's Workload Variant Autoscaler, its analysers, with one variant.

Follows llm-d-workload-variant-autoscaler internal/saturation/analyzer.go (V1) and its V2 token analyser, v0.5.1; and
its pull request 1376 (internal/engines/analyzers/epp_saturation, docs/developer-guide/epp-saturation-benchmark.md).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmservice_operator.simulation.observation import Observation, PodPage
from llmservice_operator.simulation.peers.hpa import SYNC_SECONDS, Actuator, from_sum
from llmservice_operator.simulation.peers.llmd import SLO_BEHAVIOR, routed_p90, slo_saturation

PERIOD_SECONDS = 15.0
KV_THRESHOLD, QUEUE_THRESHOLD = 0.80, 5.0
KV_SPARE, QUEUE_SPARE = 0.1, 3.0
UP_SHARE, DOWN_SHARE = 0.85, 0.70


def v1_change(pages: Sequence[PodPage], kv_threshold: float = KV_THRESHOLD) -> int:
    """+1, 0 or -1: by what the replicas that aren't saturated have to spare, on average."""
    free = [page for page in pages if page.kv_usage < kv_threshold and page.waiting < QUEUE_THRESHOLD]
    count = len(free)
    spare_kv = math.fsum(kv_threshold - page.kv_usage for page in free) / count if free else 0.0
    spare_queue = math.fsum(QUEUE_THRESHOLD - page.waiting for page in free) / count if free else 0.0
    if spare_kv < KV_SPARE or spare_queue < QUEUE_SPARE:
        return 1
    if count < 2:
        return 0
    # One fewer: each other takes N / (N - 1) of its load.
    more = count / (count - 1)
    kv_left = kv_threshold - (kv_threshold - spare_kv) * more
    queue_left = QUEUE_THRESHOLD - (QUEUE_THRESHOLD - spare_queue) * more
    return -1 if kv_left >= KV_SPARE and queue_left >= QUEUE_SPARE else 0


@dataclass(slots=True)
class WvaV1:
    """One at a time, and nothing while pods are on their way."""

    kv_threshold: float = KV_THRESHOLD
    name: str = "wva-v1"
    period_seconds: float = PERIOD_SECONDS

    def step(self, seen: Observation) -> int:
        """Desired replicas; no metrics, or those of too few pods, is no decision."""
        pages = [page for page in seen.pages if not math.isnan(page.kv_usage)]
        if not pages or len(pages) != seen.provisioned:
            return seen.provisioned
        return seen.provisioned + v1_change(pages, self.kv_threshold)


def v2_replicas(
    demand: float,
    capacity: float,
    *,
    ready: int,
    pending: int,
    up_share: float = UP_SHARE,
    down_share: float = DOWN_SHARE,
) -> int:
    """More by demand / 0.85 - (ready + pending) x capacity, fewer by supply - demand / 0.70; in tokens."""
    current = ready + pending
    required = demand / up_share - current * capacity
    if required > 0:
        return current + math.ceil(required / capacity)
    spare = ready * capacity - demand / down_share
    return current - max(0, math.floor(spare / capacity))


@dataclass(slots=True, kw_only=True)
class WvaV2:
    """Tokens in use and queued against tokens that a replica can hold, or computes while its queue is long."""

    pool_tokens: float
    token_budget: float
    max_num_seqs: float
    up_share: float = UP_SHARE
    down_share: float = DOWN_SHARE
    name: str = "wva-v2"
    period_seconds: float = PERIOD_SECONDS
    window_seconds: float = 60.0
    """Of mean lengths."""
    _saturated: deque[float] = field(default_factory=lambda: deque(maxlen=10))

    def step(self, seen: Observation) -> int:
        """Desired replicas; no metrics is no decision."""
        pages = [page for page in seen.pages if not math.isnan(page.kv_usage)]
        prompt, answer = self._lengths(seen)
        if not pages or math.isnan(prompt):
            return seen.provisioned
        capacity = self.capacity(pages, prompt, answer)
        demand = math.fsum(page.kv_usage * self.pool_tokens + page.waiting * prompt for page in pages)
        pending = max(0, seen.provisioned - len(pages))
        return v2_replicas(
            demand,
            capacity,
            ready=len(pages),
            pending=pending,
            up_share=self.up_share,
            down_share=self.down_share,
        )

    def capacity(self, pages: Sequence[PodPage], prompt: float, answer: float) -> float:
        """Tokens of a replica: the smaller of 0.8 of its cache and what it computes, as seen or as reckoned."""
        busy = [page.kv_usage * self.pool_tokens for page in pages if page.waiting >= QUEUE_THRESHOLD]
        if busy:
            computed = math.fsum(busy) / len(busy)
            self._saturated.append(computed)
        elif self._saturated:
            computed = math.fsum(self._saturated) / len(self._saturated)
        else:
            sequences = min(self.token_budget * answer / (prompt + answer), self.max_num_seqs)
            computed = sequences * (prompt + answer / 2.0)
        return max(1.0, min(KV_THRESHOLD * self.pool_tokens, computed))

    def _lengths(self, seen: Observation) -> tuple[float, float]:
        history, now = seen.history, seen.metrics_seconds
        arrived = history.rate("arrived", self.window_seconds, now)
        finished = history.rate("finished", self.window_seconds, now)
        if not (arrived > 0 and finished > 0):
            return math.nan, math.nan
        prompt = history.rate("prompt_tokens", self.window_seconds, now) / arrived
        return prompt, history.rate("generated_tokens", self.window_seconds, now) / finished


def credited_demand(
    saturation: float, provisioned: int, ready: int, *, up: float = 0.55, down: float = 0.40
) -> int:
    """As `llmd.saturation_demand`, but what is credited for pods on their way counts before the upper threshold."""
    n = provisioned
    credited = saturation * (ready / n if 0 < ready < n else 1.0)
    if credited > up:
        return n + math.ceil(n * (credited / up - 1.0))
    return n - math.floor(n * (1.0 - saturation / down)) if saturation < down else n


@dataclass(slots=True)
class WvaSlo:
    """The router's P90s over their bounds, once a minute, clamped at 2, smoothed exponentially; an HPA follows.

    llm-d's published ramp was scored with it. Not in the registry: the guide that came of it has an HPA read the router
    (`llmd.SloAware`), and llm-d gives WVA up.
    """

    ttft_seconds: float
    tpot_seconds: float
    next_seconds: float = 0.0
    """Of its first analysis, then of each next one."""
    alpha: float = 0.6
    clamp: float = 2.0
    analysis_seconds: float = 60.0
    rate_window_seconds: float = 60.0
    name: str = "wva-slo"
    period_seconds: float = SYNC_SECONDS
    actuator: Actuator = field(default_factory=lambda: Actuator(SLO_BEHAVIOR))
    _smooth: float = 0.0
    _asked: int | None = None

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        if seen.now_seconds >= self.next_seconds:
            self.next_seconds += self.analysis_seconds
            raw = slo_saturation(
                *routed_p90(seen, self.rate_window_seconds), self.ttft_seconds, self.tpot_seconds
            )
            self._smooth = self.alpha * min(raw, self.clamp) + (1.0 - self.alpha) * self._smooth
            wanted = credited_demand(self._smooth, seen.provisioned, seen.ready)
            self._asked = min(max(wanted, seen.min_replicas), seen.max_replicas)
        asked = seen.provisioned if self._asked is None else self._asked
        return self.actuator.settle(from_sum(float(asked), 1.0, seen.provisioned), seen)
