"""`status.scaling`, the loop's conditions and the Events of a change: what a reconcile writes of an outcome. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from llmservice_operator.api.conditions import Condition, ConditionType, Reason, find_condition, timestamp
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status_scaling import (
    DECISIONS_MAX_ITEMS,
    DecisionStatus,
    ScalingStatus,
    SignalStatus,
)
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.signals import Signal, Signals
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_subject import objectives_of
from llmservice_operator.controller.verdict import Verdict

_BEGINNING = frozenset({Reason.METRICS_STARTING, Reason.NO_READY_REPLICAS})
"""Reasons of a condition that nothing is lost with."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another number of replicas."""

    old: int
    new: int
    reason: str

    @property
    def event(self) -> str:
        """The reason of its Event."""
        return "ScaledOut" if self.new > self.old else "ScaledIn"

    @property
    def message(self) -> str:
        """In words."""
        return f"from {self.old} to {self.new} replicas: {self.reason}"


def scaling_status(
    before: ScalingStatus | None, outcome: Outcome | None, spec: LLMServiceSpec | None
) -> ScalingStatus | None:
    """The status after this outcome; as it was where there is none yet, and nothing where nothing is looked at."""
    if spec is None:
        return before
    if not is_looked_at(spec):
        return None
    if outcome is None:
        return before
    known = () if before is None else before.decisions
    measured: dict[str, Any] = {
        "capacity_requests_per_second": outcome.capacity_requests_per_second or None,
        "start_seconds": outcome.start_seconds,
        "signals": tuple(_signals(outcome.signals)),
    }
    decision = outcome.decision
    if decision is None:
        return ScalingStatus(**measured, decisions=known)
    newest = () if change_of(before, outcome) is None else (_decision_status(decision, outcome.at),)
    return ScalingStatus(
        **measured,
        desired_replicas=outcome.desired,
        ruling=decision.ruling,
        reason=decision.reason,
        correction=decision.correction,
        decisions=(*newest, *known)[:DECISIONS_MAX_ITEMS],
        state=outcome.memory,
    )


def change_of(before: ScalingStatus | None, outcome: Outcome | None) -> Change | None:
    """The change that this outcome brings, told once: when the number wanted is another than was told before."""
    if outcome is None or outcome.decision is None or outcome.desired is None:
        return None
    decision = outcome.decision
    told = before.desired_replicas if before is not None else None
    old = decision.current if told is None else told
    if decision.desired in (old, decision.current):
        return None
    return Change(old=decision.current, new=decision.desired, reason=f"{decision.ruling}: {decision.reason}")


def loop_verdicts(
    before: Iterable[Condition], outcome: Outcome | None, spec: LLMServiceSpec | None
) -> Mapping[ConditionType, Verdict]:
    """The loop's conditions. Until it has looked for long enough to tell, they stay what they were."""
    if spec is None or not is_looked_at(spec):
        return {}
    verdicts: dict[ConditionType, Verdict] = {}
    told = outcome.verdicts if outcome is not None else {}
    for kind in (ConditionType.METRICS_AVAILABLE, ConditionType.SCALING_ACTIVE, ConditionType.SLO_MET):
        if not _applies(kind, spec):
            continue
        new, old = told.get(kind), find_condition(before, kind)
        keeps = old is not None and (
            new is None or (new.reason == Reason.METRICS_STARTING and old.reason not in _BEGINNING)
        )
        if old is not None and keeps:
            verdicts[kind] = Verdict(status=old.status, reason=old.reason, message=old.message)
        elif new is not None:
            verdicts[kind] = new
    return verdicts


def is_looked_at(spec: LLMServiceSpec) -> bool:
    """Whether the scaling loop looks at a service of this spec."""
    return spec.scaling is not None or _has_objectives(spec)


def _applies(kind: ConditionType, spec: LLMServiceSpec) -> bool:
    if kind is ConditionType.SCALING_ACTIVE:
        return spec.scaling is not None
    return kind is not ConditionType.SLO_MET or _has_objectives(spec)


def _has_objectives(spec: LLMServiceSpec) -> bool:
    goal = objectives_of(spec)
    return goal.ttft_p95_seconds is not None or goal.tpot_p95_seconds is not None


def _decision_status(decision: Decision, at: float) -> DecisionStatus:
    return DecisionStatus(
        at=timestamp(at),
        from_replicas=decision.current,
        to_replicas=decision.desired,
        ruling=decision.ruling,
        reason=decision.reason,
        steps=decision.asked,
    )


def _signals(signals: Signals) -> Iterable[SignalStatus]:
    for name, signal in signals.items():
        value = signal.value if signal.value is not None and math.isfinite(signal.value) else None
        yield SignalStatus(name=name, state=str(signal.state), value=value, at=_time(signal))


def _time(signal: Signal) -> datetime | None:
    return timestamp(signal.at) if signal.at > 0 else None
