"""TTFT and TPOT of one replica under an open load: requests come at a rate, whether or not earlier ones are done."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.arrivals import Lengths, Request, mean_length, poisson_load
from llmservice_operator.perfmodel.batching import Engine, KeptSteps, Outcome
from llmservice_operator.perfmodel.speed import SpeedModel

__all__ = ["Lengths", "OpenLoop", "Tries", "max_rate_within", "open_loop", "quantile"]

WINDOW_SECONDS = 18.0
"""How long a load lasts at least, from an idle engine on: that of the recorded runs. A saturated engine's queue grows
with it, so its quantiles hold for a burst of this length."""
_LEAST_REQUESTS, _MOST_REQUESTS, _ALL_REQUESTS = 100, 3_000, 3_000
"""Of one window at least and at most, and of all windows together: quantiles that are stable, within 2 s."""
_RATE_REQUESTS = 1_500
"""Of each try for the largest rate."""
_MOST_ROUNDS = 40_000
"""Of the engine for all windows together, within the same 2 s: prompts in thousands of pieces, by a token budget that
is hardly more than the decoding sequences, take thousands each. Then fewer requests are played."""


@dataclass(frozen=True, kw_only=True)
class OpenLoop:
    """What a load does to a replica: medians over windows of each window's quantile."""

    rate_per_second: float
    ttft_p50_seconds: float
    ttft_p95_seconds: float
    ttft_p99_seconds: float
    tpot_p50_seconds: float
    tpot_p95_seconds: float
    utilization: float
    """The load over what the replica can take, at most; above 1 a queue grows without end."""
    saturated: bool
    tokens_per_second: float
    """Output tokens."""


def open_loop(
    model: SpeedModel,
    *,
    rate_per_second: float,
    lengths: Lengths,
    seed: int = 0,
    window_seconds: float = WINDOW_SECONDS,
) -> OpenLoop:
    """A Poisson load of this rate, played through the engine's own batching rules.

    The same arguments give the same answer. Lengths are cut to what the engine takes. Raises ValueError for a rate that
    isn't positive.
    """
    if not 0 < rate_per_second < math.inf:
        raise ValueError(f"rate_per_second is {rate_per_second}; a positive number is expected")
    window = max(window_seconds, _LEAST_REQUESTS / rate_per_second)
    window = min(window, _MOST_REQUESTS / rate_per_second)
    count = max(1, math.ceil(_ALL_REQUESTS / (rate_per_second * window)))
    windows, rounds, steps = [], 0, KeptSteps(model)
    for index in range(count):
        outcomes, taken = _play(steps, rate_per_second, window, lengths, seed * count + index)
        windows.append(outcomes)
        rounds += taken
        if rounds + taken > _MOST_ROUNDS:
            break
    return summarize(model, rate_per_second, lengths, windows)


def summarize(
    model: SpeedModel, rate_per_second: float, lengths: Lengths, windows: Sequence[Sequence[Outcome]]
) -> OpenLoop:
    """Quantiles of the windows' outcomes."""
    ttft = [sorted(each.ttft_seconds for each in window) for window in windows]
    tpot = [sorted(each.tpot_seconds for each in window) for window in windows]
    answer = mean_length(lengths.output_p50, lengths.output_p95)
    prompt = mean_length(lengths.input_p50, lengths.input_p95)
    capacity = model.saturated_tokens_per_second(max(1, round(prompt)), max(1, round(answer)))
    offered = rate_per_second * answer
    utilization = offered / capacity if capacity else math.inf
    return OpenLoop(
        rate_per_second=rate_per_second,
        ttft_p50_seconds=_typical(ttft, 0.50),
        ttft_p95_seconds=_typical(ttft, 0.95),
        ttft_p99_seconds=_typical(ttft, 0.99),
        tpot_p50_seconds=_typical(tpot, 0.50),
        tpot_p95_seconds=_typical(tpot, 0.95),
        utilization=utilization,
        saturated=utilization >= 1.0,
        tokens_per_second=min(offered, capacity),
    )


def max_rate_within(
    model: SpeedModel,
    *,
    ttft_p95_seconds: float,
    tpot_p95_seconds: float,
    lengths: Lengths,
    seed: int = 0,
) -> float:
    """The largest rate whose p95 of TTFT and TPOT are within these bounds, to 2 %; 0 if an idle engine isn't.

    The TPOT is that of Outcome.held_tpot_seconds.
    """
    return Tries(model, ttft_p95_seconds, tpot_p95_seconds, lengths, seed).largest_rate()


class Tries:
    """Loads of one kind at several rates, held against bounds of the p95 of TTFT and TPOT."""

    def __init__(
        self,
        model: SpeedModel,
        ttft_p95_seconds: float,
        tpot_p95_seconds: float,
        lengths: Lengths,
        seed: int = 0,
    ) -> None:
        self._steps = KeptSteps(model)
        self._ttft_seconds, self._tpot_seconds = ttft_p95_seconds, tpot_p95_seconds
        self._lengths, self._seed = lengths, seed
        answer = mean_length(lengths.output_p50, lengths.output_p95)
        prompt = mean_length(lengths.input_p50, lengths.input_p95)
        saturated = model.saturated_tokens_per_second(max(1, round(prompt)), max(1, round(answer)))
        self._saturated_rate = saturated / answer

    def worst_ratio(self, rate_per_second: float) -> float:
        """The p95 of TTFT or TPOT over its bound, whichever is more."""
        window_seconds = _RATE_REQUESTS / rate_per_second
        outcomes, _ = _play(self._steps, rate_per_second, window_seconds, self._lengths, self._seed)
        ttft = quantile(sorted(each.ttft_seconds for each in outcomes), 0.95)
        tpot = quantile(sorted(each.held_tpot_seconds for each in outcomes), 0.95)
        return max(ttft / self._ttft_seconds, tpot / self._tpot_seconds)

    def largest_rate(self) -> float:
        """See max_rate_within."""
        high = self._saturated_rate
        if high <= 0:
            return 0.0
        if self.worst_ratio(high) <= 1.0:
            return high
        low = least = high / 1_000
        while high / low > 1.02:
            middle = math.sqrt(low * high)
            if self.worst_ratio(middle) <= 1.0:
                low = middle
            else:
                high = middle
        # What holds at a higher rate holds at the least one too.
        return low if low > least or self.worst_ratio(least) <= 1.0 else 0.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """By index, as load generators do: the value at this share of the way."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _typical(windows: Sequence[Sequence[float]], share: float) -> float:
    """The median over windows of each one's quantile: one window near saturation may be far off."""
    return quantile(sorted(quantile(each, share) for each in windows), 0.5)


def _play(
    steps: KeptSteps, rate_per_second: float, window_seconds: float, lengths: Lengths, seed: int
) -> tuple[list[Outcome], int]:
    """Outcomes of a window, a shorter one where the rounds don't suffice for it; and the rounds that were run."""
    model, case = steps.model, steps.model.case
    pieces = rate_per_second * max(1, lengths.input_p50 // case.max_num_batched_tokens)
    window_seconds = min(window_seconds, max(1 / rate_per_second, _MOST_ROUNDS / pieces))
    rounds = 0
    while True:
        load = poisson_load(
            rate_per_second=rate_per_second,
            window_seconds=window_seconds,
            lengths=lengths,
            longest=min(case.max_model_len, case.kv_cache_tokens or case.max_model_len),
            seed=seed,
        )
        engine = Engine(model, load, steps)
        outcomes = engine.run(_MOST_ROUNDS)
        rounds += engine.rounds
        if engine.served:
            return outcomes, rounds
        if len(load) == 1:
            return [_alone(model, load[0])], rounds
        window_seconds *= max(1, len(outcomes)) / len(load) / 2


def _alone(model: SpeedModel, request: Request) -> Outcome:
    """What becomes of a request that has the engine for itself."""
    first = model.prefill_seconds(request.input_tokens)
    pace = model.decode_seconds(1, request.input_tokens + request.output_tokens / 2)
    gaps = request.output_tokens - 1
    return Outcome(
        ttft_seconds=first,
        tpot_seconds=pace if gaps else 0.0,
        end_seconds=request.arrival_seconds + first + gaps * pace,
        output_tokens=request.output_tokens,
    )
