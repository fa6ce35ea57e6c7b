"""Replicas over time, and how far two courses of them are apart. Pure."""

import bisect
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Number = TypeVar("Number", int, float)
GRAIN_SECONDS = 5.0
MOST_SHIFT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Of one run: the wanted number of replicas from each time on, and what its clients had."""

    changes: tuple[tuple[float, int], ...]
    """(seconds from the load's begin, replicas), the first at 0."""
    seconds: float
    attainment: float
    starts: tuple[float, ...] = ()
    """Seconds that each replica took from its creation to ready."""

    def at(self, seconds: float) -> int:
        """Wanted then; before the begin as at the begin."""
        place = bisect.bisect_right([at for at, _ in self.changes], seconds)
        return self.changes[max(0, place - 1)][1]

    @property
    def sampled(self) -> list[int]:
        """Every few seconds."""
        return [self.at(step * GRAIN_SECONDS) for step in range(int(self.seconds / GRAIN_SECONDS))]

    @property
    def mean(self) -> float:
        """Replicas, over the load's time."""
        return statistics.fmean(self.sampled)

    @property
    def outs(self) -> int:
        """Decisions for more."""
        return sum(after > before for (_, before), (_, after) in itertools.pairwise(self.changes))

    @property
    def ins(self) -> int:
        """Decisions for fewer."""
        return sum(after < before for (_, before), (_, after) in itertools.pairwise(self.changes))


def course_of(
    points: Sequence[tuple[float, int]], *, seconds: float, attainment: float, starts: Sequence[float] = ()
) -> Course:
    """From numbers of replicas seen in order of time, the last one before the begin counting as the begin's."""
    changes: list[tuple[float, int]] = []
    for at, replicas in points:
        if at >= seconds:
            break
        if at <= 0.0 or not changes:
            changes = [(0.0, replicas)]
        elif changes[-1][1] != replicas:
            changes.append((at, replicas))
    return Course(changes=tuple(changes), seconds=seconds, attainment=attainment, starts=tuple(starts))


def distance(one: Course, other: Course, *, shift_seconds: float = 0.0) -> float:
    """Mean absolute difference in replicas, with the other course so much later."""
    steps = int(min(one.seconds, other.seconds) / GRAIN_SECONDS)
    times = [step * GRAIN_SECONDS for step in range(steps)]
    return statistics.fmean(abs(one.at(at) - other.at(at - shift_seconds)) for at in times)


def best_shift(one: Course, other: Course) -> float:
    """By how many seconds the other must be later to be nearest; the smallest such shift."""
    most = int(MOST_SHIFT_SECONDS / GRAIN_SECONDS)
    shifts = [step * GRAIN_SECONDS for step in range(-most, most + 1)]
    return min(shifts, key=lambda shift: (distance(one, other, shift_seconds=shift), abs(shift)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The real course against simulated ones that differ by chance alone."""

    distance: float
    """Median over the simulated courses."""
    noise: float
    """The largest distance of two simulated courses."""
    shift_seconds: float
    """Median."""
    outs: tuple[int, int]
    """Least and most of the simulated ones."""
    ins: tuple[int, int]
    attainment: tuple[float, float]
    means: tuple[float, float]

    @property
    def is_within(self) -> bool:
        """Whether the real course is no further from the simulated ones than they are from each other."""
        return self.distance <= self.noise


def judge(real: Course, simulated: Sequence[Course]) -> Verdict:
    """Compare. Two simulated courses at least."""
    pairs = [distance(one, other) for one, other in itertools.combinations(simulated, 2)]
    return Verdict(
        distance=statistics.median(distance(real, each) for each in simulated),
        noise=max(pairs),
        shift_seconds=statistics.median(best_shift(real, each) for each in simulated),
        outs=_span([each.outs for each in simulated]),
        ins=_span([each.ins for each in simulated]),
        attainment=_span([each.attainment for each in simulated]),
        means=_span([each.mean for each in simulated]),
    )


def _span(values: Sequence[Number]) -> tuple[Number, Number]:
    return min(values), max(values)
