"""What is said of one service after its writes: status, events, and when to look again. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llmservice_operator.api.conditions import (
    Condition,
    ConditionType,
    Reason,
    find_condition,
    set_condition,
)
from llmservice_operator.api.labels import SERVICE_LABEL
from llmservice_operator.api.status import EngineStatus, FailureStatus, LLMServiceStatus, RevisionStarts
from llmservice_operator.clients.engine import EngineReport
from llmservice_operator.controller.autoscale_status import change_of, scaling_status
from llmservice_operator.controller.decide import Intent
from llmservice_operator.controller.observed import Observed
from llmservice_operator.controller.podstate import PodStage, PodState
from llmservice_operator.controller.statusfields import (
    engine_status,
    failure_status,
    plan_status,
    start_status,
)
from llmservice_operator.controller.summary import Summary, summarise
from llmservice_operator.controller.verdicts import Situation, WriteProblem, conditions_of, told_differences

PROGRESS_SECONDS = 10.0
"""How often a start is looked at while it goes on."""
REPORT_SECONDS = 15.0
"""How soon a ready engine that gave no report is asked again."""
REPORT_PATIENCE_SECONDS = 600.0
"""After so long the periodic resync has to do: its report may never be reachable."""
CREATION_SECONDS = 30.0
"""How often a pod whose containers are being made is looked at: only its slowness is not told by a watch."""
UNPLANNED_SECONDS = (1.0, 300.0)
"""How soon a model's config that was not there is looked for again: after half the time that it has been so,
within these bounds. Often it is the next object of the same `kubectl apply`."""
PROBLEM_SECONDS = 30.0
"""How soon a refused write is tried again: what stands in its way may not be watched."""


@dataclass(frozen=True, kw_only=True)
class Saying:
    """An Event to be."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The status to be written, what is worth an Event, and in how many seconds to look again."""

    status: LLMServiceStatus
    sayings: tuple[Saying, ...]
    again_seconds: float | None


def conclude(
    observed: Observed, intent: Intent, problems: tuple[WriteProblem, ...], now: float
) -> Conclusion:
    """What follows from what was observed, intended and written. `now` in seconds since the Unix epoch."""
    selection = intent.selection
    active = selection.active
    summary = summarise(observed, active.name if active is not None else "", now)
    last_failure = _last_failure(observed, intent, summary, now)
    engine = _engine(observed, intent, now)
    situation = Situation(
        observed=observed,
        intent=intent,
        summary=summary,
        problems=problems,
        last_failure=last_failure,
        engine=engine,
    )
    before = observed.status
    status = before.model_copy(
        update={
            "observed_generation": observed.generation,
            "replicas": len(summary.live),
            "ready_replicas": summary.ready,
            "desired_replicas": intent.target,
            "selector": f"{SERVICE_LABEL}={observed.key.name}",
            "address": _address(observed),
            "plan": plan_status(active) if active is not None else before.plan,
            "engine": engine,
            "start": start_status(_starting(summary), _records(observed, intent), now),
            "last_failure": last_failure,
            "scaling": scaling_status(before.scaling, observed.scaling, observed.spec),
            "conditions": _conditions(situation, now),
        }
    )
    return Conclusion(
        status=status,
        sayings=(*_scaling_sayings(observed), *_sayings(before.conditions, status.conditions, intent)),
        again_seconds=_again(observed, intent, summary, problems, status.conditions, now=now),
    )


def _address(observed: Observed) -> str:
    if observed.spec is None:
        return observed.status.address
    key = observed.key
    return f"http://{key.name}.{key.namespace}.svc:{observed.spec.service.port}/v1"


def _records(observed: Observed, intent: Intent) -> tuple[RevisionStarts, ...]:
    """What is known of the revisions' starts. It outlives a spec that cannot be read."""
    before = observed.status.start
    if observed.spec is None and before is not None:
        return before.revisions
    return intent.selection.records


def _engine(observed: Observed, intent: Intent, now: float) -> EngineStatus | None:
    """The report of the newest start of the active revision: each start is told once, whoever asks again."""
    active, before = intent.selection.active, observed.status.engine
    if active is None:
        return before
    reports = [
        pod.report
        for pod in observed.pods
        if pod.report is not None and pod.report.phase == "Ready" and pod.revision == active.name
    ]
    newest = max(reports, key=lambda each: each.ready_at or 0.0, default=None)
    if newest is None or (before is not None and _told(before, newest, active.name)):
        return before
    return engine_status(newest, active.plan, now)


def _told(before: EngineStatus, report: EngineReport, revision: str) -> bool:
    """Whether the status tells of this start, or of a later one, already."""
    if before.revision != revision:
        return False
    taken_at = before.reported_at.timestamp() if before.reported_at is not None else 0.0
    return report.ready_at is None or report.ready_at <= taken_at


def _starting(summary: Summary) -> PodState | None:
    pod = summary.furthest
    return pod if pod is not None and pod.stage == PodStage.STARTING else None


def _last_failure(observed: Observed, intent: Intent, summary: Summary, now: float) -> FailureStatus | None:
    """The failure that was counted comes first: by it the next reconcile knows that it was."""
    proof = intent.selection.proof
    pod = proof.failed if proof is not None and proof.failed is not None else summary.failed
    before = observed.status.last_failure
    return before if pod is None else failure_status(pod, before, now) or before


def _conditions(situation: Situation, now: float) -> tuple[Condition, ...]:
    """The verdicts with their times. Types that do not apply go, and so do those of a newer release."""
    before = situation.observed.status.conditions
    conditions: list[Condition] = []
    for condition_type, verdict in conditions_of(situation).items():
        old = find_condition(before, condition_type)
        conditions += set_condition(
            () if old is None else (old,),
            condition_type,
            verdict.status,
            verdict.reason,
            verdict.message,
            generation=situation.observed.generation,
            now=now,
        )
    return tuple(conditions)


def _sayings(before: Iterable[Condition], after: Iterable[Condition], intent: Intent) -> tuple[Saying, ...]:
    """An Event for each condition that turned to something a person wants to hear of."""
    before, after = tuple(before), tuple(after)
    sayings = list(_rollout_sayings(intent))
    for condition in after:
        old = find_condition(before, ConditionType(condition.type))
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        # A plan that holds at its first report is as it should be; one that holds again is news.
        saying = _saying(condition, first=old is None or old.status == "Unknown")
        if saying is not None and all(saying.reason != each.reason for each in sayings):
            sayings.append(saying)
    return tuple(sayings)


def _scaling_sayings(observed: Observed) -> Iterable[Saying]:
    change = change_of(observed.status.scaling, observed.scaling)
    if change is not None and observed.spec is not None:
        yield Saying(type="Normal", reason=change.event, message=change.message)


def _rollout_sayings(intent: Intent) -> Iterable[Saying]:
    selection = intent.selection
    if intent.paused or selection.wanted is None:
        return
    name = selection.wanted.name
    if selection.verdict in ("roll", "refreshed"):
        message = f"revision {name}: {told_differences(selection.differences)}"
        yield Saying(type="Normal", reason="RollingOut", message=message)
    if selection.verdict == "corrected" and selection.correction is not None:
        message = f"revision {name} is planned from the engine's own words: {selection.correction.message}"
        yield Saying(type="Warning", reason="PlanCorrected", message=message)


def _saying(condition: Condition, *, first: bool) -> Saying | None:
    if condition.type in (ConditionType.READY, ConditionType.PLANNED) and condition.status == "True":
        return Saying(type="Normal", reason=condition.reason, message=condition.message)
    if condition.type == ConditionType.PLAN_ACCURATE and condition.status == "True" and not first:
        return Saying(type="Normal", reason=condition.reason, message=condition.message)
    bad = {
        ConditionType.STALLED: "True",
        ConditionType.PLANNED: "False",
        ConditionType.PROGRESSING: "False",
        ConditionType.PLAN_ACCURATE: "False",
        ConditionType.METRICS_AVAILABLE: "False",
        ConditionType.SCALING_ACTIVE: "False",
        ConditionType.SLO_MET: "False",
    }
    if bad.get(ConditionType(condition.type)) == condition.status or condition.reason == Reason.AT_MAXIMUM:
        return Saying(type="Warning", reason=condition.reason, message=condition.message)
    return None


def _again(
    observed: Observed,
    intent: Intent,
    summary: Summary,
    problems: tuple[WriteProblem, ...],
    conditions: tuple[Condition, ...],
    *,
    now: float,
) -> float | None:
    """In how many seconds something may have changed that no watch tells."""
    waits: list[float] = []
    if problems:
        waits.append(PROBLEM_SECONDS)
    if _may_be_planned_later(observed, intent):
        least, most = UNPLANNED_SECONDS
        planned = find_condition(conditions, ConditionType.PLANNED)
        age_seconds = 0.0 if planned is None else now - planned.last_transition_time.timestamp()
        waits.append(min(max(age_seconds / 2, least), most))
    if any(pod.stage == PodStage.STARTING and pod.engine_started_at is not None for pod in summary.live):
        waits.append(PROGRESS_SECONDS)
    if any(pod.stage == PodStage.CREATING and pod.trouble is None for pod in summary.live):
        waits.append(CREATION_SECONDS)
    if any(pod.stage == PodStage.STOPPING for pod in observed.pods):
        waits.append(PROBLEM_SECONDS)
    if _unreported(observed, intent, now):
        waits.append(REPORT_SECONDS)
    return min(waits, default=None)


def _may_be_planned_later(observed: Observed, intent: Intent) -> bool:
    """Whether waiting may lead to a plan: a ConfigMap, the hub or a node may change, the spec's words do not."""
    selection = intent.selection
    if selection.unknown_candidate is not None:
        return True
    refusal = selection.refusal
    return refusal is not None and (not refusal.certain or observed.model.problem is not None)


def _unreported(observed: Observed, intent: Intent, now: float) -> bool:
    active = intent.selection.active
    if active is None or intent.paused:
        return False
    reported = observed.status.engine is not None and observed.status.engine.revision == active.name
    return not reported and any(
        pod.stage == PodStage.READY
        and pod.revision == active.name
        and pod.report is None
        and now - pod.created_at < REPORT_PATIENCE_SECONDS
        for pod in observed.pods
    )
