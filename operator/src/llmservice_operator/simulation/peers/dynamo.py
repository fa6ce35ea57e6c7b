"""NVIDIA Dynamo's planner for aggregated engines: a throughput loop and a load loop.

Follows ai-dynamo/dynamo components/src/dynamo/planner. Two things are simpler here: the forecast is its `constant` one
(the last interval's rate; ARIMA is its default), and the regressions of the load loop are given their answers by what
the engines export (prompt tokens that wait over the prefill rate, the mean gap between tokens).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.simulation.observation import Observation

LOAD_SECONDS, THROUGHPUT_SECONDS = 5.0, 180.0
SENSITIVITY = 0.8
"""Of the slack, which the rest must keep."""


def throughput_replicas(requests_per_second: float, engine_requests_per_second: float) -> int:
    """ceil(forecast / what an engine takes within the objectives)."""
    return math.ceil(requests_per_second / engine_requests_per_second)


def load_change(
    ttft_seconds: Sequence[float], itl_seconds: float, *, ttft_bound: float, itl_bound: float
) -> int:
    """+1 only if every engine misses a bound; -1 if N / (N - 1) of the load stays within 0.8 of both."""
    count = len(ttft_seconds)
    if all(each > ttft_bound for each in ttft_seconds) or itl_seconds > itl_bound:
        return 1
    if count < 2:
        return 0
    more = count / (count - 1)
    holds = max(ttft_seconds) * more < SENSITIVITY * ttft_bound
    return -1 if holds and itl_seconds * more < SENSITIVITY * itl_bound else 0


@dataclass(slots=True, kw_only=True)
class Dynamo:
    """The throughput loop sets a floor each 180 s; the load loop moves by one each 5 s, not while pods start."""

    engine_requests_per_second: float
    prefill_tokens_per_second: float
    ttft_seconds: float = 0.5
    tpot_seconds: float = 0.05
    name: str = "dynamo"
    period_seconds: float = LOAD_SECONDS
    _floor: int = 1
    _next_throughput: float = 0.0

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        now = seen.now_seconds
        if now >= self._next_throughput:
            self._next_throughput = now + THROUGHPUT_SECONDS
            rate = seen.history.rate("arrived", THROUGHPUT_SECONDS, seen.metrics_seconds)
            # A NaN at zero traffic leaves the last floor as it is (ai-dynamo/dynamo issues 6985 and 3131).
            if not math.isnan(rate):
                self._floor = throughput_replicas(rate, self.engine_requests_per_second)
        pages = [page for page in seen.pages if not math.isnan(page.pending_prompt_tokens)]
        if not pages or len(pages) != seen.provisioned:
            return max(seen.provisioned, self._floor) if pages else seen.provisioned
        waits = [page.pending_prompt_tokens / self.prefill_tokens_per_second for page in pages]
        change = load_change(
            waits, self._itl(seen), ttft_bound=self.ttft_seconds, itl_bound=self.tpot_seconds
        )
        return max(seen.provisioned + change, self._floor)

    def _itl(self, seen: Observation) -> float:
        """Mean gap between tokens of the last 30 s; 0 without any."""
        seconds = seen.history.rate("itl_seconds", 30.0, seen.metrics_seconds)
        tokens = seen.history.rate("generated_tokens", 30.0, seen.metrics_seconds)
        return seconds / tokens if tokens > 0 else 0.0
