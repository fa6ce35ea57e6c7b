"""Whether a revision has proved that it starts, and what follows when its start fails for memory. Pure.

A revision is unproven until one of its engines became ready. An unproven one starts on one replica. When that
start fails for memory:

    failed start             revision was not corrected                  revision is itself a correction
    KvCacheTooSmall, OOM     correct the plan once                       exhausted
    DeviceNotEmpty           start again; then correct the plan once     start again, then exhausted
                             for what is free, where the engine said

A container that its own memory limit ended (HostOutOfMemory on the CPU row, where the limit is the plan) counts as OOM.

Exhausted: the last good revision comes back, or, where there is none, no replica is left. What is known is kept
in `status.start.revisions`: `starts` counts failed starts; at `MAX_STARTS` there is nothing left to try.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from llmservice_operator.api.conditions import Reason
from llmservice_operator.api.status import FailureStatus, RevisionStarts
from llmservice_operator.clients.engine import EngineFailure
from llmservice_operator.controller import failures
from llmservice_operator.controller.failed_start import correction_of, tells_what_is_free
from llmservice_operator.controller.podstate import PodStage, PodState
from llmservice_operator.planning.types import MemoryCorrection, Plan

MAX_STARTS = 2
"""Starts that may fail for memory, per service and revision."""
KEPT_REVISIONS = 6
"""Records kept in the status: the revision history, what runs, and room for a rollback's two."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What is known of the revision that is wanted."""

    record: RevisionStarts
    correction: MemoryCorrection | None = None
    """The plan is to be made again from this, once."""
    failed: PodState | None = None
    """The pod whose start failed for memory."""

    @property
    def exhausted(self) -> bool:
        """It does not start, and nothing is left to try."""
        return not self.record.proven and self.record.starts >= MAX_STARTS


def record_of(revision: str, records: Iterable[RevisionStarts]) -> RevisionStarts:
    """The record of this revision; a fresh one where none is kept."""
    return next((each for each in records if each.revision == revision), RevisionStarts(revision=revision))


def examine(
    record: RevisionStarts,
    pods: Iterable[PodState],
    last_failure: FailureStatus | None,
    plan: Plan | None = None,
) -> Proof:
    """What the pods of the record's revision prove, on top of what was known.

    `last_failure` is the one in the status: a start that is in it has been counted. `plan` is the revision's own.
    """
    limited = plan is not None and plan.host_memory_limited
    ours = [pod for pod in pods if pod.revision == record.revision]
    if record.proven or any(_proves(pod) for pod in ours):
        return Proof(record=record.model_copy(update={"proven": True}))
    counted = failures.memory_classes(limited=limited)
    failed = next((pod for pod in ours if _memory_failure(pod, counted) is not None), None)
    failure = None if failed is None else _memory_failure(failed, counted)
    if failed is None or failure is None:
        return Proof(record=record)
    starts = record.starts if _counted(failed, last_failure) else record.starts + 1
    ours_to_mend = failure.failure_class in failures.planned_memory_classes(limited=limited)
    if ours_to_mend and record.corrected:
        starts = MAX_STARTS  # the engine's own numbers were obeyed already: the same start would fail again
    record = record.model_copy(update={"starts": min(starts, MAX_STARTS)})
    # Who holds a card may be about to leave it; who still does at the second start is planned around.
    stays = failure.failure_class == Reason.DEVICE_NOT_EMPTY and starts >= MAX_STARTS
    may_correct = not record.corrected and (
        (ours_to_mend and starts < MAX_STARTS) or (stays and tells_what_is_free(failure))
    )
    correction = correction_of(failure, failed.report, plan) if may_correct else None
    return Proof(record=record, correction=correction, failed=failed)


def exhaust(proof: Proof) -> Proof:
    """The same, with nothing left to try: no other plan came out of the correction."""
    return Proof(record=proof.record.model_copy(update={"starts": MAX_STARTS}), failed=proof.failed)


def keep(
    records: Iterable[RevisionStarts], changed: Iterable[RevisionStarts], existing: frozenset[str]
) -> tuple[RevisionStarts, ...]:
    """The records with the changed ones in their place or added, without those of revisions that are gone."""
    merged = {each.revision: each for each in records}
    merged.update({each.revision: each for each in changed})
    return tuple(each for name, each in merged.items() if name in existing)[-KEPT_REVISIONS:]


def _proves(pod: PodState) -> bool:
    # A ready pod is the kubelet's word for the supervisor's /ready, for when /report cannot be reached.
    return pod.stage == PodStage.READY or (pod.report is not None and pod.report.phase == "Ready")


def _memory_failure(pod: PodState, classes: frozenset[str]) -> EngineFailure | None:
    failure = pod.trouble.failure if pod.trouble is not None else None
    return failure if failure is not None and failure.failure_class in classes else None


def _counted(pod: PodState, last_failure: FailureStatus | None) -> bool:
    """Whether this very failure is the one in the status.

    A hold is seen first in the report (no end yet), then in the container's last state: there the restart
    count has grown by one, and it is still the same start.
    """
    if last_failure is None or last_failure.pod != pod.name:
        return False
    return last_failure.restarts == failed_start(pod)


def failed_start(pod: PodState) -> int:
    """Which start of the pod's engine failed, from 0: the running one if it says so itself, else the last."""
    held = pod.report is not None and pod.report.failure is not None
    return pod.restarts if held or pod.engine_started_at is None else max(pod.restarts - 1, 0)
