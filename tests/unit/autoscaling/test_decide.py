"""`decide` as a whole: gaps, loss of metrics, other writers, words that cannot be meant.

One replica takes 2 requests/s.
"""

import math
from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.autoscaling.policy import ScalingPolicy
from llmservice_operator.autoscaling.signals import Signal, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.decisions import low, settled
from unit.autoscaling.samples import NOW, fleet, inputs, ok, signals, unknown, watched
from unit.autoscaling.world import FixedCapacity

# ── restart, clock, gaps ──


def test_the_first_decision_never_takes_a_replica() -> None:
    state, now = ScalerState(), NOW
    while now < NOW + 115:
        decision = decide(low(), state, now)
        state, now = decision.state, now + 5

        assert decision.desired == 3


@pytest.mark.parametrize("jump", [61.0, 3600.0, 86_400.0, -1.0, -3600.0])
def test_after_a_gap_or_a_jump_of_the_clock_watching_begins_anew(jump: float) -> None:
    ready_to_go_in = replace(settled(low(), watched()).state, in_at=0.0)
    now = ready_to_go_in.at + jump
    decisions = []
    state = ready_to_go_in
    for tick in range(23):
        decision = decide(low(), state, now + 5 * tick)
        decisions.append(decision.desired)
        state = decision.state

    assert set(decisions) == {3}


def test_a_clock_that_went_back_does_not_hold_for_ever() -> None:
    future = watched(
        at=NOW + 1e6, watched_since=NOW + 1e6, in_at=NOW + 1e6, out_since=NOW + 1e6, corrected_at=NOW + 1e6
    )

    assert settled(low(), future).desired == 2


# ── loss of everything, others, wrong words ──


@pytest.mark.parametrize("state", list(SignalState)[2:])
def test_without_metrics_the_service_stays_as_it_is(state: SignalState) -> None:
    decision = settled(inputs(signals=unknown(state)), watched())

    assert (decision.desired, decision.ruling, decision.metrics_available) == (3, "hold", False)


def test_what_is_left_of_the_metrics_can_ask_for_more() -> None:
    half = signals(9.0, arrivals_per_second=Signal(9.0, SignalState.STALE, NOW))

    assert decide(inputs(signals=half), watched(), NOW).desired == 5


def test_another_writer_is_left_alone_and_named() -> None:
    decision = settled(replace(low(), other_writer="HorizontalPodAutoscaler default/llm"), watched())

    assert (decision.desired, decision.ruling, decision.is_written) == (3, "other-writer", False)
    assert "HorizontalPodAutoscaler default/llm" in decision.reason


def test_when_the_other_writer_goes_watching_begins_anew() -> None:
    state = decide(replace(low(), other_writer="hpa"), watched(), NOW).state

    assert decide(low(), state, NOW + 5).desired == 3


def test_an_objective_out_of_reach_is_named_and_does_not_run_to_max() -> None:
    words = "TTFT p95 of 0.01 s is below the 0.3 s that one request takes on an idle replica"
    hopeless = inputs(
        signals=signals(5.0, ttft_p95_seconds=ok(0.5)),
        capacity=FixedCapacity(2.0, unreachable=words),
        objectives=Objectives(ttft_p95_seconds=0.01),
    )
    decision = settled(hopeless, watched())

    assert (decision.desired, decision.slo_met, decision.correction) == (3, False, 1.0)
    assert words in decision.reason
    assert decision.unreachable == words


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"objectives": Objectives(ttft_p95_seconds=0.0)}, "slo.ttft.p95 is 0.0"),
        ({"objectives": Objectives(tpot_p95_seconds=1e9)}, "slo.tpot.p95"),
        ({"objectives": Objectives(ttft_p95_seconds=math.nan)}, "slo.ttft.p95"),
        ({"min_replicas": 5, "max_replicas": 4}, "minReplicas is 5 and maxReplicas is 4"),
        ({"min_replicas": 0}, "minReplicas is 0"),
        ({"policy": ScalingPolicy(drain_seconds=0.0)}, "drain_seconds is 0.0"),
        ({"policy": ScalingPolicy(scale_in_utilization=0.96)}, "scale_in_utilization is 0.96"),
        ({"policy": ScalingPolicy(kv_limit=1.5)}, "kv_limit is 1.5"),
        ({"policy": ScalingPolicy(least_correction=1.5)}, "must have 1 between them"),
        ({"fleet": fleet(ready=-1)}, "ready is -1"),
        ({"fleet": fleet(planned_start_seconds=0.0)}, "planned_start_seconds is 0.0"),
    ],
)
def test_what_cannot_be_meant_is_named_and_changes_nothing(changes: dict[str, object], word: str) -> None:
    decision = decide(replace(inputs(signals=signals(100.0)), **changes), watched(), NOW)  # type: ignore[arg-type]

    assert (decision.desired, decision.ruling) == (3, "input")
    assert word in decision.reason


def test_no_load_and_no_capacity_is_no_error() -> None:
    decision = decide(inputs(signals=signals(5.0), capacity=FixedCapacity(0.0)), watched(), NOW)

    assert decision.desired == 7  # the pace


def test_a_decision_tells_each_steps_number() -> None:
    told = decide(inputs(signals=signals(14.0)), watched(), NOW)

    asked = {name: round(replicas, 2) for name, replicas in told.asked.items()}
    assert asked == {"forward": 7.55, "kv": 0.33, "pace": 7}
    assert (told.desired, told.current, told.ruling) == (7, 3, "pace")
