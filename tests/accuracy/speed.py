"""Predicted speed against measured speed, point by point.

    python -m accuracy speed            from tests/: tables, errors by leaving points out, targets
    python -m accuracy speed --fit      the constants fitted anew, beside the shipped ones

In-sample figures are of the shipped constants. Leaving out: the constants are fitted without a length, a batch, a
context (each at every number of ranks) or a whole run, and predict what was left out. A run left out is shown, not
judged: one rank says nothing of sums over ranks, two say little of the front end.
"""

import sys
from collections.abc import Callable, Sequence

from accuracy.speed_loads import FIGURES, Load, loads, public_loads
from accuracy.speed_points import (
    DECODE,
    PREFILL,
    PRIORS,
    Point,
    card_priors,
    constants_of,
    fit_constants,
    is_sure,
    mean_error,
    measured_points,
    predictions,
    public_points,
    served_points,
    values_of,
)
from llmservice_operator.perfmodel.speed import SpeedModel

TARGETS = {DECODE: 0.04, PREFILL: 0.10}
"""Mean absolute error of ITL and of TTFT, with what is predicted left out of the fit."""
LOAD_TARGET = 0.20
"""The same of TTFT's p95 under open load."""
_NAMES = {PREFILL: "TTFT", DECODE: "ITL"}


def main() -> int:
    """Prints it all; 1 if a target is missed."""
    if "--fit" in sys.argv:
        _print_fit()
        return 0
    points = measured_points()
    misses = [*_points_report(points), *_loads_report(points)]
    _served_report()
    _public_report()
    for miss in misses:
        print(f"MISSED: {miss}")
    return 1 if misses else 0


def _points_report(points: Sequence[Point]) -> list[str]:
    found = {
        "shipped": predictions(points),
        "batch or length out": _left_out(points, lambda point: (point.kind, point.tokens)),
        "context out": _left_out(points, lambda point: (point.kind, _context_class(point))),
        "run out": _left_out(points, lambda point: point.case.tensor_parallel_size),
    }
    print("Llama-3.1-8B, vLLM 0.26.0, H200; milliseconds; errors: " + ", ".join(found))
    for kind in (PREFILL, DECODE):
        for index, point in enumerate(points):
            if point.kind == kind:
                print(_point_line(point, [seconds[index] for seconds in found.values()]))
    misses = []
    for kind, target in TARGETS.items():
        chosen = [index for index, point in enumerate(points) if point.kind == kind]
        of_kind = [points[index] for index in chosen]
        means = {
            name: mean_error(of_kind, [seconds[index] for index in chosen]) for name, seconds in found.items()
        }
        shown = ", ".join(f"{name} {mean:.1%}" for name, mean in means.items())
        print(f"{_NAMES[kind]}: mean error {shown}; target {target:.0%}")
        misses += [
            f"{_NAMES[kind]}, {name}: {mean:.1%} > {target:.0%}"
            for name, mean in means.items()
            if mean > target and name != "run out"
        ]
    print()
    return misses


def _context_class(point: Point) -> int:
    """Contexts of a prompt length that was measured; a prompt's own length stands for its."""
    return round(point.context / 1000) if point.kind == DECODE else point.tokens


def _left_out(points: Sequence[Point], key: Callable[[Point], object]) -> list[float]:
    """Each point predicted by constants that were fitted without the points of its key."""
    found = [0.0] * len(points)
    for fold in dict.fromkeys(map(key, points)):
        constants = constants_of(fit_constants([point for point in points if key(point) != fold]))
        chosen = [index for index, point in enumerate(points) if key(point) == fold]
        predicted = predictions([points[index] for index in chosen], constants)
        for index, seconds in zip(chosen, predicted, strict=True):
            found[index] = seconds
    return found


def _point_line(point: Point, found: Sequence[float]) -> str:
    what = (
        f"prompt {point.tokens:6,}" if point.kind == PREFILL else f"{point.tokens:4} x {point.context:6,.0f}"
    )
    errors = " ".join(f"{each / point.seconds - 1:+7.1%}" for each in found)
    return (
        f"  TP{point.case.tensor_parallel_size} {what:14} measured {point.seconds * 1e3:8.2f} "
        f"predicted {found[0] * 1e3:8.2f} {errors}"
    )


def _loads_report(points: Sequence[Point]) -> list[str]:
    """With the shipped constants, and each run by constants that were fitted to the other run alone."""
    shipped = list(loads({1: None, 2: None}))
    other_run = {
        ranks: constants_of(
            fit_constants([point for point in points if point.case.tensor_parallel_size != ranks])
        )
        for ranks in (1, 2)
    }
    print("Open loads on H200; seconds, measured > predicted")
    for load in shipped:
        print(_load_line(load))
    misses = []
    for name, found in (("shipped", shipped), ("fitted to the other run", list(loads(other_run)))):
        means = {figure: sum(abs(load.error(figure)) for load in found) / len(found) for figure in FIGURES}
        print(f"  {name}: mean error " + ", ".join(f"{figure} {mean:.1%}" for figure, mean in means.items()))
        if means["ttft_p95"] > LOAD_TARGET:
            misses.append(f"p95 TTFT under load, {name}: {means['ttft_p95']:.1%} > {LOAD_TARGET:.0%}")
    print()
    return misses


def _load_line(load: Load) -> str:
    figures = "  ".join(
        f"{figure} {load.measured[figure]:.4f} > {load.predicted[figure]:.4f} ({load.error(figure):+.0%})"
        for figure in FIGURES
    )
    return f"  TP{load.ranks} {load.name:12} {load.rate_per_second:5.1f}/s  {figures}"


def _served_report() -> None:
    points = served_points()
    found = predictions(points)
    print("Other models on one H200, over HTTP: shipped constants; in brackets what isn't sure")
    for point, seconds in zip(points, found, strict=True):
        line = (
            f"{point.case.model.num_layers} x {point.case.model.hidden_size} {_point_line(point, [seconds])}"
        )
        print(f"  {line}" if is_sure(point) else f"  ({line})")
    for kind in (PREFILL, DECODE):
        chosen = [point for point in points if point.kind == kind and is_sure(point)]
        print(f"{_NAMES[kind]}: mean error {mean_error(chosen, predictions(chosen)):.1%} of {len(chosen)}")
    print()


def _public_report() -> None:
    print("Public runs, every request at its time; seconds, measured > predicted")
    for load in public_loads():
        print(_load_line(load))
    print("aiconfigurator 0.12.0, the card's time alone: mean difference of the shipped constants")
    points = public_points()
    for case in {id(point.case): point.case for point in points}.values():
        for kind in (PREFILL, DECODE):
            chosen = [point for point in points if point.case is case and point.kind == kind]
            print(
                f"  {case.model.hidden_size:5} x {case.model.num_layers} {case.accelerator.name:16} "
                f"TP{case.tensor_parallel_size} {_NAMES[kind]:4} {mean_error(chosen, predictions(chosen)):.1%}"
            )
    print()


def _print_fit() -> None:
    hopper = fit_constants(measured_points())
    _print_constants("Hopper and host, from h200_speed.json", measured_points(), hopper)
    for accelerator in ("nvidia-a100-80gb", "nvidia-l40s"):
        points = [point for point in public_points() if point.case.accelerator.name == accelerator]
        found = fit_constants(points, card_priors(hopper))
        _print_constants(f"{accelerator}, from aiconfigurator", points, found)


def _print_constants(title: str, points: Sequence[Point], found: dict[str, float]) -> None:
    shipped = values_of(SpeedModel(points[0].case).constants)
    print(title)
    for name, value in found.items():
        print(f"  {name:24} {value:.4g}  shipped {shipped[name]:.4g}  prior {PRIORS[name].value:.4g}")
    for kind in (PREFILL, DECODE):
        chosen = [point for point in points if point.kind == kind]
        print(f"  {_NAMES[kind]} {mean_error(chosen, predictions(chosen, constants_of(found))):.1%}")


if __name__ == "__main__":
    raise SystemExit(main())
