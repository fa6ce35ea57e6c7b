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
from bench.scaling_cells import Conditions, Played, fleet_settings, play
from bench.scaling_setup import Case, cases, profile_of, tables_of
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load
from llmservice_operator.simulation.observation import Observation
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.records import Floats

TARGET = 0.99
WINDOW_SECONDS = 30.0
LOWEST, HIGHEST, TRIES = 0.5, 8.0, 9
"""Shares of a replica's rate within its objectives, and how often the range is halved."""
START_JITTER = FleetSettings().start_jitter


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


def search(case: Case, under: Conditions = Conditions()) -> tuple[float, Played]:  # noqa: B008 (it is frozen)
    """The largest share that attains the target with what it came to; the lowest one if none does."""
    low, high = LOWEST, HIGHEST
    best = (low, _play(case, low, under))
    for _ in range(TRIES):
        middle = (low + high) / 2.0
        found = _play(case, middle, under)
        if found.score.attainment >= TARGET:
            low, best = middle, (middle, found)
        else:
            high = middle
    return best


def _play(case: Case, share: float, under: Conditions) -> Played:
    def make() -> Clairvoyant:
        usable = share * profile_of(case.service).engine_requests_per_second
        ahead = under.start_seconds * (1.0 + START_JITTER)
        return Clairvoyant(_as_sent(case, under), usable, ahead_seconds=ahead)

    return play(case, "clairvoyant", under, setting=str(share), make=make)


def _as_sent(case: Case, under: Conditions) -> Load:
    """Where a stage waits for the last one's answers: when its requests come if there are as many pods as may be."""
    load = case.load(under.seed)
    if not load.waits:
        return load
    settings = fleet_settings(case, load, under, is_static=False)
    full = replace(settings, initial_replicas=settings.max_replicas)
    run = simulate(tables_of(case.service), load, Static(settings.max_replicas), full)
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
            case=case.name, policy=f"clairvoyant at {share:.2f}", start_seconds=120.0, played=(found,)
        )
        print(line(cell), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
