"""What a pod's own status says, in one stage and at most one trouble. Pure.

The kubelet, the scheduler and the controllers tell the same story in many places; here each pod is read once,
by a chain of small readers in the order in which a pod lives. The first that has something to say ends it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from llmservice_operator.api import labels
from llmservice_operator.api.conditions import Reason
from llmservice_operator.clients.engine import EngineFailure, EngineReport, parse_termination_message
from llmservice_operator.controller import failures

INIT_FAILED = "InitFailed"
"""The init container that brings the supervisor ended with an error."""
NODE_LOST = "NodeLost"
"""The pod's node no longer answers."""
POD_PREEMPTED = "PodPreempted"
"""The pod had to make room for one of a higher priority."""

SLOW_CREATION_SECONDS = 60.0
"""A pod whose containers are not made after so long waits for more than its turn."""
PROBE_PATIENCE_SECONDS = 10.0
"""A started engine that is not ready for less than this is on its way, not in trouble."""
OVERDUE_DELETION_SECONDS = 60.0

_PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*":? ?(?:ErrImagePull: )?')
_LOG_TAIL_CHARS = 600
"""Where the supervisor left no message, the kubelet puts the end of the log there."""
_CLAIM_WORDS = ("persistentvolumeclaim", "PersistentVolumeClaim")


class PodStage(StrEnum):
    """Where a pod is in its life."""

    UNSCHEDULED = "Unscheduled"
    CREATING = "Creating"
    """Bound to a node; volumes, images and the init container."""
    STARTING = "Starting"
    """The engine's container runs, or will again, and does not serve."""
    READY = "Ready"
    STOPPING = "Stopping"
    ENDED = "Ended"
    """The pod will never run again; its Deployment has made another."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a pod does not get on. `needs_person` tells whether waiting may help."""

    reason: str
    message: str
    needs_person: bool
    failure: EngineFailure | None = None
    failed_at: float | None = None
    """When the engine ended, in seconds since the Unix epoch, where the pod says so."""


@dataclass(frozen=True, kw_only=True)
class PodState:
    """One pod, read."""

    name: str
    revision: str
    node_name: str
    stage: PodStage
    created_at: float
    uid: str = ""
    host: str = ""
    restarts: int = 0
    """Restarts of the engine's container."""
    engine_started_at: float | None = None
    ready_since: float | None = None
    """When a ready pod became so, in seconds since the Unix epoch."""
    trouble: Trouble | None = None
    report: EngineReport | None = None
    """What the supervisor said now, of this very revision."""

    @property
    def live(self) -> bool:
        """Whether it is a replica: neither on its way out nor over."""
        return self.stage not in (PodStage.STOPPING, PodStage.ENDED)


@dataclass(frozen=True, kw_only=True)
class _View:
    pod: Mapping[str, Any]
    status: Mapping[str, Any]
    conditions: Mapping[str, Mapping[str, Any]]
    init: Mapping[str, Any]
    engine: Mapping[str, Any]
    report: EngineReport | None
    now: float


_Found = tuple[PodStage, Trouble | None]


def read_pod(pod: Mapping[str, Any], report: EngineReport | None, now: float) -> PodState:
    """The state of this pod. `report` is the supervisor's answer, if it gave one; `now` in Unix seconds."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    revision = (metadata.get("labels") or {}).get(labels.REVISION_LABEL, "")
    if report is not None and report.revision and revision and report.revision != revision:
        report = None  # a pod address that has been given to another pod since
    view = _View(
        pod=pod,
        status=status,
        conditions={each.get("type", ""): each for each in status.get("conditions") or []},
        init=_container(status.get("initContainerStatuses"), labels.SUPERVISOR_CONTAINER),
        engine=_container(status.get("containerStatuses"), labels.ENGINE_CONTAINER),
        report=report,
        now=now,
    )
    stage, trouble = next(found for reader in _READERS if (found := reader(view)) is not None)
    running = (view.engine.get("state") or {}).get("running") or {}
    return PodState(
        name=metadata.get("name", ""),
        revision=revision,
        node_name=(pod.get("spec") or {}).get("nodeName", ""),
        stage=stage,
        created_at=_seconds(metadata.get("creationTimestamp")) or now,
        uid=metadata.get("uid", ""),
        host=status.get("podIP", ""),
        restarts=int(view.engine.get("restartCount") or 0),
        engine_started_at=_seconds(running.get("startedAt")),
        ready_since=_seconds(view.conditions.get("Ready", {}).get("lastTransitionTime"))
        if stage == PodStage.READY
        else None,
        trouble=trouble,
        report=report,
    )


def report_address(pod: Mapping[str, Any]) -> tuple[str, int] | None:
    """Where the pod's supervisor answers, while its engine's container runs."""
    status = pod.get("status", {})
    engine = _container(status.get("containerStatuses"), labels.ENGINE_CONTAINER)
    host = status.get("podIP")
    running = "running" in (engine.get("state") or {})
    return (host, labels.SUPERVISOR_PORT) if host and running else None


def _stopping(view: _View) -> _Found | None:
    deletion = _seconds(view.pod.get("metadata", {}).get("deletionTimestamp"))
    if deletion is None:
        return None
    # deletionTimestamp is already the end of the grace period.
    if view.now - deletion <= OVERDUE_DELETION_SECONDS:
        return _disrupted(view) or (PodStage.STOPPING, None)
    node = (view.pod.get("spec") or {}).get("nodeName", "")
    return PodStage.STOPPING, Trouble(
        reason=NODE_LOST,
        message=f"the pod should be gone and its node {node} does not say so; if the node is lost, delete "
        "the Node object",
        needs_person=False,
    )


def _ended(view: _View) -> _Found | None:
    phase = view.status.get("phase")
    if phase not in ("Failed", "Succeeded"):
        return None
    reason, message = view.status.get("reason", ""), view.status.get("message", "")
    disruption = view.conditions.get("DisruptionTarget", {})
    if reason == "NodeLost":
        ours: str = NODE_LOST
    elif reason == "Preempting" or disruption.get("reason") == "PreemptionByScheduler":
        ours = POD_PREEMPTED
    elif reason == "Evicted" or disruption.get("status") == "True":
        ours = Reason.POD_EVICTED
    else:
        ours = Reason.POD_REFUSED if reason else Reason.UNKNOWN
    words = message or disruption.get("message") or f"the pod ended in phase {phase}"
    return PodStage.ENDED, Trouble(
        reason=ours, message=f"{reason}: {words}" if reason else words, needs_person=False
    )


def _disrupted(view: _View) -> _Found | None:
    disruption = view.conditions.get("DisruptionTarget", {})
    if disruption.get("status") != "True":
        return None
    preempted = disruption.get("reason") == "PreemptionByScheduler"
    return PodStage.STOPPING, Trouble(
        reason=POD_PREEMPTED if preempted else Reason.POD_EVICTED,
        message=f"{disruption.get('reason', '')}: {disruption.get('message', '')}",
        needs_person=False,
    )


def _unscheduled(view: _View) -> _Found | None:
    scheduled = view.conditions.get("PodScheduled", {})
    if scheduled.get("status") == "True" or (view.pod.get("spec") or {}).get("nodeName"):
        return None
    message = scheduled.get("message", "")
    if scheduled.get("status") != "False":
        return PodStage.UNSCHEDULED, None
    if any(word in message for word in _CLAIM_WORDS):
        return PodStage.UNSCHEDULED, Trouble(
            reason=Reason.VOLUME_NOT_MOUNTED,
            message=f"{message}; create the claim, or correct its name in the service",
            needs_person="not found" in message,
        )
    return PodStage.UNSCHEDULED, Trouble(
        reason=Reason.UNSCHEDULABLE, message=message or "the scheduler gave no message", needs_person=False
    )


def _initializing(view: _View) -> _Found | None:
    state = view.init.get("state") or {}
    ended = state.get("terminated") or (view.init.get("lastState") or {}).get("terminated")
    if (state.get("terminated") or {}).get("exitCode") == 0 or not state:
        return None
    trouble = _waiting_trouble(state.get("waiting") or {})
    if trouble is None and ended is not None and ended.get("exitCode") != 0:
        words = ended.get("message") or ended.get("reason") or "no words"
        trouble = Trouble(
            reason=INIT_FAILED,
            message=f"the init container {labels.SUPERVISOR_CONTAINER} ended with exit code "
            f"{ended.get('exitCode')} ({words.strip()}); see kubectl logs {_name(view)} "
            f"-c {labels.SUPERVISOR_CONTAINER}",
            needs_person=int(view.init.get("restartCount") or 0) >= failures.LOOP_RESTARTS,
        )
    return (PodStage.CREATING, trouble or _slow_creation(view)) if _unstarted(view) else None


def _creating(view: _View) -> _Found | None:
    if not _unstarted(view):
        return None
    waiting = (view.engine.get("state") or {}).get("waiting") or {}
    return PodStage.CREATING, _waiting_trouble(waiting) or _slow_creation(view)


def _crashed(view: _View) -> _Found | None:
    """The engine's container is down between two starts."""
    state = view.engine.get("state") or {}
    if "running" in state:
        return None
    waiting = state.get("waiting") or {}
    if (trouble := _waiting_trouble(waiting)) is not None:
        return PodStage.STARTING, trouble
    return PodStage.STARTING, _exit_trouble(view, state.get("terminated"))


def _ready(view: _View) -> _Found | None:
    if view.conditions.get("Ready", {}).get("status") == "True":
        return PodStage.READY, None
    return None


def _running(view: _View) -> _Found:
    """The engine's container runs, and the pod is not ready."""
    if view.report is not None and view.report.failure is not None:
        failure = view.report.failure
        restarts = int(view.engine.get("restartCount") or 0)
        return PodStage.STARTING, _failure_trouble(failure, restarts, None)
    if (trouble := _exit_trouble(view, None)) is not None:
        return PodStage.STARTING, trouble
    ready = view.conditions.get("Ready", {})
    if view.conditions.get("ContainersReady", {}).get("status") == "True":
        # Only the node's controller says no to a pod whose containers are all ready: the node is silent.
        node = (view.pod.get("spec") or {}).get("nodeName", "")
        return PodStage.STARTING, Trouble(
            reason=NODE_LOST,
            message=f"node {node} does not answer any more; its pods are replaced after the toleration of "
            "its taint, five minutes unless said otherwise",
            needs_person=False,
        )
    since = _unready_since(view, _seconds(ready.get("lastTransitionTime")))
    draining = view.report is not None and view.report.phase == "Draining"
    served = view.engine.get("started") is True and not draining
    if served and since is not None and view.now - since > PROBE_PATIENCE_SECONDS:
        return PodStage.STARTING, Trouble(
            reason=Reason.PROBE_FAILING,
            message="the engine has started and its readiness probe fails: it does not answer /health; "
            f"it is restarted if it hangs; see kubectl logs {_name(view)}",
            needs_person=False,
        )
    return PodStage.STARTING, None


def _unready_since(view: _View, changed_at: float | None) -> float | None:
    """Since when the engine could have been ready and is not; None where it never was.

    The pod's condition has said no since the pod was made: at a first start that is long before the engine served.
    """
    if view.report is None or changed_at is None:
        return changed_at
    return None if view.report.ready_at is None else max(changed_at, view.report.ready_at)


_READERS: tuple[Callable[[_View], _Found | None], ...] = (
    _ended,
    _stopping,
    _disrupted,
    _unscheduled,
    _initializing,
    _creating,
    _ready,
    _crashed,
    _running,
)


def _waiting_trouble(waiting: Mapping[str, Any]) -> Trouble | None:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL_REASONS:
        # The kubelet says the same in two ways in turn; the condition must not flap between them.
        words = _BACK_OFF.sub("", message) or message or reason
        return Trouble(
            reason=Reason.IMAGE_PULL_FAILED,
            message=f"{words}; correct the image, or name a pull secret in spec.podTemplate.imagePullSecrets",
            needs_person=True,
        )
    if reason in _CONFIG_REASONS:
        return Trouble(
            reason=Reason.CONTAINER_CONFIG_INVALID, message=f"{reason}: {message}", needs_person=True
        )
    return None


def _slow_creation(view: _View) -> Trouble | None:
    scheduled_at = _seconds(view.conditions.get("PodScheduled", {}).get("lastTransitionTime"))
    running = any("running" in (each.get("state") or {}) for each in (view.init, view.engine))
    if scheduled_at is None or running or view.now - scheduled_at < SLOW_CREATION_SECONDS:
        return None
    return Trouble(
        reason=Reason.VOLUME_NOT_MOUNTED,
        message="the pod is bound to a node and its containers are not made for over "
        f"{SLOW_CREATION_SECONDS:.0f} s: an image is still pulled, or a volume (claim, ConfigMap, Secret) is "
        f"missing or cannot be attached; see the events of kubectl describe pod {_name(view)}",
        needs_person=False,
    )


def _exit_trouble(view: _View, terminated: Mapping[str, Any] | None) -> Trouble | None:
    """What the last end of the engine's container tells, if it has ended before."""
    ended = terminated or (view.engine.get("lastState") or {}).get("terminated")
    if not ended:
        return None
    restarts = int(view.engine.get("restartCount") or 0)
    finished_at = _seconds(ended.get("finishedAt"))
    parsed = parse_termination_message(ended.get("message") or "")
    if parsed is not None:
        return _failure_trouble(parsed[1], restarts, finished_at)
    exit_code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        failure = EngineFailure(
            failure_class=Reason.HOST_OUT_OF_MEMORY,
            message="the kernel killed the container for its memory limit",
            exit_code=exit_code,
        )
    else:
        words = (ended.get("message") or "").strip()[-_LOG_TAIL_CHARS:] or ended.get("reason") or "no words"
        failure = EngineFailure(
            failure_class=Reason.UNKNOWN,
            message=f"the container ended with exit code {exit_code} and left {words}",
            exit_code=exit_code,
        )
    return _failure_trouble(failure, restarts, finished_at)


def _failure_trouble(failure: EngineFailure, restarts: int, failed_at: float | None) -> Trouble | None:
    if failure.failure_class == Reason.STOPPED:
        return None  # it was asked to stop: no trouble of its own
    return Trouble(
        reason=failures.reason_of(failure, restarts),
        message=failures.message_of(failure, restarts),
        needs_person=failures.needs_person(failure, restarts),
        failure=failure,
        failed_at=failed_at,
    )


def _unstarted(view: _View) -> bool:
    """Whether the engine's container has never run in this pod."""
    state = view.engine.get("state") or {}
    never = not view.engine.get("restartCount") and "terminated" not in (view.engine.get("lastState") or {})
    return never and "running" not in state and "terminated" not in state


def _container(statuses: list[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    return next((each for each in statuses or [] if each.get("name") == name), {})


def _name(view: _View) -> str:
    return str(view.pod.get("metadata", {}).get("name", ""))


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
