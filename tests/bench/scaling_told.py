"""What being told wrong costs: the operator's rule on llm-d's ramp where its model is wrong, beside one that is told.

    python -m bench.scaling_told [SEEDS]        from tests/

Engines that are slower than thought hold less, and starts that take longer come later, whether or not a rule knows:
what the rule that knows misses too is the load's, and the rest is the error's.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.scaling_cells import Conditions, fleet_settings, make_policy
from bench.scaling_plan import WRONG, ramp_for
from bench.scaling_setup import tables_of
from llmservice_operator.autoscaling.capacity import Capacity, CapacityModel, LengthMix
from llmservice_operator.simulation.fleet import simulate
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.score import Score, score


@dataclass(frozen=True)
class Slower:
    """The model of an engine that takes so many times as long for everything."""

    model: CapacityModel
    slowdown: float

    def capacity(self, mix: LengthMix) -> Capacity:
        """See CapacityModel.capacity."""
        found = self.model.capacity(mix)
        return replace(found, requests_per_second=found.requests_per_second / self.slowdown)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        """See CapacityModel.itl_seconds."""
        seconds = self.model.itl_seconds(batch, mix)
        return None if seconds is None else seconds * self.slowdown

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        """See CapacityModel.prompt_seconds."""
        seconds = self.model.prompt_seconds(mix)
        return None if seconds is None else seconds * self.slowdown


def play(under: Conditions, *, is_told: bool) -> Score:
    """One run of the ramp."""
    case = ramp_for(under.slowdown)
    load = case.load(under.seed)
    told_seconds = under.start_seconds * (under.start_factor if is_told else 1.0)
    rule = make_policy("operator", case.service, static_replicas=under.peak, start_seconds=told_seconds)
    assert isinstance(rule, OperatorPolicy)
    if is_told:
        rule.capacity = Slower(rule.capacity, under.slowdown)
    settings = fleet_settings(case, load, under, is_static=False)
    return score(
        simulate(tables_of(case.service, under.slowdown), load, rule, settings), case.service.objective
    )


def main(arguments: Sequence[str]) -> int:
    """Prints two rows for each thing that may be wrong and each seed."""
    seeds = int(arguments[0]) if arguments else 2
    print(f"{'llm-d ramp':40} {'seed':>4} {'the rule is':>12} {'attained':>9} {'replicas':>8}")
    for words, slowdown, factor in WRONG:
        for seed in range(seeds):
            under = Conditions(seed=seed, slowdown=slowdown, start_factor=factor)
            for is_told in (False, True):
                found = play(under, is_told=is_told)
                told = "told" if is_told else "not told"
                print(f"{words:40} {seed:4} {told:>12} {found.attainment:9.2%} {found.mean_replicas:8.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
