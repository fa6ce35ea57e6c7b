"""The HorizontalPodAutoscaler and KEDA, against the rules of their source."""

import math

import pytest

from llmservice_operator.simulation.peers.hpa import (
    DEFAULT_BEHAVIOR,
    Actuator,
    Behavior,
    HpaPods,
    Limit,
    from_pods,
    from_sum,
    production_stack,
)
from unit.simulation.views import page, pods, seen


@pytest.mark.parametrize(
    ("total", "current", "wanted"),
    [(11.0, 2, 3), (10.9, 2, 2), (9.1, 2, 2), (8.9, 2, 2), (5.0, 2, 1), (0.0, 3, 0), (26.0, 1, 6)],
)
def test_an_external_metric_asks_for_the_sum_over_the_target(total: float, current: int, wanted: int) -> None:
    assert from_sum(total, 5.0, current) == wanted


def test_a_change_within_a_tenth_is_none() -> None:
    assert from_pods([5.4, 5.4], 0, 5.0, 2) == 2


def test_pods_without_a_metric_count_as_idle_on_the_way_up() -> None:
    """Two of four report 10 against 5: ceil((10 + 10 + 0 + 0) / 5) is what there is."""
    assert from_pods([10.0, 10.0], 2, 5.0, 4) == 4


def test_pods_without_a_metric_count_as_on_target_on_the_way_down() -> None:
    assert from_pods([1.0, 1.0], 2, 5.0, 4) == 3


def test_no_metric_changes_nothing() -> None:
    assert from_pods([], 3, 5.0, 3) == 3


def test_a_scale_up_is_at_most_four_pods_or_twice_in_15_s() -> None:
    assert Actuator(DEFAULT_BEHAVIOR).settle(50, seen(pods(2))) == 6
    assert Actuator(DEFAULT_BEHAVIOR).settle(50, seen(pods(9))) == 18


def test_a_second_scale_up_within_the_period_counts_from_its_begin() -> None:
    actuator = Actuator(DEFAULT_BEHAVIOR)
    actuator.settle(50, seen(pods(2), now=0.0))

    assert actuator.settle(50, seen(pods(6), now=14.0)) == 6


def test_a_scale_down_waits_for_300_s_of_lower_demand() -> None:
    actuator = Actuator(DEFAULT_BEHAVIOR)
    actuator.settle(4, seen(pods(4), now=0.0))

    assert actuator.settle(1, seen(pods(4), now=299.0)) == 4
    assert actuator.settle(1, seen(pods(4), now=301.0)) == 1


def test_a_slow_drain_takes_one_pod_per_period() -> None:
    behavior = Behavior(down_window_seconds=0.0, down=(Limit(period_seconds=120.0, pods=1),))
    actuator = Actuator(behavior)

    assert actuator.settle(1, seen(pods(8), now=0.0)) == 7
    assert actuator.settle(1, seen(pods(7), now=60.0)) == 7
    assert actuator.settle(1, seen(pods(7), now=121.0)) == 6


def test_an_up_window_takes_the_least_that_was_asked_for() -> None:
    actuator = Actuator(Behavior(up_window_seconds=30.0))
    actuator.settle(3, seen(pods(3), now=0.0))

    assert actuator.settle(6, seen(pods(3), now=15.0)) == 3
    assert actuator.settle(6, seen(pods(3), now=46.0)) == 6


def test_bounds_hold() -> None:
    assert Actuator(DEFAULT_BEHAVIOR).settle(50, seen(pods(7), most=8)) == 8


def test_a_queue_of_15_on_one_pod_asks_for_three() -> None:
    assert HpaPods(target=5.0).step(seen(pods(1, waiting=15.0))) == 3


def test_pods_that_load_pull_the_average_down() -> None:
    """Two ready pods with 15 each and two that load: ceil(30 / 5) of what all four share, not twice that."""
    assert HpaPods(target=5.0).step(seen(pods(2, waiting=15.0), provisioned=4)) == 6


def test_production_stack_asks_for_one_replica_per_five_waiting_requests() -> None:
    assert production_stack().step(seen([page(0, waiting=7.0), page(1, waiting=9.0)])) == 4


def test_keda_reads_nan_as_no_load() -> None:
    """After the HPA's window nothing is left but one: the common way to lose a service."""
    keda = production_stack()
    keda.step(seen(pods(6, waiting=math.nan), now=0.0))

    assert keda.step(seen(pods(6, waiting=math.nan), now=301.0)) == 1
