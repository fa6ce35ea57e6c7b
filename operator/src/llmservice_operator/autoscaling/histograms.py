"""What happened between two looks at a histogram: quantiles, shares and means of the samples in between.

Engines' buckets are wide (25 to 50 ms a token, 1 to 2.5 s to the first), and an objective lies within one more often
than not. Taken as evenly spread within their bucket, as Prometheus' histogram_quantile does, answers of 28 ms a token
have a p95 of 49. A histogram also has the sum of its samples, though, and how they lie in the other buckets: so those
of a bucket are spread as a log-normal with their mean is, as wide as the counts allow. Against what clients measured of
three engines on an H200 (tests/truth/h200/ramps), p95 over a minute is then off by 5 % for the time per token (18 to
50 % if evenly spread), and by 5 to 14 % for the time to the first (11 to 29 %).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
_DEVIATIONS = tuple(0.01 * 1.25**step for step in range(27))
"""Of the logarithm, from samples all alike to a p95 that is 230 times the median."""
_LIKELIHOOD_DROP = 1.92
"""What the logarithm of the likelihood may fall by within a 95 % interval (Wilks, 1938): half of chi-squared's 3.84."""
_LEAST_SHARE = 1e-12
_ROUNDING = 1e-3
"""Of sums of logarithms."""
_OUTWARDS = tuple(
    tuple(sorted(range(len(_DEVIATIONS)), key=lambda place, begin=begin: abs(place - begin)))  # type: ignore[misc]
    for begin in range(len(_DEVIATIONS))
)
"""Places of deviations by how far they are from one."""


@dataclass(frozen=True)
class Samples:
    """Samples by bucket."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; the last is infinity."""
    counts: Sequence[float]
    """Samples at or below each bound; fractions where a window begins between two looks."""
    total: float
    """Sum of the samples."""

    @property
    def count(self) -> float:
        """Number of samples."""
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float:
        """Of the samples; NaN where there are none. Where their sum can't be of these counts, the nearest that can."""
        if not self.count > 0:
            return math.nan
        least, most = self._extent
        return min(most, max(least, self.total)) / self.count

    def quantile(self, share: float) -> float:
        """The value that this share of the samples is at or below; NaN without samples.

        What is above the last finite bound counts as that bound, as in Prometheus' histogram_quantile.
        """
        if not self.count > 0:
            return math.nan
        rank = share * self.count
        index = bisect_left(self.counts, rank)
        if index >= len(self.bounds) - 1:
            return self.bounds[-2] if len(self.bounds) > 1 else math.nan
        low, below = (self.bounds[index - 1], self.counts[index - 1]) if index else (0.0, 0.0)
        inside = self.counts[index] - below
        part = (rank - below) / inside if inside > 0 else 1.0
        return self._shape.value(low, self.bounds[index], part)

    def share_within(self, limit: float) -> float:
        """The share of samples at or below the limit; NaN without samples.

        Of a bucket without end nothing counts as within.
        """
        if not self.count > 0:
            return math.nan
        index = bisect_left(self.bounds, limit)
        low, below = (self.bounds[index - 1], self.counts[index - 1]) if index else (0.0, 0.0)
        if math.isinf(self.bounds[index]):
            return below / self.count
        part = self._shape.part(low, self.bounds[index], limit)
        return (below + (self.counts[index] - below) * part) / self.count

    @cached_property
    def _filled(self) -> list[tuple[float, float, float]]:
        """(lower bound, upper bound, samples) of each bucket that has some."""
        filled = []
        low = below = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count > below:
                filled.append((low, bound, count - below))
            low, below = bound, count
        return filled

    @cached_property
    def _extent(self) -> tuple[float, float]:
        """The least and the most that the sum of such samples can be."""
        filled = self._filled
        return sum(low * count for low, _, count in filled), sum(high * count for _, high, count in filled)

    @cached_property
    def _shape(self) -> "_Even | _LogNormal":
        """How samples spread within a bucket."""
        least, most = self._extent
        return _widest(self._filled, self.mean) if least < self.total < most else _Even()


@dataclass(frozen=True, slots=True)
class _Even:
    """Samples evenly spread within their bucket: where their sum can't be of these counts, or isn't known."""

    def value(self, low: float, high: float, part: float) -> float:
        """The value that this part of a bucket's samples is at or below."""
        return low + (high - low) * part

    def part(self, low: float, high: float, limit: float) -> float:
        """The part of a bucket's samples at or below the limit."""
        return (limit - low) / (high - low)


@dataclass(frozen=True, slots=True)
class _LogNormal:
    """Samples whose logarithm has this mean and standard deviation."""

    middle: float
    deviation: float

    def below(self, value: float) -> float:
        """The share of all at or below the value."""
        if value <= 0:
            return 0.0
        return 0.5 * math.erfc((self.middle - math.log(value)) / (self.deviation * math.sqrt(2.0)))

    def value(self, low: float, high: float, part: float) -> float:
        """See _Even.value."""
        first, last = self.below(low), self.below(high)
        share = first + part * (last - first)
        if last - first < _LEAST_SHARE or not _LEAST_SHARE < share < 1.0 - _LEAST_SHARE:
            return _Even().value(low, high, part)
        value = math.exp(self.middle + self.deviation * _NORMAL.inv_cdf(share))
        return min(high, max(low, value))

    def part(self, low: float, high: float, limit: float) -> float:
        """See _Even.part."""
        first, last = self.below(low), self.below(high)
        if last - first < _LEAST_SHARE:
            return _Even().part(low, high, limit)
        return (self.below(limit) - first) / (last - first)


def _widest(filled: Sequence[tuple[float, float, float]], mean: float) -> _LogNormal:
    """Of this mean, as wide as these counts allow: what an objective is missed by is rather told too high.

    Deviations are tried from about the samples' own outwards, so that most are soon seen to be too unlikely.
    """
    middle = math.log(mean)
    buckets = _with_ceilings(filled)
    best, tried = -math.inf, []
    for place in _OUTWARDS[_nearest(buckets)]:
        deviation = _DEVIATIONS[place]
        likelihood = _likelihood(buckets, middle, deviation, best - _LIKELIHOOD_DROP - _ROUNDING)
        best = max(best, likelihood)
        tried.append((deviation, likelihood))
    widest = max(deviation for deviation, likelihood in tried if likelihood >= best - _LIKELIHOOD_DROP)
    return _LogNormal(middle - widest**2 / 2.0, widest)


_Bucket = tuple[float, float, float, float]
"""Logarithms of the bounds, samples, and the most that the logarithm of the likelihood of all buckets above can be."""


def _with_ceilings(filled: Sequence[tuple[float, float, float]]) -> list[_Bucket]:
    """Samples are never likelier than by their own shares (Gibbs)."""
    buckets: list[_Bucket] = []
    count_above = entropy_above = 0.0
    for low, high, count in reversed(filled):
        ceiling = entropy_above - count_above * math.log(count_above / 2.0) if count_above else 0.0
        buckets.append((_logarithm(low), _logarithm(high), count, ceiling))
        count_above, entropy_above = count_above + count, entropy_above + count * math.log(count)
    buckets.reverse()
    return buckets


def _likelihood(buckets: Sequence[_Bucket], middle: float, deviation: float, least: float) -> float:
    """The logarithm of the counts' likelihood but for what all deviations share; -inf if it can't be the least."""
    center, scale = middle - deviation**2 / 2.0, 1.0 / (deviation * math.sqrt(2.0))
    erfc, log, least_share = math.erfc, math.log, _LEAST_SHARE
    likelihood, bound, below = 0.0, math.nan, 0.0
    for low, high, count, ceiling in buckets:
        if low != bound:
            below = erfc((center - low) * scale)
        bound, above = high, erfc((center - high) * scale)
        share = above - below
        likelihood += count * log(share if share > least_share else least_share)  # noqa: FURB136 - max is slow here
        if likelihood + ceiling < least:
            return -math.inf
        below = above
    return likelihood


def _nearest(buckets: Sequence[_Bucket]) -> int:
    """The place among _DEVIATIONS of that of samples in the middle of their buckets, about."""
    weight = total = squares = 0.0
    for low, high, count, _ in buckets:
        middle = high if low == -math.inf else low if high == math.inf else 0.5 * (low + high)
        weight, total, squares = weight + count, total + count * middle, squares + count * middle * middle
    variance = max(0.0, squares / weight - (total / weight) ** 2)
    return min(len(_DEVIATIONS) - 1, bisect_left(_DEVIATIONS, math.sqrt(variance)))


@lru_cache(maxsize=1024)
def _logarithm(bound: float) -> float:
    return math.log(bound) if bound > 0 else -math.inf


NONE = Samples((), (), 0.0)


def merged(parts: Iterable[Samples]) -> Samples:
    """All samples together. Engines with other buckets than those with the most samples are left out."""
    groups: dict[tuple[float, ...], list[Samples]] = {}
    for part in parts:
        if part.bounds:
            groups.setdefault(part.bounds, []).append(part)
    if not groups:
        return NONE
    bounds, chosen = max(groups.items(), key=lambda item: sum(part.count for part in item[1]))
    if len(chosen) == 1:
        return chosen[0]
    counts = list(map(sum, zip(*(part.counts for part in chosen), strict=True)))
    return Samples(bounds, counts, math.fsum(part.total for part in chosen))
