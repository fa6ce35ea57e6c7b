"""AIBrix's two scalers on a share of the KV cache.

Follows vllm-project/aibrix pkg/controller/podautoscaler/{algorithm,context,metrics}. Its KPA divides the mean of a pod
by the target without multiplying by the pods, and so asks for too few; that is kept.
"""

import math
from dataclasses import dataclass, field

from llmservice_operator.simulation.observation import Observation

PERIOD_SECONDS = 10.0
KV_TARGET = 0.5
"""Of its samples (config/samples, gpu_cache_usage_perc)."""


def kpa_replicas(mean: float, target: float) -> int:
    """ceil(mean / target)."""
    return math.ceil(mean / target)


def apa_replicas(current: int, mean: float, target: float, *, tolerance: float = 0.1) -> int:
    """ceil(n x mean / target), unless within tolerance."""
    if abs(mean / target - 1.0) <= tolerance:
        return current
    return math.ceil(current * mean / target)


@dataclass(slots=True)
class Aibrix:
    """Either of the two, with its rates (twice, half) and its cooldown of 300 s on the way down."""

    multiplies: bool
    """APA: by the pods there are. KPA: not."""
    name: str
    target: float = KV_TARGET
    stable_seconds: float = 180.0
    panic_seconds: float = 60.0
    panic_threshold: float = 2.0
    rate: float = 2.0
    cooldown_seconds: float = 300.0
    period_seconds: float = PERIOD_SECONDS
    _asked: list[tuple[float, int]] = field(default_factory=list)

    def step(self, seen: Observation) -> int:
        """Desired replicas; no data is no decision."""
        current = max(1, seen.provisioned)
        stable, panic = (self._mean(seen, window) for window in (self.stable_seconds, self.panic_seconds))
        if math.isnan(stable) or math.isnan(panic):
            return seen.provisioned
        mean = panic if panic / self.target >= self.panic_threshold else stable
        apa = apa_replicas(current, mean, self.target)
        asked = apa if self.multiplies else kpa_replicas(mean, self.target)
        asked = min(max(asked, math.floor(current / self.rate)), math.ceil(current * self.rate))
        return self._cool(asked, seen)

    def _mean(self, seen: Observation, window_seconds: float) -> float:
        """Of a pod, over the window."""
        inside = seen.history.within(window_seconds, seen.metrics_seconds)
        means = [scrape.total("kv_usage") / len(scrape.pages) for scrape in inside if scrape.pages]
        return math.fsum(means) / len(means) if means else math.nan

    def _cool(self, asked: int, seen: Observation) -> int:
        """Down only after the cooldown, and then to the least that was asked for in it."""
        now = seen.now_seconds
        whole = bool(self._asked) and self._asked[0][0] <= now - self.cooldown_seconds
        self._asked.append((now, asked))
        if asked >= seen.provisioned:
            self._asked.clear()
            return asked
        if not whole:
            return seen.provisioned
        least = min(count for _, count in self._asked)
        self._asked.clear()
        return least
