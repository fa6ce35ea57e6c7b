"""The conditions of a service: each decided by a chain of questions, the first that applies answers. Pure.

Planned       is there a plan for what the user says now?
Available     does a replica answer?
Progressing   is what is wanted there, or getting there?
UpToDate      is what runs what would be planned now?
PlanAccurate  did the engine measure what was planned?
Ready         the summary
Stalled       is a person needed?

Whether metrics are there, objectives are kept and replicas follow the load is for the scaling loop to say.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llmservice_operator.api.conditions import ConditionStatus, ConditionType, Reason
from llmservice_operator.api.labels import REFRESH_ANNOTATION
from llmservice_operator.api.status import EngineStatus, FailureStatus
from llmservice_operator.controller.accuracy import finding
from llmservice_operator.controller.autoscale_status import loop_verdicts
from llmservice_operator.controller.decide import Intent
from llmservice_operator.controller.failures import planned_memory_classes
from llmservice_operator.controller.observed import Observed
from llmservice_operator.controller.selection import RESTART_MEND
from llmservice_operator.controller.summary import Summary, told_stage
from llmservice_operator.controller.verdict import Verdict
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.replicas import scaling_bounds
from llmservice_operator.resources.revision import Revision

MAX_DIFFERENCES = 6
"""Differences that are told one by one; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class WriteProblem:
    """A child that could not be written."""

    kind: str
    reason: str
    message: str
    needs_person: bool


@dataclass(frozen=True, kw_only=True)
class Situation:
    """All that conditions are decided from."""

    observed: Observed
    intent: Intent
    summary: Summary
    problems: tuple[WriteProblem, ...]
    last_failure: FailureStatus | None
    engine: EngineStatus | None = None
    """The engine's report, as the status is to tell it."""


def conditions_of(situation: Situation) -> dict[ConditionType, Verdict]:
    """The conditions, in their order. Types that do not apply are not in it."""
    planned = _planned(situation)
    progressing = _progressing(situation, planned)
    verdicts = {
        ConditionType.READY: _ready(situation, planned, progressing),
        ConditionType.STALLED: _stalled(situation, planned),
        ConditionType.PLANNED: planned,
        ConditionType.AVAILABLE: _available(situation),
        ConditionType.PROGRESSING: progressing,
        ConditionType.UP_TO_DATE: _up_to_date(situation),
        ConditionType.PLAN_ACCURATE: _plan_accurate(situation),
    }
    observed = situation.observed
    verdicts |= loop_verdicts(observed.status.conditions, observed.scaling, observed.spec)
    scaling = _scaling_active(situation)
    if scaling is not None and (scaling.status == "False" or ConditionType.SCALING_ACTIVE not in verdicts):
        verdicts[ConditionType.SCALING_ACTIVE] = scaling
    return verdicts


def _planned(situation: Situation) -> Verdict:
    observed, selection = situation.observed, situation.intent.selection
    if observed.spec is None:
        return Verdict(
            status="False",
            reason=Reason.INVALID_SPEC,
            message=f"this release cannot read the spec ({observed.spec_error}); nothing is changed until it can",
        )
    if selection.blocked:
        return Verdict(status="Unknown", reason=Reason.RECONCILING, message=selection.blocked)
    refusal = selection.refusal
    if refusal is not None:
        kept = f"; revision {selection.active.name} stays as it is" if selection.active is not None else ""
        status: ConditionStatus = "False" if refusal.certain else "Unknown"
        return Verdict(status=status, reason=refusal.reason, message=refusal.message + kept)
    failure = _wanted_failure(situation)
    limited = selection.wanted is not None and selection.wanted.plan.host_memory_limited
    ours = planned_memory_classes(limited=limited)
    if selection.exhausted and failure is not None and failure.failure_class in ours:
        return Verdict(status="False", reason=failure.failure_class, message=failure.message)
    if selection.active is None:
        return Verdict(status="Unknown", reason=Reason.RECONCILING)
    words = told_plan(selection.active.plan)
    if selection.correction is not None:
        said = selection.correction.message
        return Verdict(
            status="True",
            reason=Reason.PLAN_CORRECTED,
            message=f"{words}; corrected once, since the engine said: {said}",
        )
    missed = selection.active.plan.missed
    if missed:
        return Verdict(status="True", reason=Reason.OBJECTIVE_MISSED, message="; ".join((words, *missed)))
    return Verdict(status="True", reason=Reason.PLANNED, message=words)


def told_plan(plan: Plan) -> str:
    """The plan in one line."""
    count = f"{plan.accelerators_per_replica} x " if plan.accelerators_per_replica > 1 else ""
    return (
        f"{count}{plan.accelerator.name}, context {plan.knobs.max_model_len} tokens, "
        f"{plan.kv_cache_tokens} KV tokens, {plan.max_concurrency:.1f} requests of full length at once"
    )


def _available(situation: Situation) -> Verdict:
    ready, target = situation.summary.ready, situation.intent.target
    if ready > 0:
        return Verdict(
            status="True",
            reason=Reason.REPLICAS_AVAILABLE,
            message=f"{_count(ready, 'replica')} of {target} answer{'s' if ready == 1 else ''} requests",
        )
    if _zero_wanted(situation):
        return Verdict(status="True", reason=Reason.SCALED_TO_ZERO, message="no replica is wanted")
    trouble = situation.summary.trouble
    if trouble is not None:
        return Verdict(status="False", reason=trouble.reason, message=trouble.message)
    return Verdict(
        status="False", reason=Reason.NO_READY_REPLICAS, message=f"none of {target} replicas is ready"
    )


def _progressing(situation: Situation, planned: Verdict) -> Verdict:
    answers = (ask(situation, planned) for ask in _PROGRESS_QUESTIONS)
    return next(answer for answer in answers if answer is not None)


def _paused(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    if not situation.intent.paused:
        return None
    return Verdict(
        status="False",
        reason=Reason.PAUSED,
        message='the annotation llmservice.dev/paused is "true": nothing but the status is written; '
        "remove it to go on",
    )


def _problem(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    if not situation.problems:
        return None
    worst = min(situation.problems, key=lambda each: (not each.needs_person, each.kind))
    return Verdict(status="False", reason=worst.reason, message=worst.message)


def _unplanned(situation: Situation, planned: Verdict) -> Verdict | None:
    nothing = situation.intent.selection.active is None or situation.intent.selection.refusal is not None
    if nothing and planned.status != "True":
        return Verdict(status="False", reason=planned.reason, message=planned.message)
    return None


def _exhausted(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    selection = situation.intent.selection
    if not selection.exhausted or selection.wanted is None:
        return None
    failure = _wanted_failure(situation)
    reason = failure.failure_class if failure is not None else Reason.OUT_OF_MEMORY
    words = failure.message if failure is not None else "its start failed for memory"
    if selection.active is None or selection.no_replicas:
        outcome = "no replica is left, so that no accelerator is held"
    else:
        outcome = f"the last good revision {selection.active.name} runs in its place"
    return Verdict(
        status="False",
        reason=reason,
        message=f"revision {selection.wanted.name} does not start ({words}); {outcome}; {RESTART_MEND}",
    )


def _wanted_failure(situation: Situation) -> FailureStatus | None:
    """The last failure, where it is of the wanted revision and not of one that runs in its place."""
    wanted, failure = situation.intent.selection.wanted, situation.last_failure
    ours = wanted is not None and failure is not None and failure.revision == wanted.name
    return failure if ours else None


def _rolled(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    """The reconcile that changes the revision: the pods have not heard of it yet.

    Where none runs and none is wanted there is nobody to hear of it, and no event would tell of an end.
    """
    selection = situation.intent.selection
    if situation.intent.target == 0 and not situation.summary.live:
        return None
    if selection.verdict == "first":
        return Verdict(status="True", reason=Reason.RECONCILING, message="the children are being made")
    if selection.verdict == "keep" or selection.wanted is None:
        return None
    return Verdict(
        status="True",
        reason=Reason.ROLLING_OUT,
        message=f"revision {selection.wanted.name} is being rolled out: {told_differences(selection.differences)}",
    )


def _troubled(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    trouble = situation.summary.trouble
    if trouble is None or _complete(situation, Verdict(status="True", reason="")) is not None:
        return None
    return Verdict(status="False", reason=trouble.reason, message=trouble.message)


def _complete(situation: Situation, _planned_verdict: Verdict) -> Verdict | None:
    summary, target = situation.summary, situation.intent.target
    if summary.current_ready < target or summary.old or len(summary.live) != target:
        return None
    if target == 0:
        return Verdict(
            status="True", reason=Reason.SCALED_TO_ZERO, message="no replica is wanted, and none runs"
        )
    return Verdict(
        status="True", reason=Reason.COMPLETE, message=f"{_count(target, 'replica')} up to date and ready"
    )


def _on_its_way(situation: Situation, _planned_verdict: Verdict) -> Verdict:
    intent, summary = situation.intent, situation.summary
    held = intent.replicas is not None and intent.replicas.held_back
    later = (
        f"; the other {intent.target - 1} replicas follow its report" if held and intent.target > 1 else ""
    )
    if summary.furthest is not None:
        reason, message = told_stage(summary.furthest)
        if summary.old and summary.ready:
            reason = Reason.ROLLING_OUT if reason != Reason.LOADING_WEIGHTS else reason
        return Verdict(status="True", reason=reason, message=message + later)
    if held:
        return Verdict(status="True", reason=Reason.PROVING_PLAN, message=f"one replica starts first{later}")
    if summary.old:
        return Verdict(
            status="True",
            reason=Reason.ROLLING_OUT,
            message=f"{_count(summary.old, 'replica')} of an older revision to go",
        )
    if len(summary.live) != intent.target:
        return Verdict(
            status="True",
            reason=Reason.SCALING,
            message=f"from {len(summary.live)} to {_count(intent.target, 'replica')}",
        )
    return Verdict(status="True", reason=Reason.RECONCILING)


_PROGRESS_QUESTIONS: tuple[Callable[[Situation, Verdict], Verdict | None], ...] = (
    _paused,
    _problem,
    _unplanned,
    _exhausted,
    _rolled,
    _complete,
    _troubled,
    _on_its_way,
)


def _ready(situation: Situation, planned: Verdict, progressing: Verdict) -> Verdict:
    summary, target = situation.summary, situation.intent.target
    selection = situation.intent.selection
    if situation.problems or selection.exhausted:
        return Verdict(status="False", reason=progressing.reason, message=progressing.message)
    if planned.status != "True" or selection.active is None:
        return Verdict(status="False", reason=planned.reason, message=planned.message)
    if _zero_wanted(situation):
        return Verdict(status="True", reason=Reason.SCALED_TO_ZERO, message="no replica is wanted")
    if summary.current_ready >= target:
        return Verdict(
            status="True",
            reason=Reason.READY,
            message=f"{_count(target, 'replica')} ready: {told_plan(selection.active.plan)}",
        )
    return Verdict(
        status="False",
        reason=progressing.reason,
        message=f"{summary.current_ready} of {_count(target, 'replica')} ready; {progressing.message}",
    )


def _stalled(situation: Situation, planned: Verdict) -> Verdict:
    selection = situation.intent.selection
    if situation.observed.spec is None or selection.blocked:
        return Verdict(status="True", reason=planned.reason, message=planned.message)
    if selection.refusal is not None and selection.refusal.certain:
        return Verdict(status="True", reason=planned.reason, message=planned.message)
    problem = next((each for each in situation.problems if each.needs_person), None)
    if problem is not None:
        return Verdict(status="True", reason=problem.reason, message=problem.message)
    exhausted = _exhausted(situation, planned)
    if exhausted is not None:
        return Verdict(status="True", reason=exhausted.reason, message=exhausted.message)
    trouble = situation.summary.trouble
    # A memory failure of an unproven plan is the operator's to mend, until it is exhausted.
    ours = selection.verdict == "corrected"
    if trouble is not None and trouble.needs_person and not ours and situation.intent.target > 0:
        return Verdict(status="True", reason=trouble.reason, message=trouble.message)
    return Verdict(status="False", reason=Reason.NOT_STALLED)


def _up_to_date(situation: Situation) -> Verdict:
    selection = situation.intent.selection
    if selection.active is None:
        return Verdict(status="Unknown", reason=Reason.NOT_YET_PLANNED)
    if selection.unknown_candidate is not None or selection.refusal is not None:
        refusal = selection.unknown_candidate or selection.refusal
        words = refusal.message if refusal is not None else ""
        return Verdict(status="Unknown", reason=Reason.NOT_YET_PLANNED, message=words)
    if selection.verdict != "keep" or not selection.differences:
        return Verdict(status="True", reason=Reason.UP_TO_DATE, message=_told_revision(selection.active))
    return Verdict(
        status="False",
        reason=Reason.REFRESH_AVAILABLE,
        message=f"this release would change: {told_differences(selection.differences)}; to take it, which restarts the "
        f"pods, set the annotation {REFRESH_ANNOTATION} to a new text",
    )


def _plan_accurate(situation: Situation) -> Verdict:
    active = situation.intent.selection.active
    if active is None:
        return Verdict(status="Unknown", reason=Reason.NOT_YET_PLANNED)
    found = finding(situation.engine, active.plan, active.name)
    status: ConditionStatus = "Unknown" if found.accurate is None else "True" if found.accurate else "False"
    return Verdict(status=status, reason=found.reason, message=found.message)


def _scaling_active(situation: Situation) -> Verdict | None:
    observed, choice = situation.observed, situation.intent.replicas
    if observed.spec is None or choice is None:
        return None
    if choice.held_by:
        return Verdict(status="False", reason=Reason.REPLICAS_OWNED_BY_OTHER, message=choice.message)
    bounds = scaling_bounds(observed.spec)
    if bounds is None:
        return None
    least, most = bounds
    current = ((observed.deployment or {}).get("spec") or {}).get("replicas")
    words = f"{_count(choice.wanted, 'replica')}, within {least} to {most}"
    if isinstance(current, int) and current < least:
        return Verdict(status="True", reason=Reason.RAISED_TO_MINIMUM, message=words)
    if isinstance(current, int) and current > most:
        return Verdict(status="True", reason=Reason.LOWERED_TO_MAXIMUM, message=words)
    return Verdict(status="True", reason=Reason.WITHIN_BOUNDS, message=words)


def told_differences(differences: tuple[str, ...]) -> str:
    """The first few differences, and how many more there are."""
    if not differences:
        return "nothing that pods see"
    more = len(differences) - MAX_DIFFERENCES
    return "; ".join(differences[:MAX_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _zero_wanted(situation: Situation) -> bool:
    selection = situation.intent.selection
    return (
        situation.intent.target == 0
        and situation.intent.replicas is not None
        and selection.active is not None
        and not selection.no_replicas
    )


def _told_revision(revision: Revision) -> str:
    return f"revision {revision.name}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
