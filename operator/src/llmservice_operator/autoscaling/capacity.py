"""What one replica can take within its objectives, behind one interface."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from llmservice_operator.perfmodel.arrivals import mean_length
from llmservice_operator.perfmodel.open_loop import Lengths, Tries, max_rate_within
from llmservice_operator.perfmodel.speed import SpeedModel

_GRID = 1.5
"""Ratio of neighbouring lengths on the grid: between them the logarithm of the capacity is nearly straight."""
CURVE_SHARES = (0.6, 0.75, 0.9, 1.0)
"""Of the capacity, at which the latency is worked out too."""
_LEAST_STEEPNESS = 1.0
"""Of the latency's logarithm over the load's: with less, 10 % of noise is more than 10 % of load."""
_LONGEST_SHARE = 0.98
"""Of what a replica holds: a mean that is rounded is still within."""
_MOST_KEPT = 256
"""Grid points; a day's traffic of one service sees a few dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthMix:
    """The requests of a service: means in tokens, and the share of prompt tokens found in the prefix cache."""

    input_tokens: float
    output_tokens: float
    cached_share: float = 0.0

    @property
    def computed_input_tokens(self) -> float:
        """Prompt tokens that are computed; at least one is."""
        return max(1.0, self.input_tokens * (1.0 - self.cached_share))

    def within(self, longest: int) -> "LengthMix":
        """The same in proportion where it is more than one request can have: then what told of it is wrong."""
        tokens = self.input_tokens + self.output_tokens
        if tokens <= longest:
            return self
        share = longest / tokens
        return replace(
            self,
            input_tokens=max(1.0, share * self.input_tokens),
            output_tokens=max(1.0, share * self.output_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica can take."""

    requests_per_second: float
    """Within the objectives; where no replica reaches them, what it can take at the nearest that it reaches."""
    unreachable: str = ""
    """Which objective no replica reaches, and by how much it is missed; empty: all can be reached."""
    ratios: tuple[float, ...] = ()
    """The worse p95 over its objective at each of CURVE_SHARES of that rate; empty: not known."""

    def share_at(self, ratio: float) -> float | None:
        """The share of the rate at which the p95 is this much of its objective, by the model.

        None where it can't be told: outside the curve, and where the curve is so flat that noise would decide. Latency
        that hardly rises until the queue does says nothing of how far away that is.
        """
        points = zip(CURVE_SHARES, self.ratios, strict=False)
        for (low, below), (high, above) in pairwise(points):
            if not 0 < below <= ratio <= above:
                continue
            if math.log(above / below) < _LEAST_STEEPNESS * math.log(high / low):
                return None
            return low * math.pow(high / low, math.log(ratio / below) / math.log(above / below))
        return None


class CapacityModel(Protocol):
    """What one replica can take within its service's objectives. Asked each tick, so answers come from a table."""

    def capacity(self, mix: LengthMix) -> Capacity:
        """The capacity for these lengths."""

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        """Seconds from one token to the next with so many sequences that decode; None: the model can't tell."""

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        """Seconds that a prompt of these lengths adds to the steps that it is computed in; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCapacity:
    """From two rates of a saturated replica: a request takes its prompt's and its answer's share of the time."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    usable: float = 0.8
    """Share of the saturated rate at which queues are still short: 1/(1 - 0.8) = 5 service times in an M/M/1 queue."""

    def capacity(self, mix: LengthMix) -> Capacity:
        """See CapacityModel.capacity; objectives aren't looked at."""
        seconds = (
            mix.computed_input_tokens / self.prefill_tokens_per_second
            + mix.output_tokens / self.decode_tokens_per_second
        )
        return Capacity(requests_per_second=self.usable / seconds)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:  # noqa: ARG002 - the protocol's
        """See CapacityModel.itl_seconds."""
        return None

    def prompt_seconds(self, mix: LengthMix) -> float | None:  # noqa: ARG002 - the protocol's
        """See CapacityModel.prompt_seconds."""
        return None


class GriddedCapacity:
    """A slow capacity function, asked on a grid of lengths and kept; in between its logarithm is taken as straight.

    `prepare` tells which points a mix still needs, so that a caller can work them out elsewhere; `capacity` works out
    what is missing on the spot.
    """

    def __init__(
        self,
        evaluate: Callable[[int, int], Capacity],
        itl_seconds: Callable[[int, float], float] | None = None,
        prompt_seconds: Callable[[int], float] | None = None,
    ) -> None:
        """What is tabulated, and what is asked as it is.

        `evaluate`: (computed prompt tokens, answer's tokens) → capacity; `itl_seconds`: (batch, context);
        `prompt_seconds`: (computed prompt tokens).
        """
        self._evaluate = evaluate
        self._itl_seconds = itl_seconds
        self._prompt_seconds = prompt_seconds
        self._known: dict[Hashable, Capacity] = {}

    def prepare(self, mix: LengthMix) -> list[tuple[int, int]]:
        """The points of the grid that this mix needs and that aren't known."""
        return [point for point, _ in self._corners(mix) if point not in self._known]

    def learn(self, point: tuple[int, int], capacity: Capacity) -> None:
        """Keep the capacity at a point of the grid."""
        if len(self._known) >= _MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[point] = capacity

    def evaluate(self, point: tuple[int, int]) -> Capacity:
        """The capacity at a point of the grid, worked out: slow."""
        return self._evaluate(*(max(1, round(_GRID**step)) for step in point))

    def capacity(self, mix: LengthMix) -> Capacity:
        """See CapacityModel.capacity."""
        logarithm, unreachable = 0.0, ""
        ratios = [0.0] * len(CURVE_SHARES)
        is_curve = True
        for point, weight in self._corners(mix):
            known = self._known.get(point)
            if known is None:
                known = self.evaluate(point)
                self.learn(point, known)
            if known.requests_per_second <= 0:
                return known
            logarithm += weight * math.log(known.requests_per_second)
            unreachable = unreachable or (known.unreachable if weight >= 0.25 else "")
            is_curve = is_curve and bool(known.ratios)
            for place, ratio in enumerate(known.ratios):
                ratios[place] += weight * math.log(ratio)
        return Capacity(
            requests_per_second=math.exp(logarithm),
            unreachable=unreachable,
            ratios=tuple(map(math.exp, ratios)) if is_curve else (),
        )

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        """See CapacityModel.itl_seconds."""
        if self._itl_seconds is None or batch < 1:
            return None
        return self._itl_seconds(max(1, round(batch)), mix.input_tokens + mix.output_tokens / 2)

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        """See CapacityModel.prompt_seconds."""
        if self._prompt_seconds is None:
            return None
        return self._prompt_seconds(round(mix.computed_input_tokens))

    @staticmethod
    def _corners(mix: LengthMix) -> list[tuple[tuple[int, int], float]]:
        """The four points around the mix, with their weights."""
        rows = []
        for tokens in (mix.computed_input_tokens, mix.output_tokens):
            place = math.log(max(1.0, tokens)) / math.log(_GRID)
            low = math.floor(place)
            rows.append(((low, 1.0 - (place - low)), (low + 1, place - low)))
        return [
            ((row, column), row_weight * column_weight)
            for row, row_weight in rows[0]
            for column, column_weight in rows[1]
            if row_weight * column_weight > 0
        ]


def speed_capacity(
    model: SpeedModel,
    *,
    ttft_p95_seconds: float | None,
    tpot_p95_seconds: float | None,
    like: Lengths | None = None,
) -> GriddedCapacity:
    """The capacity by the speed model's open loop. Each point takes a second or two: see GriddedCapacity.prepare.

    Requests spread around a mean as those of `like` do (None: all alike). It matters: a long prompt holds up every
    answer beside it. Qwen3-8B on an H200, prompts of 2,000 tokens at the median and 6,000 at p95, objective 1 s: met
    at 6.1 requests a second, missed at 8.3 (tests/truth/h200/ramps); the model says 7.3 if they spread, 8.3 if not.

    Prompt tokens from the cache are left out of the prompt, and so of the context that decoding reads: with much of it
    cached the answer is a little high, which the correction by what is observed takes back.
    """
    ttft, tpot = ttft_p95_seconds or math.inf, tpot_p95_seconds or math.inf

    longest = min(model.case.max_model_len, model.case.kv_cache_tokens or model.case.max_model_len)

    def evaluate(input_tokens: int, output_tokens: int) -> Capacity:
        input_tokens, output_tokens = _held(input_tokens, output_tokens, longest)
        lengths = _spread(input_tokens, output_tokens, like)
        tries = Tries(model, ttft, tpot, lengths)
        rate = tries.largest_rate()
        if rate > 0:
            ratios = tuple(tries.worst_ratio(share * rate) for share in CURVE_SHARES)
            return Capacity(requests_per_second=rate, ratios=ratios if min(ratios) > 0 else ())
        idle_ttft = model.prefill_seconds(input_tokens)
        idle_tpot = model.decode_seconds(1, input_tokens + output_tokens / 2)
        words = _missed("TTFT", idle_ttft, ttft) or _missed("TPOT", idle_tpot, tpot)
        # What can be reached: the least that a request sees on an idle engine, doubled.
        rate = max_rate_within(
            model,
            ttft_p95_seconds=max(ttft, 2 * idle_ttft),
            tpot_p95_seconds=max(tpot, 2 * idle_tpot),
            lengths=lengths,
        )
        saturated = model.saturated_tokens_per_second(input_tokens, output_tokens) / output_tokens
        return Capacity(
            requests_per_second=rate or 0.5 * saturated,
            unreachable=words or "the objectives are missed at any rate, though each alone is within reach",
        )

    # A step of one token reads all weights, as one without a prompt does: the prompt adds what is more.
    least_seconds = model.prefill_seconds(1)
    return GriddedCapacity(
        evaluate, model.decode_seconds, lambda tokens: max(0.0, model.prefill_seconds(tokens) - least_seconds)
    )


def _held(input_tokens: int, output_tokens: int, longest: int) -> tuple[int, int]:
    """Means that a replica can hold: a point of the grid may lie beyond the longest request, though no mix does."""
    tokens = input_tokens + output_tokens
    if tokens <= longest:
        return input_tokens, output_tokens
    share = _LONGEST_SHARE * longest / tokens
    return max(1, int(share * input_tokens)), max(1, int(share * output_tokens))


def _spread(input_tokens: int, output_tokens: int, like: Lengths | None) -> Lengths:
    """Log-normal lengths of these means, that spread as the others do."""
    if like is None:
        return Lengths(input_p50=input_tokens, output_p50=output_tokens)

    def quantiles(mean: int, median: int, p95: int | None) -> tuple[int, int]:
        scaled = mean / mean_length(median, p95)
        return max(1, round(median * scaled)), max(1, round((p95 or median) * scaled))

    prompt = quantiles(input_tokens, like.input_p50, like.input_p95)
    answer = quantiles(output_tokens, like.output_p50, like.output_p95)
    return Lengths(input_p50=prompt[0], input_p95=prompt[1], output_p50=answer[0], output_p95=answer[1])


def _missed(name: str, idle_seconds: float, limit_seconds: float) -> str:
    if idle_seconds <= limit_seconds:
        return ""
    return (
        f"{name} p95 of {limit_seconds:.3g} s is below the {idle_seconds:.3g} s that one request takes on an idle "
        f"replica ({idle_seconds / limit_seconds:.1f} times as long)"
    )
