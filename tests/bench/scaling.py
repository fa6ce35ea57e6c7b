"""`make bench-scaling`: the operator's rule and its peers' on the same loads, seeds and engines.

    python -m bench.scaling [--cases NAME ...] [--policies NAME ...] [--seeds N] [--start-seconds N ...] [--peak N]

from tests/. Every cell is printed, losses too. Validate first: `python -m bench.scaling_truth`.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from bench.scaling_setup import Case, Service, cases, first_replicas, speed_of, tables_of
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load
from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.policies import POLICIES
from llmservice_operator.simulation.policies import Service as Served
from llmservice_operator.simulation.score import Score, score


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One policy on one case."""

    case: str
    policy: str
    start_seconds: float
    scores: tuple[Score, ...]
    """By seed."""
    gpu_hours: tuple[float, ...]
    cpu_seconds: float

    def mean(self, figure: str) -> float:
        """Over seeds."""
        return statistics.mean(getattr(each, figure) for each in self.scores)


@cache
def served(service: Service, static_replicas: int, start_seconds: float) -> Served:
    """What rules are made for; what they share is worked out once."""
    return Served(
        speed=speed_of(service),
        objective=service.objective,
        lengths=service.lengths,
        static_replicas=static_replicas,
        start_seconds=start_seconds,
    )


def make_policy(name: str, service: Service, *, static_replicas: int, start_seconds: float) -> Policy:
    """One without memory."""
    return served(service, static_replicas, start_seconds).policy(name)


def play(
    case: Case,
    policy: str,
    *,
    seeds: Sequence[int],
    start_seconds: float,
    peak: int,
    slowdown: float = 1.0,
    start_factor: float = 1.0,
) -> Cell:
    """All seeds of a cell. `slowdown` of the engines and `start_factor` of their starts: no policy is told."""
    begin = time.process_time()
    scores, hours = [], []
    for seed in seeds:
        load: Load = case.load(seed)
        settings = FleetSettings(
            min_replicas=case.min_replicas,
            max_replicas=case.max_replicas,
            initial_replicas=peak if policy == "static" else first_replicas(case, load),
            start_seconds=(("start", start_seconds * start_factor),),
            seed=seed,
        )
        rule = make_policy(policy, case.service, static_replicas=peak, start_seconds=start_seconds)
        run = simulate(tables_of(case.service, slowdown), load, rule, settings)
        found = score(run, case.service.objective)
        scores.append(found)
        hours.append(found.replica_hours * case.service.ranks)
    return Cell(
        case=case.name,
        policy=policy,
        start_seconds=start_seconds,
        scores=tuple(scores),
        gpu_hours=tuple(hours),
        cpu_seconds=time.process_time() - begin,
    )


HEADER = (
    f"{'case':20} {'policy':22} {'start':>6} {'attained':>9} {'worst h':>8} {'replicas':>8} {'GPU-h':>9} "
    f"{'p99 TTFT':>9} {'starts':>7} {'turns/h':>7} {'aborted':>7} {'CPU s':>6}"
)


def line(cell: Cell) -> str:
    """One row of the table: means over seeds."""
    return (
        f"{cell.case:20} {cell.policy:22} {cell.start_seconds:5.0f}s {cell.mean('attainment'):9.2%} "
        f"{cell.mean('worst_hour'):8.1%} {cell.mean('mean_replicas'):8.2f} {statistics.mean(cell.gpu_hours):9.2f} "
        f"{cell.mean('ttft_p99_seconds'):8.2f}s {cell.mean('starts'):7.1f} "
        f"{cell.mean('reversals_per_hour'):7.2f} {cell.mean('aborted'):7.1f} {cell.cpu_seconds:6.1f}"
    )


def main(arguments: Sequence[str]) -> int:
    """Prints every cell as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--seeds", type=int, default=5)
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
    for cell in _cells(chosen, given):
        print(line(cell), flush=True)
    return 0


def _cells(chosen: Sequence[Case], given: argparse.Namespace) -> Iterator[Cell]:
    for start_seconds, case, policy in itertools.product(given.start_seconds, chosen, given.policies):
        yield play(
            case,
            policy,
            seeds=range(given.seeds),
            start_seconds=start_seconds,
            peak=given.peak,
            slowdown=given.slowdown,
            start_factor=given.start_factor,
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
