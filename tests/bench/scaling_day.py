"""The worked day of operator/docs/scaling.md: every change of a day, and each hour's steps.

    python -m bench.scaling_day [HOURS]        from tests/

Azure's conversations of a Wednesday (2024-05-15), thinned to a peak of eight replicas; Qwen3-32B on two H100 each,
1 s to the first token and 50 ms for each further one at p95, starts of 120 s ± 30 %. The same seed gives the same day.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from bench.scaling_cells import make_policy
from bench.scaling_setup import Case, cases, first_replicas, tables_of
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.score import score

NAME = "conv 2024-05-15"
START_SECONDS = 120.0
HOUR_SECONDS = 3600.0


def worked_day(hours: float = 24.0) -> list[str]:
    """Its lines; of fewer hours, the first lines of it, without the last one, which is about the whole."""
    case: Case = next(each for each in cases() if each.name == NAME)
    load = case.load(0)
    rule = make_policy("operator", case.service, static_replicas=8, start_seconds=START_SECONDS)
    assert isinstance(rule, OperatorPolicy)
    lines: list[str] = []
    hour = 0

    def keep(now: float, decision: Decision) -> None:
        nonlocal hour
        if now >= hour * HOUR_SECONDS and now < hours * HOUR_SECONDS:
            hour += 1
            lines.append(_hour(now, decision))
        if decision.desired != decision.current and now < hours * HOUR_SECONDS:
            lines.append(_change(now, decision))

    rule.keep = keep
    seconds = min(load.seconds, hours * HOUR_SECONDS)
    settings = FleetSettings(
        min_replicas=case.min_replicas,
        max_replicas=case.max_replicas,
        initial_replicas=first_replicas(case, load),
        start_seconds=(("start", START_SECONDS),),
        tail_seconds=0.0,
    )
    run = simulate(tables_of(case.service), _first(load, seconds), rule, settings)
    if hours >= 24.0:
        found = score(run, case.service.objective)
        lines.append(
            f"{found.requests} requests, {found.attainment:.2%} within both objectives (worst hour "
            f"{found.worst_hour:.1%}), {found.replica_hours:.1f} replica-hours, {found.starts} starts, "
            f"{found.reversals_per_hour:.2f} reversals an hour"
        )
    return lines


def _first(load: Load, seconds: float) -> Load:
    count = int((load.arrival_seconds < seconds).sum())
    return replace(
        load,
        arrival_seconds=load.arrival_seconds[:count],
        prompt_tokens=load.prompt_tokens[:count],
        answer_tokens=load.answer_tokens[:count],
        cached_tokens=load.cached_tokens[:count],
        seconds=seconds,
    )


def _hour(now: float, decision: Decision) -> str:
    steps = ", ".join(
        f"{step.name} {step.replicas:.2f}" for step in decision.steps if step.replicas is not None
    )
    return (
        f"{_clock(now)}  {decision.current} replicas  {steps}; a replica takes "
        f"{decision.capacity_requests_per_second:.2f}/s times {decision.correction:.2f}"
    )


def _change(now: float, decision: Decision) -> str:
    return f"{_clock(now)}  {decision.current} -> {decision.desired}  {decision.ruling}: {decision.reason}"


def _clock(now: float) -> str:
    minutes, seconds = divmod(round(now), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def main(arguments: Sequence[str]) -> int:
    """Prints it."""
    print("\n".join(worked_day(float(arguments[0]) if arguments else 24.0)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
