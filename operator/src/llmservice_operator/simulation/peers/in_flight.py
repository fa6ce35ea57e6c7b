"""Rules on requests in flight alone: KubeAI and Ray Serve."""

import math
from dataclasses import dataclass

from llmservice_operator.simulation.observation import History, Observation


def in_flight(history: History, window_seconds: float, now: float) -> float:
    """Running and waiting requests of the fleet, averaged over the window; NaN without data."""
    return history.mean("running", window_seconds, now) + history.mean("waiting", window_seconds, now)


@dataclass(slots=True)
class KubeAi:
    """ceil(ten-minute mean of active requests / 100): up at once, down after as many equal decisions as 30 s hold.

    Follows substratusai/kubeai internal/modelautoscaler/autoscaler.go.
    """

    target_requests: float = 100.0
    window_seconds: float = 600.0
    down_delay_seconds: float = 30.0
    name: str = "kubeai"
    period_seconds: float = 10.0
    _downs: int = 0

    def step(self, seen: Observation) -> int:
        """Desired replicas; no data is no decision."""
        active = in_flight(seen.history, self.window_seconds, seen.metrics_seconds)
        if math.isnan(active):
            return seen.provisioned
        asked = math.ceil(active / self.target_requests)
        if asked >= seen.provisioned:
            self._downs = 0
            return asked
        self._downs += 1
        if self._downs < math.ceil(self.down_delay_seconds / self.period_seconds):
            return seen.provisioned
        self._downs = 0
        return asked


@dataclass(slots=True)
class RayServe:
    """ceil(n + f (n x total / (target n) - n)), target 2: kept up for 30 s before it counts, 600 s on the way down.

    Follows ray-project/ray python/ray/serve/autoscaling_policy.py; metrics are pushed each 10 s over 30 s.
    """

    target_ongoing_requests: float = 2.0
    factor: float = 1.0
    look_back_seconds: float = 30.0
    up_delay_seconds: float = 30.0
    down_delay_seconds: float = 600.0
    name: str = "ray-serve"
    period_seconds: float = 10.0
    _decisions: int = 0

    def step(self, seen: Observation) -> int:
        """Desired replicas; no data is no decision."""
        total = in_flight(seen.history, self.look_back_seconds, seen.metrics_seconds)
        if math.isnan(total) or not seen.ready:
            return seen.provisioned
        asked = ray_replicas(total, seen.ready, target=self.target_ongoing_requests, factor=self.factor)
        asked = min(max(asked, seen.min_replicas), seen.max_replicas)
        if asked > seen.provisioned:
            self._decisions = max(self._decisions, 0) + 1
            due = self._decisions > int(self.up_delay_seconds / self.period_seconds)
        elif asked < seen.provisioned:
            self._decisions = min(self._decisions, 0) - 1
            due = -self._decisions > int(self.down_delay_seconds / self.period_seconds)
        else:
            self._decisions, due = 0, False
        if not due:
            return seen.provisioned
        self._decisions = 0
        return asked


def ray_replicas(total: float, ready: int, *, target: float, factor: float) -> int:
    """Before delays."""
    return math.ceil(ready + factor * (ready * total / (target * ready) - ready))
