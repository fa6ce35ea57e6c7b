"""The operator's own decide in the simulated fleet."""

import pytest

from llmservice_operator.autoscaling.capacity import LengthMix, SimpleCapacity
from llmservice_operator.autoscaling.decision import Decision, Objectives
from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.operator import EPOCH_SECONDS, OperatorPolicy
from llmservice_operator.simulation.score import Objective, score
from unit.simulation.machines import even_load, tables

OBJECTIVE = Objective(ttft_seconds=1.0, tpot_seconds=0.05)


def operator(decisions: list[Decision] | None = None) -> OperatorPolicy:
    kept = decisions if decisions is not None else []
    return OperatorPolicy(
        capacity=SimpleCapacity(prefill_tokens_per_second=40_000.0, decode_tokens_per_second=4_000.0),
        expected_mix=LengthMix(input_tokens=1000, output_tokens=100),
        objectives=Objectives(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05),
        peak_bytes_per_second=4.8e12,
        planned_start_seconds=20.0,
        keep=lambda _, decision: kept.append(decision),
    )


def play(
    rate: float, *, faults: tuple[Fault, ...] = (), first: int = 1, seconds: float = 240.0
) -> tuple[Run, list[Decision]]:
    settings = FleetSettings(
        initial_replicas=first, start_seconds=(("start", 20.0),), start_jitter=0.0, faults=faults
    )
    decisions: list[Decision] = []
    return simulate(tables(), even_load(rate, seconds), operator(decisions), settings), decisions


def test_it_sees_the_load_and_scales_to_it() -> None:
    """30 requests/s at 16 a replica, 0.85 of which may be used."""
    run, _ = play(30.0)

    assert run.points[-1 - 36].desired == 3
    assert score(run, OBJECTIVE).aborted == 0


def test_what_it_observes_is_what_comes() -> None:
    _, decisions = play(20.0, first=2)

    later = next(each for each in decisions if each.state.at >= EPOCH_SECONDS + 150.0)
    forward = next(step for step in later.steps if step.name == "forward")
    assert "20.00 requests/s" in forward.note
    assert "1000 + 100 tokens" in forward.note


def test_a_load_that_stays_is_decided_on_four_times_a_minute() -> None:
    _, decisions = play(20.0, first=2)

    times = [each.state.at - EPOCH_SECONDS for each in decisions]
    assert [at for at in times if 120.0 <= at < 180.0] == [125.0, 140.0, 155.0, 170.0]


def test_a_queue_is_decided_on_at_each_look() -> None:
    """40 requests/s at 16 a replica, of which one serves: it takes until 30 s until another one is there."""
    _, decisions = play(40.0, first=1)

    times = [each.state.at - EPOCH_SECONDS for each in decisions]
    assert [at for at in times if at <= 30.0] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.EMPTY,
        FaultKind.NAN,
        FaultKind.FROZEN,
        FaultKind.RESET,
        FaultKind.GAP,
        FaultKind.HALF,
        FaultKind.CLOCK_JUMP,
    ],
)
def test_bad_metrics_never_take_a_replica_that_the_load_needs(kind: FaultKind) -> None:
    fault = Fault(kind=kind, at_seconds=120.0, seconds=300.0)
    run, _ = play(40.0, faults=(fault,), first=3, seconds=600.0)

    assert min(point.desired for point in run.points if point.at_seconds < 600.0) >= 3


@pytest.mark.parametrize("kind", [FaultKind.UNSCHEDULABLE, FaultKind.CRASH_LOOP])
def test_pods_that_never_start_are_not_multiplied(kind: FaultKind) -> None:
    fault = Fault(kind=kind, at_seconds=0.0, seconds=600.0)
    run, _ = play(40.0, faults=(fault,), first=1)

    assert sum(point.desired > point.provisioned for point in run.points) == 1
