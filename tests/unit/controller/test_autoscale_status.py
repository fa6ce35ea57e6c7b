"""What a reconcile writes of an outcome: status.scaling, conditions, the Event of a change; and when it is worth it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from factories import NOW
from llmservice_operator.api.conditions import Condition, ConditionType, Reason, timestamp
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import LLMServiceStatus, PlanStatus
from llmservice_operator.api.status_scaling import ScalingStatus
from llmservice_operator.autoscaling.decision import Decision, Step
from llmservice_operator.autoscaling.signals import Signal, Signals, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.controller.autoscale_news import Allowance, News
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_status import change_of, loop_verdicts, scaling_status
from llmservice_operator.controller.statuswrite import MAX_STATUS_BYTES, status_json, write_wait_seconds
from llmservice_operator.controller.verdict import Verdict

SPEC = LLMServiceSpec.model_validate(
    {"model": {"uri": "hf://org/model"}, "slo": {"ttft": {"p95": "1s"}}, "scaling": {"maxReplicas": 8}}
)
FIXED = LLMServiceSpec.model_validate({"model": {"uri": "hf://org/model"}})


def decided(current: int, desired: int, **changes: Any) -> Decision:
    steps = (Step("forward", float(desired), "the load"), Step("kv", None, "not known"))
    made = Decision(
        desired=desired,
        current=current,
        ruling="forward",
        reason="the load",
        steps=steps,
        state=ScalerState(),
    )
    return replace(made, **changes)


def found(decision: Decision | None, *, rate: float = 4.0, **changes: Any) -> Outcome:
    made = Outcome(
        uid="uid-chat",
        at=NOW,
        signals=Signals(sustained_arrivals_per_second=Signal(rate, SignalState.OK, NOW)),
        decision=decision,
        bounds=(1, 8),
        verdicts={},
        memory="{}",
        start_seconds=60.0,
        capacity_requests_per_second=4.0,
    )
    return replace(made, **changes)


def test_a_change_is_told_newest_first_with_each_step_that_asked_for_something() -> None:
    before = ScalingStatus(desired_replicas=1, decisions=())

    status = scaling_status(before, found(decided(1, 3)), SPEC)

    assert status is not None
    newest = status.decisions[0]
    assert (newest.from_replicas, newest.to_replicas, newest.ruling) == (1, 3, "forward")
    assert newest.steps == {"forward": 3.0}


def test_a_change_is_told_once() -> None:
    outcome = found(decided(1, 3))
    once = scaling_status(ScalingStatus(desired_replicas=1), outcome, SPEC)

    twice = scaling_status(once, outcome, SPEC)

    assert twice is not None
    assert len(twice.decisions) == 1
    assert change_of(once, outcome) is None


def test_five_changes_are_kept() -> None:
    status = ScalingStatus(desired_replicas=1)
    for desired in range(2, 10):
        status = scaling_status(status, found(decided(desired - 1, desired)), SPEC) or status

    assert [each.to_replicas for each in status.decisions] == [9, 8, 7, 6, 5]


def test_a_step_that_asks_for_endlessly_many_is_left_out() -> None:
    """JSON has no infinity, and the API server would refuse the whole status."""
    decision = decided(1, 3, steps=(Step("backlog", float("inf"), "no replica takes it"),))

    status = scaling_status(ScalingStatus(desired_replicas=1), found(decision), SPEC)

    assert status is not None
    assert status.decisions[0].steps == {}


def test_until_the_loop_has_looked_the_status_stays_what_it_was() -> None:
    before = ScalingStatus(desired_replicas=3, state='{"v":1}')

    assert scaling_status(before, None, SPEC) == before


def test_a_service_that_is_neither_scaled_nor_promised_anything_has_no_such_status() -> None:
    assert scaling_status(ScalingStatus(desired_replicas=3), None, FIXED) is None


def test_what_another_manager_sets_is_no_number_of_ours() -> None:
    status = scaling_status(None, found(decided(3, 3, is_written=False, ruling="other-writer")), SPEC)

    assert status is not None
    assert status.desired_replicas is None


def condition(kind: ConditionType, reason: str, status: Any = "True") -> Condition:
    return Condition(type=kind.value, status=status, reason=reason, last_transition_time=timestamp(NOW))


def test_a_new_process_keeps_conditions_until_it_can_tell() -> None:
    before = (condition(ConditionType.METRICS_AVAILABLE, Reason.METRICS_FRESH),)
    starting = Verdict(status="Unknown", reason=Reason.METRICS_STARTING)
    outcome = found(decided(1, 1), verdicts={ConditionType.METRICS_AVAILABLE: starting})

    verdicts = loop_verdicts(before, outcome, SPEC)

    assert verdicts[ConditionType.METRICS_AVAILABLE].reason == Reason.METRICS_FRESH


def test_what_the_loop_says_now_takes_the_place_of_what_it_said() -> None:
    before = (condition(ConditionType.METRICS_AVAILABLE, Reason.METRICS_FRESH),)
    missing = Verdict(status="False", reason=Reason.METRICS_MISSING)
    outcome = found(decided(1, 1), verdicts={ConditionType.METRICS_AVAILABLE: missing})

    verdicts = loop_verdicts(before, outcome, SPEC)

    assert verdicts[ConditionType.METRICS_AVAILABLE] == missing


def test_conditions_of_what_is_not_asked_for_any_more_go() -> None:
    before = (condition(ConditionType.SLO_MET, Reason.OBJECTIVES_MET),)

    assert loop_verdicts(before, None, FIXED) == {}


def written(rate: float, *, reason: str = "the load", **conditions: str) -> dict[str, Any]:
    """A status of a service at rest."""
    outcome = found(decided(2, 2, reason=reason), rate=rate)
    status = LLMServiceStatus(
        scaling=scaling_status(ScalingStatus(desired_replicas=2), outcome, SPEC),
        conditions=tuple(condition(ConditionType(kind), text) for kind, text in conditions.items()),
    )
    return status_json(status)


def test_words_and_numbers_that_jitter_are_not_worth_a_write() -> None:
    assert write_wait_seconds(written(4.0), written(4.5, reason="4.5 requests/s"), 600.0) is None


def test_a_load_that_moved_by_more_than_a_fifth_is_written_once_a_minute() -> None:
    assert write_wait_seconds(written(4.0), written(5.0), 600.0) == 0.0
    assert write_wait_seconds(written(4.0), written(5.0), 20.0) == 40.0


def remembering(at: float) -> dict[str, Any]:
    status = ScalingStatus(desired_replicas=2, state=json.dumps({"v": 1, "at": at}))
    return status_json(LLMServiceStatus(scaling=status))


def test_what_a_decision_remembers_is_written_each_ten_minutes() -> None:
    assert write_wait_seconds(remembering(NOW), remembering(NOW + 599), 600.0) is None
    assert write_wait_seconds(remembering(NOW), remembering(NOW + 600), 600.0) == 0.0


def test_what_is_remembered_by_a_clock_that_was_set_back_is_written() -> None:
    assert write_wait_seconds(remembering(NOW), remembering(NOW - 3600), 5.0) == 0.0


def test_another_number_of_replicas_is_written_at_once() -> None:
    before = scaling_status(ScalingStatus(desired_replicas=2), found(decided(2, 3)), SPEC)

    assert write_wait_seconds(written(4.0), status_json(LLMServiceStatus(scaling=before)), 1.0) == 0.0


def test_a_verdict_that_turned_is_written_at_once() -> None:
    assert (
        write_wait_seconds(written(4.0, SLOMet="NoTraffic"), written(4.0, SLOMet="ObjectivesMet"), 1.0) == 0.0
    )


def test_the_longest_status_stays_within_its_bound() -> None:
    words = "w" * 400
    signals = Signals(**{name: Signal(0.123456789, SignalState.OK, NOW) for name, _ in Signals().items()})
    status = ScalingStatus(desired_replicas=0)
    for desired in range(1, 7):
        steps = tuple(Step(f"step-{each}", 1.23456789, words) for each in range(12))
        decision = decided(desired - 1, desired, reason=words, steps=steps)
        status = scaling_status(status, found(decision, signals=signals, memory="m" * 3000), SPEC) or status
    plan = PlanStatus.model_validate(
        {
            "accelerator": "nvidia-h200",
            "acceleratorsPerReplica": 1,
            "knobs": {"maxModelLen": 1, "maxNumSeqs": 1, "maxNumBatchedTokens": 1},
            "totalBytes": 1, "requestedBytes": 1, "kvCacheTokens": 1, "maxConcurrency": 1.0,
            "reasons": [words] * 24, "warnings": [words] * 16,
        }
    )  # fmt: skip
    conditions = tuple(
        condition(kind, Reason.READY).model_copy(update={"message": "m" * 1000}) for kind in ConditionType
    )

    body = status_json(LLMServiceStatus(scaling=status, plan=plan, conditions=conditions))

    assert len(json.dumps(body, separators=(",", ":")).encode()) <= MAX_STATUS_BYTES


@pytest.mark.parametrize(("rate", "is_due"), [(4.5, False), (5.0, True)])
def test_numbers_are_told_of_once_they_moved_by_more_than_a_fifth(rate: float, is_due: bool) -> None:
    news = News(Allowance())
    news.is_due(found(decided(2, 2)), 2, NOW)

    assert news.is_due(found(decided(2, 2), rate=rate), 2, NOW + 61) is is_due


def test_replicas_that_are_wanted_and_not_asked_for_are_told_of_again() -> None:
    news = News(Allowance())
    outcome = found(decided(2, 3))
    news.is_due(outcome, 2, NOW)

    assert not news.is_due(outcome, 2, NOW + 5)
    assert news.is_due(outcome, 2, NOW + 35)


def test_a_clock_that_was_set_back_keeps_nothing_from_being_told_of() -> None:
    news = News(Allowance())
    outcome = found(decided(2, 3))
    news.is_due(outcome, 2, NOW)

    assert not news.is_due(outcome, 2, NOW - 3600)
    assert news.is_due(outcome, 2, NOW - 3600 + 35)


def test_a_thousand_services_whose_load_moves_are_not_all_told_of_in_one_second() -> None:
    allowance = Allowance(per_second=5.0, most=25.0)

    told = sum(allowance.take(NOW) for _ in range(1000))
    later = sum(allowance.take(NOW + 1) for _ in range(1000))

    assert (told, later) == (25, 5)
