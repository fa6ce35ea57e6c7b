"""What happened between two looks at a histogram: quantiles, shares and means of the samples in between."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
        """Of the samples; NaN where there are none."""
        return self.total / self.count if self.count > 0 else math.nan

    def quantile(self, share: float) -> float:
        """The value that this share of the samples is at or below, evenly spread within a bucket; NaN without samples.

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
        return low + (self.bounds[index] - low) * ((rank - below) / inside if inside > 0 else 1.0)

    def share_within(self, limit: float) -> float:
        """The share of samples at or below the limit, evenly spread within its bucket; NaN without samples.

        Of a bucket without end nothing counts as within.
        """
        if not self.count > 0:
            return math.nan
        index = bisect_left(self.bounds, limit)
        low, below = (self.bounds[index - 1], self.counts[index - 1]) if index else (0.0, 0.0)
        if math.isinf(self.bounds[index]):
            return below / self.count
        part = (limit - low) / (self.bounds[index] - low)
        return (below + (self.counts[index] - below) * part) / self.count


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
    counts = [math.fsum(column) for column in zip(*(part.counts for part in chosen), strict=True)]
    return Samples(bounds, counts, math.fsum(part.total for part in chosen))
