"""Fits the constants of speed to measured points: least squares of logarithms, with wide priors, no dependencies.

Each constant is positive and is fitted as its logarithm. A prior (a value and a spread as a factor) holds what the
points at hand can't tell, such as the interconnect where no point has two ranks; it weighs as much as one point that
is off by its spread.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_STEP = 1e-4
_ITERATIONS = 25


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a constant before any point: e^+-spread around `value`."""

    value: float
    spread: float


Residuals = Callable[[Mapping[str, float]], Sequence[float]]
"""Weighted residuals of the points for these constants: (log predicted - log measured) / expected error."""


def fit(
    priors: Mapping[str, Prior], residuals: Residuals, starts: Sequence[Mapping[str, float]] = ({},)
) -> dict[str, float]:
    """The constants with the least sum of squares (Levenberg and Marquardt), the best from several starts.

    A start says what it multiplies which prior's value by: where a time is the larger of two, the smaller has no slope,
    and a single start may stay on the wrong side.
    """
    names = list(priors)
    centers = [math.log(priors[name].value) for name in names]
    spreads = [priors[name].spread for name in names]

    def all_residuals(at: Sequence[float]) -> list[float]:
        points = residuals({name: math.exp(value) for name, value in zip(names, at, strict=True)})
        pulls = [
            (value - center) / spread for value, center, spread in zip(at, centers, spreads, strict=True)
        ]
        return [*points, *pulls]

    found = [
        _descend(
            all_residuals,
            [center + math.log(start.get(name, 1.0)) for name, center in zip(names, centers, strict=True)],
        )
        for start in starts
    ]
    best = min(found, key=lambda logs: _squares(all_residuals(logs)))
    return {name: math.exp(value) for name, value in zip(names, best, strict=True)}


def _descend(all_residuals: Callable[[Sequence[float]], list[float]], begin: Sequence[float]) -> list[float]:
    """Downhill from one start."""
    logs = list(begin)
    current = all_residuals(logs)
    damping = 1e-3
    for _ in range(_ITERATIONS):
        jacobian = [_column(all_residuals, logs, index, current) for index in range(len(logs))]
        step = _damped_step(jacobian, current, damping)
        moved = [value + change for value, change in zip(logs, step, strict=True)]
        tried = all_residuals(moved)
        if _squares(tried) < _squares(current):
            gain = _squares(current) - _squares(tried)
            logs, current, damping = moved, tried, damping / 5.0
            if gain < 1e-9 * _squares(current):
                break
        else:
            damping *= 10.0
    return logs


def _squares(values: Sequence[float]) -> float:
    return sum(each * each for each in values)


def _column(
    function: Callable[[Sequence[float]], list[float]],
    at: Sequence[float],
    index: int,
    base: Sequence[float],
) -> list[float]:
    moved = [value + _STEP * (place == index) for place, value in enumerate(at)]
    return [(after - before) / _STEP for after, before in zip(function(moved), base, strict=True)]


def _damped_step(
    jacobian: Sequence[Sequence[float]], residuals: Sequence[float], damping: float
) -> list[float]:
    """Solves (J'J + damping diag J'J) step = -J'r."""
    size = len(jacobian)
    matrix = [
        [sum(a * b for a, b in zip(jacobian[row], jacobian[column], strict=True)) for column in range(size)]
        for row in range(size)
    ]
    right = [-sum(a * b for a, b in zip(jacobian[row], residuals, strict=True)) for row in range(size)]
    for index in range(size):
        matrix[index][index] *= 1.0 + damping
        matrix[index][index] += 1e-12
    return solve(matrix, right)


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gauss's elimination with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for index in range(size):
        pivot = max(range(index, size), key=lambda row: abs(rows[row][index]))
        rows[index], rows[pivot] = rows[pivot], rows[index]
        for row in range(index + 1, size):
            factor = rows[row][index] / rows[index][index]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[index], strict=True)]
    answer = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][column] * answer[column] for column in range(index + 1, size))
        answer[index] = (rows[index][size] - known) / rows[index][index]
    return answer
