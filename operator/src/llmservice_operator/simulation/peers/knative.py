"""Knative's KPA: concurrency over a stable and a panic window.

Follows knative/serving pkg/autoscaler/scaling/autoscaler.go and the defaults of config.go.
"""

import math
from dataclasses import dataclass

from llmservice_operator.simulation.observation import History, Observation

TICK_SECONDS = 2.0


@dataclass(slots=True)
class Knative:
    """ceil(mean concurrency / target) within [floor(n / 2), ceil(1000 n)]; twice what is ready means panic.

    In panic nothing is taken away until a stable window has passed without one. A fleet of more than one pod begins
    in panic, since the windows are empty.
    """

    concurrency: float = 100.0
    utilization: float = 0.7
    stable_seconds: float = 60.0
    panic_share: float = 0.1
    panic_threshold: float = 2.0
    most_up: float = 1000.0
    most_down: float = 2.0
    name: str = "knative-kpa"
    period_seconds: float = TICK_SECONDS
    _panic_until: float = -math.inf
    _panic_pods: int = 0
    _started: bool = False

    def step(self, seen: Observation) -> int:
        """Desired replicas; no data is no decision."""
        now, ready = seen.now_seconds, max(1, seen.ready)
        if not self._started:
            self._started = True
            if seen.ready > 1:
                self._panic_until, self._panic_pods = now + self.stable_seconds, seen.ready
        at = seen.metrics_seconds
        stable = self._pods(mean_concurrency(seen.history, self.stable_seconds, at), ready)
        panic = self._pods(mean_concurrency(seen.history, self.stable_seconds * self.panic_share, at), ready)
        if stable is None or panic is None:
            return seen.provisioned
        if panic / ready >= self.panic_threshold:
            self._panic_until = now + self.stable_seconds
        if now < self._panic_until:
            self._panic_pods = max(self._panic_pods, panic)
            return self._panic_pods
        self._panic_pods = 0
        return stable

    def _pods(self, concurrency: float, ready: int) -> int | None:
        if math.isnan(concurrency):
            return None
        asked = math.ceil(concurrency / (self.concurrency * self.utilization))
        return min(max(asked, math.floor(ready / self.most_down)), math.ceil(ready * self.most_up))


def mean_concurrency(history: History, window_seconds: float, now: float) -> float:
    """Requests in the fleet, averaged over the window."""
    return history.mean("running", window_seconds, now) + history.mean("waiting", window_seconds, now)
