"""What replicas really take, learnt from what they do. By the model one takes 2 requests/s."""

from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.signals import Signal, SignalState
from unit.autoscaling.samples import NOW, inputs, ok, signals, watched
from unit.autoscaling.world import FixedCapacity


def test_a_miss_lowers_the_capacity_to_less_than_what_was_served() -> None:
    """5/s on three replicas is 1.67 each, and one is thought to take 2; a tenth a window under an even load."""
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))

    assert decide(inputs(signals=missing), watched(), NOW).correction == pytest.approx(0.9)


def test_a_queue_throughout_the_window_lowers_it_by_a_fifth() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8), waiting=ok(30.0))
    queued = watched(queueing_since=NOW - 90.0)

    assert decide(inputs(signals=missing), queued, NOW).correction == pytest.approx(0.8)


def test_a_burst_teaches_nothing_of_the_capacity() -> None:
    burst = signals(
        5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8), waiting=ok(30.0), arrivals_per_second=ok(9.0)
    )

    assert decide(inputs(signals=burst), watched(queueing_since=NOW - 10.0), NOW).correction == 1.0


def test_a_miss_is_not_learnt_from_while_the_fleet_changes() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))
    decision = decide(inputs(signals=missing), watched(ready_since=NOW - 30.0), NOW)

    assert decision.correction == 1.0


def test_a_miss_at_hardly_any_load_is_not_for_load() -> None:
    """One slow client or a cold cache: no number of replicas mends it."""
    slow = signals(0.5, ttft_p95_seconds=ok(5.0))
    decision = decide(inputs(signals=slow, min_replicas=3), watched(), NOW)

    assert (decision.slo_met, decision.desired, decision.correction) == (False, 3, 1.0)


def test_capacity_that_was_shown_is_believed_step_by_step() -> None:
    """3/s each within half of the objective, where 2 were thought possible."""
    shown = signals(
        9.0,
        completions_per_second=ok(9.0),
        input_tokens_per_second=ok(9000.0),
        generated_tokens_per_second=ok(1800.0),
    )

    assert decide(inputs(signals=shown), watched(), NOW).correction == pytest.approx(1.0 + 0.2 * (1.5 - 1.0))


class Paced(FixedCapacity):
    """Steps of 20 ms and prompts of 100 ms, if the engine keeps the model's pace."""

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        return 0.02

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        return 0.1


def paced(itl_seconds: float, load: float = 3.0, seconds: float = 900.0) -> Decision:
    """The decision after so long at a low load, with so much between tokens."""
    given = inputs(
        signals=signals(load, itl_mean_seconds=ok(itl_seconds)), capacity=Paced(2.0), min_replicas=3
    )
    state = watched()
    for tick in range(int(seconds / 5)):
        decision = decide(given, state, NOW + 5 * tick)
        state = decision.state
    return decision


@pytest.mark.parametrize(
    ("slowdown", "factor", "seconds"),
    [
        (1.0, 1.0, 900.0),
        (1.3, 1.0 / 1.3, 900.0),
        (0.7, 1.0 / 0.7, 7200.0),
        (1.03, 1.0, 900.0),
        (0.97, 1.0, 7200.0),
    ],
)
def test_a_wrong_pace_is_found_out_at_half_of_the_load_and_within_5_percent_is_noise(
    slowdown: float, factor: float, seconds: float
) -> None:
    """One prompt a second each: of a second 0.1 s go to the prompt and 0.9 s to steps, times the slowdown."""
    decision = paced(itl_seconds=0.02 * slowdown / (1.0 - 0.1 * slowdown), seconds=seconds)

    assert decision.state.pace == pytest.approx(1.0 / slowdown, rel=0.01)
    assert decision.correction == pytest.approx(factor, abs=0.0 if factor == 1.0 else 0.16)


def test_a_higher_pace_is_believed_the_slower_the_less_there_is_to_do() -> None:
    """An H200 that kept 0.90 of the model's pace under load shows 0.96 with a third of it for four minutes."""
    state = watched(pace=0.9)
    itl = 0.02 / 0.96 / (1.0 - 0.1 / 0.96 * 0.67)
    given = inputs(signals=signals(2.0, itl_mean_seconds=ok(itl)), capacity=Paced(2.0), min_replicas=3)
    for tick in range(48):
        state = decide(given, state, NOW + 5 * tick).state

    assert state.pace < 0.92


def test_slower_steps_leave_less_room_within_the_same_objectives() -> None:
    """Capacity falls with the power 1.5 of a pace that is below 0.95."""
    itl = 0.02 * 1.5 / (1.0 - 0.1 * 1.5)

    assert paced(itl).correction == pytest.approx((1.05 / 1.5) ** 1.5, rel=0.01)


def test_the_pace_is_not_told_while_the_fleet_changes() -> None:
    slow = inputs(signals=signals(3.0, itl_mean_seconds=ok(0.05)), capacity=Paced(2.0))

    assert decide(slow, watched(ready_since=NOW - 30.0), NOW).correction == 1.0


@pytest.mark.parametrize(
    "name", ["itl_mean_seconds", "generated_tokens_per_second", "input_tokens_per_second"]
)
def test_the_pace_is_not_told_by_what_is_not_known(name: str) -> None:
    unknown_one = {name: Signal(0.05, SignalState.STALE, NOW)}
    slow = inputs(signals=replace(signals(3.0), **unknown_one), capacity=Paced(2.0))

    assert decide(slow, watched(), NOW).state.pace == 1.0


def test_the_correction_is_bounded() -> None:
    state = watched()
    given = inputs(signals=signals(5.0, ttft_p95_seconds=ok(9.0), waiting=ok(50.0)))
    for tick in range(500):
        state = decide(given, state, NOW + 5 * tick).state

    assert 0.5 <= state.correction <= 1.0
