"""llm-d's published ramp: what was published of it, what is simulated, and how far what its sources leave open goes.

    python -m bench.scaling_published       from tests/

The figures, 95.8 % at 5.93 replicas, stand in github.com/llm-d/llm-d guides/workload-autoscaling/slo-aware for its KEDA
loop, begun on the floor of three; and, with the run that they are of, in pull request 1376 of
github.com/llm-d/llm-d-autoscaling, docs/developer-guide/epp-saturation-benchmark.md: an analyser of WVA each 60 s,
begun with eight replicas that drain. That report tells more of the run, and each of it is printed beside ours: 515
misses of 12,480, four replicas "held through the lull" where 6/s begin, a p90 of 5.1 s in that stage, 6.55 replicas
over the first 42 minutes, and 85.6 % for the same configuration with an untrained predictor, where three were held.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from bench.scaling_predictor import Predicted, burnt_in
from bench.scaling_setup import QWEN, tables_of
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.loads import LLMD_RAMP, llmd_ramp
from llmservice_operator.simulation.observation import Policy
from llmservice_operator.simulation.peers.hpa import Actuator, Static
from llmservice_operator.simulation.peers.llmd import SLO_BEHAVIOR, SloAware
from llmservice_operator.simulation.peers.wva import WvaSlo
from llmservice_operator.simulation.score import attained, latencies, quantile, score

ATTAINMENT, REPLICAS = (0.958, 0.015), (5.93, 0.3)
"""Published, with the bounds that we hold ours to."""
FLOOR, PEAK = 3, 8
START_SECONDS = 100.0
"""About 100 s with its warm-up patch, which the run had; its plot says 105."""
START_JITTER = 0.1
OPEN_STARTS_SECONDS = (105.0, 110.0, 130.0)
"""Its other reports: 98 to 130 s (pull requests 1404 and 1438, issue 1412)."""
OPEN_SLOWDOWNS = (0.93, 0.97, 1.03, 1.05, 1.07)
"""What our own step times are off by, on average, where they can be measured."""
WINDOW_SECONDS = 42 * 60.0
CROSSING = 2
"""The stage with 6 requests a second."""
SEEDS = 8


@dataclass(frozen=True)
class Episode:
    """A protocol and a rule."""

    name: str
    first_replicas: int
    make: Callable[[int], Policy]
    """By seed."""


def _warm(seed: int) -> Policy:
    """An idle pool asked for the floor before its eight replicas were let go; the analyses' phase is anyone's guess."""
    actuator = Actuator(SLO_BEHAVIOR)
    actuator.remember(FLOOR, -1.0)
    phase = 15.0 * (seed % 4)
    return WvaSlo(QWEN.objective.ttft_seconds, QWEN.objective.tpot_seconds, phase, actuator=actuator)


def _keda(_: int) -> Policy:
    return SloAware(QWEN.objective.ttft_seconds, QWEN.objective.tpot_seconds)


def _trained(_: int) -> Policy:
    settings = FleetSettings(
        min_replicas=FLOOR,
        max_replicas=PEAK,
        start_seconds=(("start", START_SECONDS),),
        start_jitter=START_JITTER,
    )
    return Predicted(QWEN.objective.ttft_seconds, QWEN.objective.tpot_seconds, predictor=burnt_in(settings))


STATIC = Episode("static, eight", PEAK, lambda _: Static(PEAK))
THE_RUN = Episode("the run: WVA, from eight", PEAK, _warm)
THE_GUIDE = Episode("the guide: KEDA, from three", FLOOR, _keda)

A_PREDICTOR = Episode("the guide, a 0.9-quantile predictor", FLOOR, _trained)
"""Else what is predicted comes true: the two between which a predictor is."""


@dataclass(frozen=True)
class Told:
    """Of one simulated run."""

    attainment: float
    replicas: float
    window_replicas: float
    """Over the first 42 minutes."""
    crossing_replicas: int
    """Where 6/s begin."""
    misses: int
    crossing_p90_seconds: float


@cache
def play(
    episode: Episode, *, start_seconds: float = START_SECONDS, slowdown: float = 1.0, seeds: int = SEEDS
) -> tuple[Told, ...]:
    """So many runs, until the pool is back at its floor."""
    settings = FleetSettings(
        min_replicas=FLOOR,
        max_replicas=PEAK,
        initial_replicas=episode.first_replicas,
        start_seconds=(("start", start_seconds),),
        start_jitter=START_JITTER,
    )
    return tuple(
        _tell(
            simulate(
                tables_of(QWEN, slowdown),
                llmd_ramp(seed=seed),
                episode.make(seed),
                replace(settings, seed=seed),
            )
        )
        for seed in range(seeds)
    )


def _tell(run: Run) -> Told:
    sizes = [int(stage.rate_per_second * stage.seconds) for stage in LLMD_RAMP]
    first = sum(sizes[:CROSSING])
    crossing = slice(first, first + sizes[CROSSING])
    begin = float(run.requests["ready"][first])
    told = score(run, QWEN.objective)
    met = attained(run, QWEN.objective)
    return Told(
        attainment=told.attainment,
        replicas=told.mean_replicas,
        window_replicas=statistics.mean(
            point.provisioned for point in run.points if point.at_seconds <= WINDOW_SECONDS
        ),
        crossing_replicas=[point.provisioned for point in run.points if point.at_seconds <= begin][-1],
        misses=int(np.count_nonzero(~met)),
        crossing_p90_seconds=quantile(latencies(run)[0][crossing], 0.9),
    )


def mean(runs: Sequence[Told], figure: str) -> float:
    """Of that attribute."""
    return statistics.mean(getattr(each, figure) for each in runs)


def is_near(found: float, published: tuple[float, float]) -> bool:
    """Within the bounds."""
    return abs(found - published[0]) <= published[1]


def line(name: str, runs: Sequence[Told]) -> str:
    """A row of the table."""
    shares = sorted(each.attainment for each in runs)
    held = statistics.median(each.crossing_replicas for each in runs)
    return (
        f"{name:38}{mean(runs, 'attainment'):8.1%} {shares[0]:6.1%} to {shares[-1]:6.1%}"
        f"{mean(runs, 'replicas'):9.2f}{mean(runs, 'window_replicas'):9.2f}{held:9.0f}"
        f"{mean(runs, 'misses'):9.0f}{mean(runs, 'crossing_p90_seconds'):9.1f}"
    )


HEAD = f"{'':38}{'attained':>8} {'runs between':>16}{'replicas':>9}{'42 min':>9}{'at 6/s':>9}{'misses':>9}{'p90 s':>9}"


def table() -> Iterator[str]:
    """All episodes, and what is open."""
    yield HEAD
    yield f"{'published':38}{0.958:8.1%} {'':16}{5.93:9.2f}{6.55:9.2f}{4:9}{515:9}{5.1:9.1f}"
    yield f"{'published, predictor untrained':38}{0.856:8.1%} {'':16}{'':9}{6.51:9.2f}{3:9}"
    yield line(STATIC.name, play(STATIC, seeds=2))
    yield line(A_PREDICTOR.name, play(A_PREDICTOR))
    for episode in (THE_GUIDE, THE_RUN):
        yield line(episode.name, play(episode))
        for seconds in OPEN_STARTS_SECONDS:
            yield line(f"  started in {seconds:.0f} s", play(episode, start_seconds=seconds))
        for slowdown in OPEN_SLOWDOWNS:
            yield line(f"  steps take x {slowdown}", play(episode, slowdown=slowdown))


def span() -> tuple[float, float]:
    """Least and largest mean attainment of the guide's episode over what is open."""
    means = [mean(play(each), "attainment") for each in (THE_GUIDE, A_PREDICTOR)]
    means += [mean(play(THE_GUIDE, start_seconds=each), "attainment") for each in OPEN_STARTS_SECONDS]
    means += [mean(play(THE_GUIDE, slowdown=each), "attainment") for each in OPEN_SLOWDOWNS]
    return min(means), max(means)


if __name__ == "__main__":
    for each in table():
        print(each, flush=True)
