"""What bounds a decision: starts, pace, maxReplicas, minReplicas, a quota."""

from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.decide import decide
from unit.autoscaling.decisions import low, settled
from unit.autoscaling.samples import NOW, fleet, inputs, ok, signals, unknown, watched

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
