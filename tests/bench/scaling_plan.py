"""The cells of the comparison, named before any is played, and the runs that they are made of."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bench.scaling_cells import Conditions, is_kept, play
from bench.scaling_setup import Case, cases, fit_cases, profile_of
from bench.scaling_tuned import GRIDS, tuned_rule
from llmservice_operator.simulation.policies import POLICIES

DAYS = ("conv 2024-05-15", "conv 2024-05-12", "code 2024-05-15", "code 2024-05-12", "servegen day 8")
"""Arrivals come from recorded counts, and seeds hardly differ: fewer of them."""
LARGE = ("conv 2024-05-15", "code 2024-05-15")
"""Played with a peak of 32 replicas too."""
TUNING_SEED = 0
WRONG = (
    ("capacity believed 30 % too high", 1.3, 1.0),
    ("capacity believed 30 % too low", 0.7, 1.0),
    ("starts four times as long as planned", 1.0, 4.0),
)
"""Words, and how many times as long engines and starts take as every rule was told."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What is played."""

    name: str
    seeds: int
    day_seeds: int
    starts: tuple[float, ...]
    large: bool
    tuned: tuple[str, ...]
    """Cases,"""
    searched: tuple[str, ...]
    """and those whose oracle is searched for: eight runs each."""


_SHORT = ("llm-d ramp", "llm-d ramp, unwaited", "llm-d bursty", "azure2023 code", "mooncake")
QUICK = Matrix(
    name="quick", seeds=2, day_seeds=1, starts=(120.0,), large=False, tuned=("llm-d ramp",), searched=_SHORT
)
FULL = Matrix(
    name="full",
    searched=(*_SHORT, *DAYS),
    seeds=5,
    day_seeds=1,
    starts=(120.0, 10.0, 300.0),
    large=True,
    tuned=tuple(fit_cases()),
)


class Run(NamedTuple):
    """One cell's one seed."""

    case: Case
    policy: str
    under: Conditions
    setting: str = ""

    def play(self) -> None:
        """Keeps it on disk."""
        if not self.setting:
            play(self.case, self.policy, self.under)
            return
        grid = {str(each): each for each in GRIDS[self.policy][0]}
        profile = profile_of(self.case.service)
        play(
            self.case,
            self.policy,
            self.under,
            setting=self.setting,
            make=lambda: tuned_rule(self.policy, grid[self.setting], profile),
        )


def ramp_for(slowdown: float) -> Case:
    """llm-d's ramp with as many more replicas at most as slower engines need: the same could be attained."""
    ramp = next(case for case in cases() if case.name == "llm-d ramp")
    return replace(ramp, max_replicas=math.ceil(ramp.max_replicas * max(1.0, slowdown)))


def runs(matrix: Matrix) -> Iterator[Run]:
    """All cells but tuned rules on the reported days, which follow from what is tuned."""
    for start, case, policy in itertools.product(matrix.starts, cases(), POLICIES):
        for seed in range(matrix.day_seeds if case.name in DAYS else matrix.seeds):
            yield Run(case, policy, Conditions(start_seconds=start, seed=seed))
    for (_, slowdown, factor), policy, seed in itertools.product(WRONG, POLICIES, range(matrix.seeds)):
        ramp = ramp_for(slowdown)
        under = Conditions(peak=ramp.max_replicas, seed=seed, slowdown=slowdown, start_factor=factor)
        yield Run(ramp, policy, under)
    if matrix.large:
        for case, policy in itertools.product(cases(32), POLICIES):
            if case.name in LARGE:
                yield Run(case, policy, Conditions(peak=32))
    for name, peer in itertools.product(matrix.tuned, GRIDS):
        for setting in GRIDS[peer][0]:
            yield Run(fit_cases()[name], peer, Conditions(seed=TUNING_SEED), str(setting))


def is_tuned(name: str) -> bool:
    """Whether all settings were played."""
    case, under = fit_cases()[name], Conditions(seed=TUNING_SEED)
    return all(is_kept(case, peer, under, str(each)) for peer, (grid, _) in GRIDS.items() for each in grid)


def best_setting(name: str, peer: str) -> str:
    """Of those that attain 99 % on the day it is tuned on the cheapest; if none does, the one that attains most."""
    found = {
        str(setting): play(fit_cases()[name], peer, Conditions(seed=TUNING_SEED), setting=str(setting))
        for setting in GRIDS[peer][0]
    }
    enough = [setting for setting, played in found.items() if played.score.attainment >= 0.99]
    if enough:
        return min(enough, key=lambda setting: found[setting].gpu_hours)
    return max(found, key=lambda setting: found[setting].score.attainment)


def tuned_runs(matrix: Matrix) -> Iterator[Run]:
    """Each peer with its best setting on the reported day."""
    by_name = {case.name: case for case in cases()}
    for name, peer in itertools.product(matrix.tuned, GRIDS):
        yield Run(by_name[name], peer, Conditions(), best_setting(name, peer))
