"""`decide`, step by step. One replica takes 2 requests/s; of three some 88 % of it is used, 82 % after a scale-in."""

import math
from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs, Objectives
from llmservice_operator.autoscaling.policy import ScalingPolicy
from llmservice_operator.autoscaling.signals import Signal, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.samples import NOW, fleet, idle, inputs, ok, signals, unknown, watched
from unit.autoscaling.world import FixedCapacity


def step(decision: Decision, name: str) -> float | None:
    return next(step.replicas for step in decision.steps if step.name == name)


def offered(replicas: float | None) -> float:
    """What so many replicas hold by square-root staffing, in replicas' capacity: 0.2 sqrt(n) of n stay free."""
    assert replicas is not None
    return replicas - 0.2 * math.sqrt(replicas)


def settled(given: Inputs, state: ScalerState, seconds: float = 700.0) -> Decision:
    """The decision after so many seconds in which nothing changes but what is decided is not carried out."""
    decision, now = decide(given, state, NOW), NOW
    while now < NOW + seconds:
        now += 5
        decision = decide(given, decision.state, now)
        if decision.desired < given.fleet.wanted:
            break
    return decision


# ── feed-forward ──


def test_needed_is_load_over_usable_capacity() -> None:
    decision = decide(inputs(signals=signals(12.0)), watched(), NOW)

    assert offered(step(decision, "forward")) == pytest.approx(12.0 / 2.0)


def test_more_than_the_pace_allows_waits_for_the_next_minute() -> None:
    """8 are needed, 3 + 4 at most in a minute."""
    decision = decide(inputs(signals=signals(14.0)), watched(), NOW)

    assert (decision.desired, decision.ruling) == (7, "pace")


def test_a_large_fleet_has_95_percent_of_its_capacity_used() -> None:
    large = inputs(signals=signals(190.0), fleet=fleet(100), max_replicas=200)

    assert step(decide(large, watched(), NOW), "forward") == pytest.approx(190.0 / (2.0 * 0.95))


def test_a_load_that_is_held_is_left_alone() -> None:
    assert decide(inputs(signals=signals(5.0)), watched(), NOW).desired == 3


def test_longer_requests_need_more() -> None:
    class ByTokens(FixedCapacity):
        def capacity(self, mix: LengthMix) -> Capacity:
            return replace(super().capacity(mix), requests_per_second=2000.0 / mix.input_tokens)

    longer = signals(5.0, input_tokens_mean=ok(2000.0))
    decision = decide(inputs(signals=longer, capacity=ByTokens(0.0)), watched(), NOW)

    assert offered(step(decision, "forward")) == pytest.approx(5.0)


def test_a_burst_counts_before_the_long_window_shows_it() -> None:
    burst = signals(5.0, arrivals_per_second=ok(9.0))

    assert offered(step(decide(inputs(signals=burst), watched(), NOW), "forward")) == pytest.approx(9.0 / 2.0)


def test_noise_of_the_short_window_is_no_burst() -> None:
    """Four standard deviations of a Poisson stream of 5/s over 30 s are 1.63/s."""
    noisy = signals(5.0, arrivals_per_second=ok(6.6))

    assert decide(inputs(signals=noisy), watched(), NOW).desired == 3


def ramp(per_minute: float, minutes: int = 20) -> Decision:
    """A load that grows from 2/s so much a minute, until it stands at 4/s; the last decision on the way."""
    state, decision = watched(), decide(inputs(signals=signals(2.0)), watched(), NOW)
    for tick in range(minutes * 12):
        load = min(4.0, 2.0 + per_minute * tick / 12)
        now = NOW + 5 * tick
        decision = decide(inputs(signals=signals(load)), state, now)
        state = decision.state
        if load >= 4.0:
            break
    return decision


def test_a_rising_load_is_met_where_it_will_be_when_a_replica_is_ready() -> None:
    """0.6/s a minute, a start of 100 s: another 1/s."""
    decision = ramp(0.6)

    assert offered(step(decision, "forward")) == pytest.approx((4.0 + 1.0) / 2.0, rel=0.05)


def test_a_steady_load_has_no_forecast() -> None:
    state = watched()
    for tick in range(100):
        decision = decide(inputs(signals=signals(4.0)), state, NOW + 5 * tick)
        state = decision.state

    assert offered(step(decision, "forward")) == pytest.approx(4.0 / 2.0)


def test_a_falling_load_is_no_forecast_of_less() -> None:
    state = watched()
    for tick in range(60):
        decision = decide(inputs(signals=signals(8.0 - tick / 12)), state, NOW + 5 * tick)
        state = decision.state

    assert offered(step(decision, "forward")) == pytest.approx((8.0 - 59 / 12) / 2.0)


# ── feedback ──


def test_a_queue_asks_for_what_drains_it() -> None:
    queueing = signals(5.0, waiting=ok(100.0))
    decision = decide(inputs(signals=queueing), watched(), NOW)

    # 3 replicas take 6/s, so the queue is empty before another one is ready; only that is waited for.
    assert step(decision, "backlog") is None
    assert decision.desired == 3


def test_a_queue_that_outlasts_a_start_asks_for_more() -> None:
    queueing = signals(6.5, waiting=ok(300.0))
    decision = decide(inputs(signals=queueing), watched(), NOW)

    left = 300.0 + (6.5 - 6.0) * 100.0 - 6.5 * 1.0
    by_load = step(decision, "forward")
    assert by_load is not None
    assert step(decision, "backlog") == pytest.approx(min(1.5 * by_load, (6.5 + left / 60.0) / 2.0))


def test_what_joins_soon_drains_the_queue_too() -> None:
    """Two that will be ready in 10 s are not ordered a second time."""
    queueing = signals(6.5, waiting=ok(300.0))
    coming = fleet(wanted=5, ready=3, starting=(NOW - 90.0, NOW - 90.0))
    decision = decide(inputs(signals=queueing, fleet=coming), watched(), NOW)

    assert decision.desired == 5


def test_held_requests_are_a_queue() -> None:
    held = signals(6.5, held_requests=ok(300.0))

    assert decide(inputs(signals=held), watched(), NOW).desired > 4


def test_waiting_tokens_count_where_they_are_told() -> None:
    """Ten prompts of 30,000 tokens each are 300 of the usual ones."""
    long = signals(6.5, waiting=ok(10.0), uncached_tokens_waiting=ok(300_000.0))
    same = signals(6.5, waiting=ok(300.0))

    by_tokens = decide(inputs(signals=long), watched(), NOW)
    assert step(by_tokens, "backlog") == step(decide(inputs(signals=same), watched(), NOW), "backlog")


def test_a_miss_of_the_objective_asks_for_one_more() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))
    decision = decide(inputs(signals=missing), watched(), NOW)

    assert (decision.slo_met, step(decision, "latency")) == (False, 4.0)
    assert decision.desired >= 4


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


def test_a_miss_while_new_replicas_start_waits_for_them() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))
    coming = fleet(wanted=4, ready=3, starting=(NOW - 10.0,))

    assert decide(inputs(signals=missing, fleet=coming), watched(), NOW).desired == 4


def test_a_miss_is_not_learnt_from_while_the_fleet_changes() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))
    decision = decide(inputs(signals=missing), watched(ready_since=NOW - 30.0), NOW)

    assert decision.correction == 1.0


def test_a_miss_at_hardly_any_load_is_not_for_load() -> None:
    """One slow client or a cold cache: no number of replicas mends it."""
    slow = signals(0.5, ttft_p95_seconds=ok(5.0))
    decision = decide(inputs(signals=slow, min_replicas=3), watched(), NOW)

    assert (decision.slo_met, decision.desired, decision.correction) == (False, 3, 1.0)


def test_a_p95_of_few_requests_is_none() -> None:
    few = signals(0.2, ttft_p95_seconds=ok(5.0))

    assert decide(inputs(signals=few), watched(), NOW).slo_met is None


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


# ── floors ──


def test_kv_use_is_a_floor() -> None:
    full = signals(1.0, kv_use_total=ok(3.2))
    decision = decide(inputs(signals=full), watched(), NOW)

    assert (decision.desired, decision.ruling) == (4, "kv")


def test_running_requests_are_a_floor() -> None:
    busy = signals(1.0, running=ok(25.0))

    assert settled(inputs(signals=busy, concurrency_limit=10.0), watched()).desired == 3


@pytest.mark.parametrize("step_bytes", [21.0, 40.0, 60.0, 1000.0])
def test_bandwidth_holds_replicas_by_its_part_that_grows_with_load(step_bytes: float) -> None:
    """20 bytes of a step are weights, read once a step whatever the batch; the rest grows as replicas get fewer."""
    moving = signals(1.0, bandwidth_use=ok(0.85), step_bytes=ok(step_bytes))
    needed = step(decide(inputs(signals=moving, weights_bytes_per_step=20.0), watched(), NOW), "bandwidth")

    assert needed is not None
    assert 0.85 * (20.0 + (step_bytes - 20.0) * 3 / needed) / step_bytes == pytest.approx(0.9)


def test_bandwidth_alone_never_adds() -> None:
    full = signals(1.0, bandwidth_use=ok(0.99))

    assert decide(inputs(signals=full), watched(), NOW).desired == 3


def test_bandwidth_that_is_all_weights_forbids_nothing() -> None:
    """An engine that decodes one sequence without a pause reads near its peak too."""
    weights = signals(1.0, bandwidth_use=ok(0.93), step_bytes=ok(20.2))

    assert settled(inputs(signals=weights, weights_bytes_per_step=20.0), watched()).desired == 2


def test_dram_activity_stands_in_for_the_engines_count() -> None:
    active = signals(1.0, dram_active=ok(0.75))

    assert step(decide(inputs(signals=active), watched(), NOW), "bandwidth") == pytest.approx(3 * 0.75 / 0.8)


# ── fewer ──


def low(**changes: Signal) -> Inputs:
    """A load that one replica holds."""
    return inputs(signals=signals(1.0, **changes))


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


# ── what starts, and what does not ──


def test_replicas_that_start_are_not_ordered_twice() -> None:
    coming = fleet(wanted=6, ready=3, starting=(NOW - 20,) * 3)

    assert decide(inputs(signals=signals(9.5), fleet=coming), watched(), NOW).desired == 6


@pytest.mark.parametrize("changes", [{"unschedulable": 2}, {"failing": 1}])
def test_none_is_added_while_some_cannot_start(changes: dict[str, int]) -> None:
    stuck = fleet(wanted=5, ready=3, **changes)
    decision = decide(inputs(signals=signals(12.0), fleet=stuck), watched(), NOW)

    assert (decision.desired, decision.ruling) == (5, "starts")


def test_replicas_that_cannot_start_can_be_given_up() -> None:
    stuck = fleet(wanted=5, ready=3, unschedulable=2)

    assert settled(inputs(signals=signals(1.0), fleet=stuck), watched()).desired == 3


def test_a_start_that_is_overdue_teaches_how_long_starts_take() -> None:
    slow = fleet(wanted=4, ready=3, starting=(NOW - 400,))

    assert decide(inputs(fleet=slow), watched(), NOW).start_seconds == 400.0


def test_measured_starts_replace_the_plan() -> None:
    measured = fleet(recent_starts=(500.0, 31.0, 30.0, 29.0, 32.0, 30.0))

    assert decide(inputs(fleet=measured), watched(), NOW).start_seconds == 30.0


# ── limits ──


def test_pace_is_four_or_double_a_minute() -> None:
    huge = inputs(signals=signals(1000.0), max_replicas=500)
    state, wanted, now = watched(), 3, NOW
    seen = {}
    while now < NOW + 130:
        decision = decide(
            replace(huge, fleet=fleet(wanted, ready=3, starting=(now,) * (wanted - 3))), state, now
        )
        state, wanted = decision.state, decision.desired
        seen[now - NOW] = wanted
        now += 5

    assert (seen[0], seen[55], seen[60], seen[115], seen[120]) == (7, 7, 14, 14, 28)


def test_max_is_kept_and_named() -> None:
    decision = decide(inputs(signals=signals(12.0), max_replicas=4), watched(), NOW)

    assert (decision.desired, decision.ruling) == (4, "max")
    assert "maxReplicas is 4" in decision.reason


def test_a_floor_above_max_is_named() -> None:
    full = inputs(signals=signals(1.0, kv_use_total=ok(3.9)), max_replicas=4)
    decision = decide(full, watched(), NOW)

    assert "maxReplicas is 4" in decision.reason
    assert "KV cache" in decision.reason


def test_a_lower_max_is_obeyed_at_once() -> None:
    """It is the user's word, not an argument."""
    given = inputs(signals=unknown(), max_replicas=2)

    assert (decide(given, watched(), NOW).desired, decide(given, watched(), NOW).ruling) == (2, "max")


def test_min_is_kept() -> None:
    assert settled(replace(low(), min_replicas=3), watched()).desired == 3
    assert decide(replace(low(), min_replicas=5), watched(), NOW).desired == 5


def test_a_quota_limits_what_is_added_and_takes_nothing() -> None:
    grown = inputs(signals=signals(8.0), quota_replicas=4)
    smaller = inputs(signals=signals(5.0), quota_replicas=2)

    assert (decide(grown, watched(), NOW).desired, decide(grown, watched(), NOW).ruling) == (4, "quota")
    assert decide(smaller, watched(), NOW).desired == 3


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
