"""MetricsAvailable, ScalingActive and SLOMet: from what was found to a reason and words."""

from dataclasses import replace
from typing import Any

import pytest

from factories import NOW
from fakes.scaling_rig import ready_pod, subject
from llmservice_operator.api.conditions import Reason
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.signals import Signal, Signals, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.controller.autoscale_subject import Role
from llmservice_operator.controller.autoscale_verdicts import (
    Findings,
    Settled,
    metrics_available,
    scaling_active,
    slo_met,
)
from llmservice_operator.controller.verdict import Verdict

READY = ready_pod("a", "10.0.0.1", NOW - 600)


def ok(value: float | None) -> Signal:
    return Signal(value, SignalState.OK, NOW)


def signals(**changes: Signal) -> Signals:
    """All that a decision needs, of a service that keeps its objectives at one request a second."""
    needed = {
        "arrivals_per_second": ok(1.0), "sustained_arrivals_per_second": ok(1.0), "completions_per_second": ok(1.0),
        "running": ok(3.0), "waiting": ok(0.0), "kv_use_total": ok(0.1), "preemptions_per_second": ok(0.0),
        "ttft_p95_seconds": ok(0.4), "tpot_p95_seconds": ok(0.02),
    }  # fmt: skip
    return Signals(**{**needed, **changes})


def found(**changes: Any) -> Findings:
    made = Findings(subject=subject((READY,)), signals=signals(), now=NOW, watched_seconds=600.0)
    return replace(made, **changes)


def decided(ruling: str, **changes: Any) -> Decision:
    made = Decision(desired=1, current=1, ruling=ruling, reason="so it is", steps=(), state=ScalerState())
    return replace(made, **changes)


def test_metrics_of_every_replica_are_available() -> None:
    assert metrics_available(found()).reason == Reason.METRICS_FRESH


def test_without_a_ready_replica_nobody_is_asked() -> None:
    assert metrics_available(found(subject=subject(()))).reason == Reason.NO_READY_REPLICAS


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SignalState.STALE, Reason.METRICS_STALE),
        (SignalState.INVALID, Reason.METRICS_INVALID),
        (SignalState.MISSING, Reason.METRICS_MISSING),
        (SignalState.RESET, Reason.METRICS_RESET),
    ],
)
def test_the_worst_signal_gives_the_reason_and_is_named(state: SignalState, reason: Reason) -> None:
    verdict = metrics_available(found(signals=signals(waiting=Signal(None, state, NOW))))

    assert (verdict.status, verdict.reason) == ("False", reason)
    assert f"{state}: waiting" in verdict.message


def test_rates_of_a_replica_that_has_just_come_are_on_their_way() -> None:
    missing = Signal(None, SignalState.MISSING)

    verdict = metrics_available(found(signals=signals(arrivals_per_second=missing), watched_seconds=5.0))

    assert (verdict.status, verdict.reason) == ("Unknown", Reason.METRICS_STARTING)


def test_a_signal_that_not_every_engine_has_is_not_missed() -> None:
    verdict = metrics_available(found(signals=signals(bandwidth_use=Signal(None, SignalState.MISSING))))

    assert verdict.status == "True"


def slo(**changes: Any) -> Verdict:
    findings = found(**changes)
    verdict = slo_met(findings, metrics_available(findings))
    assert verdict is not None
    return verdict


def test_objectives_that_are_kept_are_told_with_what_was_measured() -> None:
    verdict = slo()

    assert (verdict.status, verdict.reason) == ("True", Reason.OBJECTIVES_MET)
    assert "TTFT p95 400 ms of 1.00 s" in verdict.message
    assert "TPOT p95 20 ms of 50 ms" in verdict.message


def test_an_objective_that_is_missed_turns_it() -> None:
    assert slo(signals=signals(tpot_p95_seconds=ok(0.06))).reason == Reason.OBJECTIVES_MISSED


def test_few_requests_make_no_p95() -> None:
    verdict = slo(signals=signals(completions_per_second=ok(0.1)))

    assert (verdict.status, verdict.reason) == ("Unknown", Reason.TOO_FEW_REQUESTS)
    assert "6 requests in 60 s, and 20 make a p95" in verdict.message


def test_without_requests_nothing_is_missed() -> None:
    idle = Signal(None, SignalState.IDLE, NOW)

    verdict = slo(
        signals=signals(ttft_p95_seconds=idle, tpot_p95_seconds=idle, completions_per_second=ok(0.0))
    )

    assert (verdict.status, verdict.reason) == ("Unknown", Reason.NO_TRAFFIC)


def test_an_objective_that_no_replica_reaches_is_told_with_what_bounds_it() -> None:
    verdict = slo(
        signals=signals(ttft_p95_seconds=ok(1.4)),
        unreachable="TTFT p95 of 1 s is below the 1.3 s that one request takes",
    )

    assert (verdict.status, verdict.reason) == ("False", Reason.OBJECTIVES_UNREACHABLE)
    assert "1.3 s" in verdict.message


def test_requests_that_keep_an_objective_are_believed_before_a_model_that_says_they_can_not() -> None:
    assert slo(unreachable="TTFT p95 of 1 s is below the 1.3 s that one request takes").status == "True"


def active(**changes: Any) -> Verdict:
    verdict = scaling_active(found(**changes))
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("ruling", "pods", "reason"),
    [
        ("forward", (READY,), Reason.SCALING_ACTIVE),
        ("max", (READY,), Reason.AT_MAXIMUM),
        ("starts", (READY, replace(READY, role=Role.UNSCHEDULABLE)), Reason.UNSCHEDULABLE),
        ("starts", (READY, replace(READY, role=Role.FAILING)), Reason.CRASH_LOOPING),
        ("latency", (READY, replace(READY, role=Role.UNSCHEDULABLE)), Reason.UNSCHEDULABLE),
        ("hold", (READY, replace(READY, role=Role.FAILING)), Reason.CRASH_LOOPING),
    ],
)
def test_what_keeps_fewer_replicas_than_are_needed_is_the_reason(
    ruling: str, pods: Any, reason: Reason
) -> None:
    verdict = active(subject=subject(pods), decision=decided(ruling))

    assert (verdict.status, verdict.reason) == ("True", reason)
    assert verdict.message == f"{ruling}: so it is"


def test_what_can_not_be_meant_is_named_and_holds_the_replicas() -> None:
    verdict = active(decision=decided("input", problems=("slo.ttft.p95 is 0 s; more than 0 is expected",)))

    assert (verdict.status, verdict.reason) == ("False", Reason.SCALING_INPUT_INVALID)
    assert "slo.ttft.p95 is 0 s" in verdict.message
    assert "held at 1" in verdict.message


def test_another_answer_is_told_once_it_has_lasted() -> None:
    met, missed = (Verdict(status=status, reason=status) for status in ("True", "False"))
    settled = Settled()
    settled.tell(met, 0.0, 30.0)

    told = [
        settled.tell(verdict, at, 30.0).status
        for verdict, at in ((missed, 10.0), (missed, 39.0), (missed, 40.0))
    ]

    assert told == ["True", "True", "False"]


def test_an_answer_that_comes_and_goes_is_not_told() -> None:
    met, missed = (Verdict(status=status, reason=status) for status in ("True", "False"))
    settled = Settled()

    told = {settled.tell(missed if at % 2 else met, at * 15.0, 30.0).status for at in range(20)}

    assert told == {"True"}


def test_a_clock_that_is_set_back_holds_no_answer_up() -> None:
    met, missed = (Verdict(status=status, reason=status) for status in ("True", "False"))
    settled = Settled()
    settled.tell(met, 7200.0, 30.0)
    settled.tell(missed, 7210.0, 30.0)

    told = [settled.tell(missed, at, 30.0).status for at in (3600.0, 3629.0, 3630.0)]

    assert told == ["True", "True", "False"]


def test_of_a_service_that_is_only_measured_no_replica_is_spoken_of() -> None:
    missing = Signal(None, SignalState.MISSING)

    verdict = metrics_available(
        found(subject=subject((READY,), bounds=None), signals=signals(waiting=missing))
    )

    assert "no replica is taken" not in verdict.message
