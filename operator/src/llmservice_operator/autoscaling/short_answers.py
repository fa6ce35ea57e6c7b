"""The time per token of answers that are long enough to have one, from histograms that mix them with short ones.

An objective for the time per token holds for answers of 32 tokens and more: of eight tokens one that is late decides.
Engines count all answers alike, so where many are short the p95 of their histogram is that of the short ones' luck. An
answer's time per token is the mean of its gaps, and the fewer gaps the wider such means spread: as 1/sqrt(n) if gaps
were independent, not at all if all of an answer shared one fate. Half-way between the two, n to the power of -1/4,
is what simulated engines show under code completion (four of five answers shorter than 32 tokens), from a half to all
of their capacity: within 15 % of the p95 that the long answers alone have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.autoscaling.histograms import Samples
from llmservice_operator.perfmodel.batching import LEAST_ANSWER_TOKENS

_SHARED_FATE = 0.25
"""The exponent between independent gaps (1/2) and gaps that are all alike (0)."""


@dataclass(frozen=True, slots=True)
class LongAnswers:
    """What a histogram of the time per token would be of long answers alone."""

    samples: Samples
    """Of all answers."""
    center_seconds: float
    """About which they spread: the mean gap between tokens, in which each token counts the same."""
    narrower: float
    """The spread of long answers' logarithms over that of all; in (0, 1]."""

    def quantile(self, share: float) -> float:
        """The value that this share of long answers is at or below; NaN without samples."""
        value = self.samples.quantile(share)
        if self.narrower == 1.0 or not value > 0 or not self.center_seconds > 0:
            return value
        return self.center_seconds * math.pow(value / self.center_seconds, self.narrower)

    def share_within(self, limit: float) -> float:
        """The share of long answers at or below the limit; NaN without samples."""
        if self.narrower == 1.0 or not self.center_seconds > 0:
            return self.samples.share_within(limit)
        try:
            widened = self.center_seconds * math.pow(limit / self.center_seconds, 1.0 / self.narrower)
        except OverflowError:  # gaps of no time at all
            widened = math.inf
        return self.samples.share_within(widened)


def narrower_of(bounds: Sequence[float], counts: Sequence[float]) -> float:
    """How much narrower long answers spread than all, from the histogram of answers' lengths; 1 where it can't tell.

    `counts`: answers of at most so many tokens, by bound; the last bound is infinity.
    """
    every = long = every_inverse = long_inverse = 0.0
    low = below = 0.0
    for bound, count in zip(bounds, counts, strict=True):
        high, inside = (bound if bound < math.inf else 2.0 * max(low, 1.0)), count - below
        if inside > 0 and high > 1.0:  # an answer of one token has no gap
            begin = max(1.0, low)
            every += inside
            every_inverse += inside * _mean_inverse(begin, high)
            if high > LEAST_ANSWER_TOKENS:
                start = max(begin, float(LEAST_ANSWER_TOKENS))
                part = inside * (high - start) / (high - begin)
                long += part
                long_inverse += part * _mean_inverse(start, high)
        low, below = bound, count
    if not long > 0 or not every_inverse > 0:
        return 1.0
    return min(1.0, math.pow((long_inverse / long) / (every_inverse / every), _SHARED_FATE))


def _mean_inverse(low: float, high: float) -> float:
    """Of 1/n over lengths evenly spread between two."""
    return math.log(high / low) / (high - low)
