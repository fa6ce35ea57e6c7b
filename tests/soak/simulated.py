"""The setting in the simulator, with chance by seed: routing, jitter of starts, and where in its period the loop is."""

from dataclasses import replace

import numpy as np

from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.simulation.fleet import FleetSettings, Routing, simulate
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.policies import OPERATOR
from llmservice_operator.simulation.score import score
from soak.setting import MOST_REPLICAS, Setting
from soak.trajectory import Course, course_of


def play(
    setting: Setting,
    *,
    seed: int,
    start_seconds: float,
    start_jitter: float,
    planned_start_seconds: float | None = None,
    keep: list[tuple[float, Decision]] | None = None,
) -> Course:
    """One run under the operator's rule. A Service's proxy chooses a pod at random for each connection."""
    rule = setting.service.policy(OPERATOR)
    assert isinstance(rule, OperatorPolicy)
    rule = replace(rule, planned_start_seconds=planned_start_seconds or start_seconds)
    phase = float(np.random.default_rng(seed).uniform(0.0, rule.period_seconds))
    load = replace(
        setting.load,
        arrival_seconds=setting.load.arrival_seconds + phase,
        seconds=setting.load.seconds + phase,
    )
    if keep is not None:
        rule.keep = lambda at, decision: keep.append((at, decision))
    fleet = FleetSettings(
        max_replicas=MOST_REPLICAS,
        start_seconds=(("start", start_seconds),),
        start_jitter=start_jitter,
        routing=Routing.RANDOM,
        drain_seconds=60.0,
        tail_seconds=60.0,
        seed=seed,
    )
    run = simulate(setting.tables, load, rule, fleet)
    points = [(point.at_seconds - phase, point.desired) for point in run.points]
    return course_of(
        [(-phase, run.points[0].provisioned), *points],
        seconds=setting.load.seconds,
        attainment=score(run, setting.service.objective).attainment,
    )
