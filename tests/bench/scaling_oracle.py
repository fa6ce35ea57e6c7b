"""As few GPU-hours as a rule that knows the future takes: what the others are measured by.

    python -m bench.scaling_oracle [CASE ...]       from tests/

The rule has as many replicas as the busiest half minute of the next start time needs, at a share of a replica's rate
that is searched: the largest that still attains 99 %. It is no lower bound, since it knows rates and not lengths.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.scaling import HEADER, Cell, line
from bench.scaling_setup import Case, cases, first_replicas, profile_of, tables_of
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load
from llmservice_operator.simulation.observation import Observation
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.records import Floats
from llmservice_operator.simulation.score import Score, score
from llmservice_operator.simulation.tables import Tables

TARGET = 0.99
WINDOW_SECONDS = 30.0
LOWEST, HIGHEST, TRIES = 0.5, 2.0, 7
"""Shares of a replica's rate within its objectives, and how often the range is halved."""


@dataclass
class Clairvoyant:
    """Knows when requests come."""

    load: Load
    usable_per_second: float
    """Requests of one replica."""
    ahead_seconds: float
    name: str = "clairvoyant"
    period_seconds: float = 5.0
    _rates: Floats = field(init=False)

    def __post_init__(self) -> None:
        edges = np.arange(0.0, self.load.seconds + WINDOW_SECONDS + self.period_seconds, self.period_seconds)
        counts, _ = np.histogram(self.load.arrival_seconds, bins=edges)
        width = round(WINDOW_SECONDS / self.period_seconds)
        self._rates = np.convolve(counts, np.ones(width))[: len(counts)] / WINDOW_SECONDS

    def step(self, seen: Observation) -> int:
        """For the busiest window until a pod that is ordered next could be ready."""
        begin = int(seen.metrics_seconds / self.period_seconds)
        end = begin + int((self.ahead_seconds + WINDOW_SECONDS) / self.period_seconds) + 1
        part = self._rates[begin:end]
        return int(np.ceil(part.max() / self.usable_per_second)) if len(part) else 0


def search(case: Case, *, start_seconds: float = 120.0, seed: int = 0) -> tuple[float, Score]:
    """(share, score) of the largest share that attains the target; of the lowest one if none does."""
    load = case.load(seed)
    settings = FleetSettings(
        min_replicas=case.min_replicas,
        max_replicas=case.max_replicas,
        initial_replicas=first_replicas(case, load),
        start_seconds=(("start", start_seconds),),
        seed=seed,
    )

    known = _as_sent(load, tables_of(case.service), settings)

    def play(share: float) -> Score:
        usable = share * profile_of(case.service).engine_requests_per_second
        rule = Clairvoyant(known, usable, ahead_seconds=start_seconds * (1.0 + settings.start_jitter))
        return score(simulate(tables_of(case.service), load, rule, settings), case.service.objective)

    low, high = LOWEST, HIGHEST
    best = (low, play(low))
    for _ in range(TRIES):
        middle = (low + high) / 2.0
        found = play(middle)
        if found.attainment >= TARGET:
            low, best = middle, (middle, found)
        else:
            high = middle
    return best


def _as_sent(load: Load, tables: Tables, settings: FleetSettings) -> Load:
    """Where a stage waits for the last one's answers: when its requests come if there are as many pods as may be."""
    if not load.waits:
        return load
    full = replace(settings, initial_replicas=settings.max_replicas)
    run = simulate(tables, load, Static(settings.max_replicas), full)
    sent = run.requests["ready"] - run.half_request_seconds
    return replace(load, arrival_seconds=sent, waits=(), seconds=float(sent[-1]))


def main(names: Sequence[str]) -> int:
    """Prints one row a case."""
    print(HEADER)
    for case in cases():
        if names and case.name not in names:
            continue
        share, found = search(case)
        cell = Cell(
            case=case.name,
            policy=f"clairvoyant at {share:.2f}",
            start_seconds=120.0,
            scores=(found,),
            gpu_hours=(found.replica_hours * case.service.ranks,),
            cpu_seconds=0.0,
        )
        print(line(cell), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
