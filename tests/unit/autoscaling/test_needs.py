"""What asks for more replicas: the load, the queue, latency, and floors. One replica takes 2 requests/s."""

from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision
from unit.autoscaling.decisions import offered, settled, step
from unit.autoscaling.samples import NOW, fleet, inputs, ok, signals, watched
from unit.autoscaling.world import FixedCapacity

# ── the load ──


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


# ── queue and latency ──


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


def test_a_miss_while_new_replicas_start_waits_for_them() -> None:
    missing = signals(5.0, ttft_p95_seconds=ok(1.5), ttft_attainment=ok(0.8))
    coming = fleet(wanted=4, ready=3, starting=(NOW - 10.0,))

    assert decide(inputs(signals=missing, fleet=coming), watched(), NOW).desired == 4


def test_a_p95_of_few_requests_is_none() -> None:
    few = signals(0.2, ttft_p95_seconds=ok(5.0))

    assert decide(inputs(signals=few), watched(), NOW).slo_met is None


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


def test_bytes_that_no_load_moves_are_saturated_by_none() -> None:
    decision = decide(inputs(signals=signals(0.0, bandwidth_use=ok(0.0))), watched(), NOW)

    assert [each.note for each in decision.steps if each.name == "bandwidth"] == [
        "0.00 of the peak, 100% of it grows with load"
    ]


def test_bandwidth_that_is_all_weights_forbids_nothing() -> None:
    """An engine that decodes one sequence without a pause reads near its peak too."""
    weights = signals(1.0, bandwidth_use=ok(0.93), step_bytes=ok(20.2))

    assert settled(inputs(signals=weights, weights_bytes_per_step=20.0), watched()).desired == 2


def test_dram_activity_stands_in_for_the_engines_count() -> None:
    active = signals(1.0, dram_active=ok(0.75))

    assert step(decide(inputs(signals=active), watched(), NOW), "bandwidth") == pytest.approx(3 * 0.75 / 0.8)
