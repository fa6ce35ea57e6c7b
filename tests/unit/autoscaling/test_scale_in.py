"""When replicas are given up, and what forbids it.

One replica takes 2 requests/s; of three some 88 % of it is used, 82 % after a scale-in.
"""

import math
from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs, Objectives
from llmservice_operator.autoscaling.signals import Signal, SignalState
from unit.autoscaling.decisions import low, settled
from unit.autoscaling.samples import NOW, fleet, idle, inputs, ok, signals, watched


def quick_low() -> Inputs:
    """The same, where a start takes 30 s."""
    return replace(low(), fleet=fleet(recent_starts=(30.0,)))


def test_a_load_that_was_low_for_long_enough_takes_one() -> None:
    decision = settled(low(), watched())

    assert (decision.desired, decision.ruling) == (2, "scale-in")


def test_the_load_must_have_been_low_for_two_minutes() -> None:
    state, now = decide(inputs(signals=signals(5.0)), watched(), NOW).state, NOW
    while (decision := decide(low(), state, now)).desired == 3:
        state, now = decision.state, now + 5

    assert now - NOW == pytest.approx(120.0, abs=10)


def test_slow_starts_make_it_wait_for_as_long_as_one_takes() -> None:
    given = replace(low(), fleet=fleet(recent_starts=(300.0, 300.0)))
    state, now = decide(replace(given, signals=signals(5.0)), watched(), NOW).state, NOW
    while (decision := decide(given, state, now)).desired == 3:
        state, now = decision.state, now + 5

    assert now - NOW == pytest.approx(300.0, abs=10)


def test_a_scale_in_that_was_undone_makes_the_next_wait_twice_as_long() -> None:
    """240 s instead of 120 s; what was added is kept for three starts of 30 s anyway."""
    first = settled(quick_low(), watched())
    given, at = inputs(signals=signals(5.0), fleet=fleet(2, recent_starts=(30.0,))), first.state.at + 65
    undone = decide(given, replace(first.state, at=at - 5), at)
    state, now = replace(undone.state, ready=3), at
    while (decision := decide(quick_low(), state, now)).desired == 3:
        state, now = decision.state, now + 5

    assert undone.desired == 3
    assert now - at == pytest.approx(240.0, abs=10)


def test_caution_goes_again_in_two_hours() -> None:
    state, now = watched(caution=4.0), NOW
    for _ in range(1440):
        now += 5
        state = decide(inputs(), state, now).state

    assert state.caution == pytest.approx(1.0 + 3.0 / math.e, rel=0.01)


def test_after_a_scale_in_a_minute_passes_before_the_next() -> None:
    first = settled(low(), watched())
    given = replace(low(), fleet=fleet(2))

    at = first.state.at
    assert decide(given, first.state, at + 30).ruling == "guard-pace"
    state = first.state
    for seconds in range(5, 65, 5):
        decision = decide(given, state, at + seconds)
        state = decision.state
    assert decision.desired == 1


def test_the_rest_must_hold_the_load_with_room() -> None:
    """Two replicas take 3.2/s at 80 %; noise of two deviations over 120 s is 0.31/s at 2.9/s."""
    assert settled(inputs(signals=signals(3.0)), watched()).desired == 3
    assert settled(inputs(signals=signals(2.9)), watched()).desired == 2


def test_the_rest_must_hold_the_kv_cache_with_room() -> None:
    assert settled(low(kv_use_total=ok(1.7)), watched()).desired == 3
    assert settled(low(kv_use_total=ok(1.5)), watched()).desired == 2


def test_bandwidth_vetoes_a_scale_in() -> None:
    assert settled(low(bandwidth_use=ok(0.7)), watched()).desired == 3
    assert settled(low(bandwidth_use=ok(0.5)), watched()).desired == 2


REQUIRED = (
    "arrivals_per_second",
    "sustained_arrivals_per_second",
    "running",
    "waiting",
    "kv_use_total",
    "preemptions_per_second",
    "held_requests",
    "ttft_p95_seconds",
    "tpot_p95_seconds",
)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize(
    "state", [SignalState.MISSING, SignalState.STALE, SignalState.INVALID, SignalState.RESET]
)
def test_a_signal_that_is_not_ok_never_argues_for_fewer(name: str, state: SignalState) -> None:
    decision = settled(low(**{name: Signal(0.0, state, NOW)}), watched())

    assert (decision.desired, decision.metrics_available) == (3, False)


@pytest.mark.parametrize("name", ["bandwidth_use", "dram_active", "uncached_tokens_waiting"])
def test_an_optional_signal_that_is_wrong_never_argues_for_fewer(name: str) -> None:
    assert settled(low(**{name: Signal(0.0, SignalState.STALE, NOW)}), watched()).desired == 3


def test_no_traffic_is_a_reason_for_fewer() -> None:
    """Idle is measured: quantiles are undefined, and that is not unknown."""
    quiet = low(ttft_p95_seconds=idle(), tpot_p95_seconds=idle())

    assert settled(quiet, watched()).desired == 2


def test_an_objective_that_nobody_has_is_not_waited_for() -> None:
    given = replace(
        low(tpot_p95_seconds=Signal(None, SignalState.MISSING)), objectives=Objectives(ttft_p95_seconds=1.0)
    )

    assert settled(given, watched()).desired == 2


@pytest.mark.parametrize(
    ("changes", "guard"),
    [
        ({"waiting": ok(20.0)}, "guard-queue"),
        ({"preemptions_per_second": ok(0.1)}, "guard-preemptions"),
    ],
)
def test_signs_of_need_forbid_fewer(changes: dict[str, Signal], guard: str) -> None:
    given, state = low(**changes), watched()
    for tick in range(100):
        decision = decide(given, state, NOW + 5 * tick)
        state = decision.state

    assert (decision.desired, decision.ruling) == (3, guard)


def test_a_missed_objective_forbids_fewer() -> None:
    missing = signals(2.0, ttft_p95_seconds=ok(1.2))

    assert settled(inputs(signals=missing), watched()).desired >= 3


def test_fewer_only_if_what_is_ready_is_enough() -> None:
    given = inputs(signals=signals(3.0), fleet=fleet(wanted=4, ready=1, starting=(NOW,) * 3))
    state = watched(ready=1)
    for tick in range(15):
        decision = decide(given, state, NOW + 5 * tick)
        state = decision.state

    assert decision.desired == 4


def test_a_large_fleet_goes_down_by_half() -> None:
    given = inputs(signals=signals(1.0), fleet=fleet(20), max_replicas=30)

    assert settled(given, watched(ready=20)).desired == 10


def test_what_was_added_is_kept_for_three_starts() -> None:
    added = watched(out_at=NOW - 10.0)
    state, now = added, NOW
    while (decision := decide(low(), state, now)).desired == 3:
        state, now = decision.state, now + 5

    assert now - NOW == pytest.approx(300.0 - 10.0, abs=10)


def bursts(minutes_apart: int, times: int) -> tuple[Decision, float]:
    """Bursts of a minute that need four replicas, so long apart, and then none; the last decision, and its time."""
    state, now = watched(ready=4), NOW
    for tick in range(12 * minutes_apart * times):
        load = 6.5 if (tick // 12) % minutes_apart == 0 else 0.1
        four = inputs(signals=signals(load), fleet=fleet(4), min_replicas=4)
        state, now = decide(four, state, now).state, now + 5
    decision = decide(inputs(signals=signals(0.1), fleet=fleet(4)), state, now)
    while decision.desired == 4:
        now += 5
        decision = decide(inputs(signals=signals(0.1), fleet=fleet(4)), decision.state, now)
    return decision, now - NOW


def test_replicas_that_bursts_need_again_and_again_are_kept_for_twice_the_time_between() -> None:
    """Bursts in minutes 0, 8 and 16, each seen for one: up to 7 minutes between, so 14 after the last one's."""
    assert 17 + 10 <= bursts(8, 3)[1] / 60 <= 17 + 14


def test_one_burst_is_no_pattern() -> None:
    assert bursts(8, 1)[1] / 60 <= 8.1
