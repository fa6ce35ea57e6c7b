"""The operator's rule and its peers' on the same loads, seeds and engines, cell by cell.

    python -m bench.scaling [--cases NAME ...] [--policies NAME ...] [--seeds N] [--start-seconds N ...] [--peak N]

from tests/. Every cell is printed as it is done, losses too; `bench.scaling_matrix` plays the whole comparison.
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scaling_cells import Conditions, Played, make_policy, play
from bench.scaling_setup import Case, cases
from llmservice_operator.simulation.policies import POLICIES

__all__ = ["HEADER", "Cell", "line", "make_policy"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One policy on one case."""

    case: str
    policy: str
    start_seconds: float
    played: tuple[Played, ...]
    """By seed."""

    def mean(self, figure: str) -> float:
        """Over seeds, of a score's figure."""
        return statistics.mean(getattr(each.score, figure) for each in self.played)

    @property
    def gpu_hours(self) -> float:
        """Mean over seeds."""
        return statistics.mean(each.gpu_hours for each in self.played)


HEADER = (
    f"{'case':20} {'policy':22} {'start':>6} {'attained':>9} {'of all':>8} {'worst h':>8} {'replicas':>8} {'GPU-h':>9} "
    f"{'p99 TTFT':>9} {'starts':>7} {'turns/h':>7} {'aborted':>7} {'CPU s':>6}"
)


def line(cell: Cell) -> str:
    """One row of the table: means over seeds."""
    return (
        f"{cell.case:20} {cell.policy:22} {cell.start_seconds:5.0f}s {cell.mean('attainment'):9.2%} "
        f"{cell.mean('attainment_of_all'):8.2%} {cell.mean('worst_hour'):8.1%} "
        f"{cell.mean('mean_replicas'):8.2f} {cell.gpu_hours:9.2f} "
        f"{cell.mean('ttft_p99_seconds'):8.2f}s {cell.mean('starts'):7.1f} "
        f"{cell.mean('reversals_per_hour'):7.2f} {cell.mean('aborted'):7.1f} "
        f"{statistics.mean(each.cpu_seconds for each in cell.played):6.1f}"
    )


def played_cell(case: Case, policy: str, seeds: Sequence[int], **under: float) -> Cell:
    """All seeds of a cell; `under` are fields of Conditions."""
    conditions = Conditions(**under)  # type: ignore[arg-type]
    return Cell(
        case=case.name,
        policy=policy,
        start_seconds=conditions.start_seconds,
        played=tuple(play(case, policy, Conditions(**{**under, "seed": seed})) for seed in seeds),  # type: ignore[arg-type]
    )


def main(arguments: Sequence[str]) -> int:
    """Prints every cell as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--start-seconds", type=float, nargs="*", default=[120.0])
    parser.add_argument("--peak", type=int, default=8)
    parser.add_argument("--slowdown", type=float, default=1.0, help="engines take so many times as long")
    parser.add_argument("--start-factor", type=float, default=1.0, help="starts take so many times as long")
    given = parser.parse_args(arguments)
    chosen = [case for case in cases(given.peak) if not given.cases or case.name in given.cases]
    if unknown := set(given.cases or ()) - {case.name for case in chosen}:
        print(f"no such case: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    print(HEADER)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for start_seconds, case, policy in itertools.product(given.start_seconds, chosen, given.policies):
        cell = played_cell(
            case,
            policy,
            seeds,
            start_seconds=start_seconds,
            peak=given.peak,
            slowdown=given.slowdown,
            start_factor=given.start_factor,
        )
        print(line(cell), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
