"""Conditions: what changes, what stays, in which order."""

from llmservice_operator.api.conditions import (
    MESSAGE_MAX_LENGTH,
    Condition,
    ConditionType,
    Reason,
    set_condition,
    timestamp,
)

NINE = 1_790_000_000.9
LATER = NINE + 60


def ready(
    status: str = "True", *, now: float = NINE, conditions: tuple[Condition, ...] = ()
) -> tuple[Condition, ...]:
    assert status in ("True", "False", "Unknown")
    return set_condition(
        conditions, ConditionType.READY, status, Reason.READY, "as asked", generation=1, now=now
    )


def test_a_new_condition_begins_now_in_whole_seconds() -> None:
    (condition,) = ready()

    assert condition.model_dump(mode="json", by_alias=True) == {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "as asked",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-09-21T14:13:20Z",
    }


def test_the_transition_time_stays_while_the_status_does() -> None:
    changed = set_condition(
        ready(), ConditionType.READY, "True", Reason.SCALED_TO_ZERO, "zero", generation=2, now=LATER
    )

    (condition,) = changed
    assert condition.last_transition_time == timestamp(NINE)
    assert (condition.reason, condition.message, condition.observed_generation) == ("ScaledToZero", "zero", 2)


def test_the_transition_time_moves_with_the_status() -> None:
    (condition,) = ready("False", now=LATER, conditions=ready())

    assert condition.last_transition_time == timestamp(LATER)


def test_saying_the_same_again_changes_nothing() -> None:
    assert ready(now=LATER, conditions=ready()) == ready()


def test_conditions_stand_in_the_order_of_their_types() -> None:
    conditions = set_condition(
        (), ConditionType.UP_TO_DATE, "True", Reason.UP_TO_DATE, "", generation=1, now=NINE
    )
    conditions = set_condition(
        conditions, ConditionType.STALLED, "False", Reason.NOT_STALLED, "", generation=1, now=NINE
    )
    conditions = ready(conditions=conditions)

    assert [each.type for each in conditions] == ["Ready", "Stalled", "UpToDate"]


def test_a_condition_of_a_newer_release_is_kept_at_the_end() -> None:
    newer = Condition(type="Cheap", status="True", reason="Spot", last_transition_time=timestamp(NINE))

    assert [each.type for each in ready(conditions=(newer,))] == ["Ready", "Cheap"]


def test_a_long_message_is_cut_and_shows_it() -> None:
    (condition,) = set_condition((), ConditionType.READY, "False", "X", "m" * 5_000, generation=1, now=NINE)

    assert len(condition.message) == MESSAGE_MAX_LENGTH
    assert condition.message.endswith("…")


def test_conditions_read_from_the_cluster_are_those_that_were_written() -> None:
    (condition,) = ready()

    assert Condition.model_validate(condition.model_dump(mode="json", by_alias=True)) == condition
