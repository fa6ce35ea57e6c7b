"""What the pods of one service come to: counts, the one that is furthest, the trouble worth telling. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.api.conditions import Reason
from llmservice_operator.controller.observed import Observed
from llmservice_operator.controller.podstate import PodStage, PodState, Trouble

RECENT_END_SECONDS = 600.0
"""How long a pod that will never run again is worth a word."""

_POD_NAME = re.compile(r'^pods "[^"]*" is forbidden: ')
_STEPS = {
    "import": "it is importing its libraries",
    "load": "it is loading the weights",
    "compile": "it is compiling",
    "profile": "it is profiling memory",
    "capture": "it is capturing CUDA graphs",
    "warmup": "it is warming up",
    "serving": "it is about to serve",
}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The pods, counted and told."""

    live: tuple[PodState, ...]
    ready: int
    """Live pods that answer requests."""
    current_ready: int
    """Those of the active revision."""
    old: int
    """Live pods of other revisions."""
    furthest: PodState | None
    """Of those that are on their way, the one that is furthest."""
    trouble: Trouble | None
    failed: PodState | None
    """The pod whose engine ended last."""


def summarise(observed: Observed, active: str, now: float) -> Summary:
    """The pods of the service, with the revision of this name as the active one."""
    live = tuple(pod for pod in observed.pods if pod.live)
    current = [pod for pod in live if pod.revision == active]
    ready = [pod for pod in live if pod.stage == PodStage.READY]
    waiting = [pod for pod in live if pod.stage != PodStage.READY]
    failed = [pod for pod in observed.pods if pod.trouble is not None and pod.trouble.failure is not None]
    return Summary(
        live=live,
        ready=len(ready),
        current_ready=sum(pod.revision == active for pod in ready),
        old=len(live) - len(current),
        furthest=max(waiting, key=_distance, default=None),
        trouble=_refused_pods(observed.deployment) or _absent(observed) or _worst(observed, active, now),
        failed=max(failed, key=_failure_time, default=None),
    )


def told_stage(pod: PodState) -> tuple[str, str]:
    """(reason, message) of a pod that is on its way."""
    where = f" on {pod.node_name}" if pod.node_name else ""
    if pod.stage == PodStage.UNSCHEDULED:
        return Reason.POD_STARTING, f"pod {pod.name} waits for a node"
    if pod.stage == PodStage.CREATING:
        return Reason.POD_STARTING, f"pod {pod.name} is being made{where}: volumes, images, the supervisor"
    report = pod.report
    if report is None or not report.step:
        return Reason.ENGINE_STARTING, f"the engine starts in pod {pod.name}{where}"
    if report.step == "load" and report.load.total_bytes:
        return Reason.LOADING_WEIGHTS, f"pod {pod.name}{where}: {_told_load(pod)}"
    doing = _STEPS.get(report.step, f"step {report.step}")
    return Reason.ENGINE_STARTING, f"the engine starts in pod {pod.name}{where}: {doing}"


def _told_load(pod: PodState) -> str:
    load = pod.report.load if pod.report is not None else None
    if load is None or not load.total_bytes:
        return "the weights are being read"
    loaded = load.loaded_bytes or 0
    words = f"{_gib(loaded)} of {_gib(load.total_bytes)} GiB of weights read"
    if load.bytes_per_second:
        words += f", {load.bytes_per_second / 2**20:.0f} MiB/s"
    if load.seconds_left is not None:
        words += f", about {load.seconds_left:.0f} s left"
    return words


def _refused_pods(deployment: Mapping[str, Any] | None) -> Trouble | None:
    """The API server refuses to make pods: quota, Pod Security, a webhook, an admission policy."""
    conditions = ((deployment or {}).get("status") or {}).get("conditions") or []
    failure = next((each for each in conditions if each.get("type") == "ReplicaFailure"), None)
    if failure is None or failure.get("status") != "True":
        return None
    # The name is another one at each attempt.
    words = _POD_NAME.sub("pods are forbidden: ", failure.get("message", ""))
    return Trouble(reason=Reason.POD_REFUSED, message=words, needs_person=True)


def _absent(observed: Observed) -> Trouble | None:
    """A pod waits for what its volumes need."""
    if not observed.absent_volumes:
        return None
    words = ", ".join(observed.absent_volumes)
    return Trouble(
        reason=Reason.VOLUME_NOT_MOUNTED,
        message=f"{words}: not there in namespace {observed.key.namespace}, and a volume of the pod needs it; "
        "create it, or correct its name in spec.podTemplate.volumes or spec.model.cache",
        needs_person=True,
    )


def _worst(observed: Observed, active: str, now: float) -> Trouble | None:
    """Of pods in trouble: of the active revision first, one that needs a person first, then the oldest."""
    troubled = [pod for pod in observed.pods if pod.trouble is not None and (pod.live or _recent(pod, now))]
    covered = any(pod.live and pod.trouble is None for pod in observed.pods)
    # A pod that is over has been replaced; it explains something only while its successor does not run.
    worth = [pod for pod in troubled if pod.stage != PodStage.ENDED or not covered]
    worst = min(
        worth,
        key=lambda pod: (
            not pod.live,
            pod.revision != active,
            pod.trouble is None or not pod.trouble.needs_person,
            pod.created_at,
            pod.name,
        ),
        default=None,
    )
    return None if worst is None else worst.trouble


def _recent(pod: PodState, now: float) -> bool:
    return now - pod.created_at < RECENT_END_SECONDS or pod.stage == PodStage.STOPPING


def _distance(pod: PodState) -> tuple[int, float, str]:
    order = {PodStage.UNSCHEDULED: 0, PodStage.CREATING: 1, PodStage.STARTING: 2}
    return order.get(pod.stage, -1), -pod.created_at, pod.name


def _failure_time(pod: PodState) -> tuple[float, str]:
    failed_at = pod.trouble.failed_at if pod.trouble is not None else None
    # A hold has no end yet: it is the newest.
    return (float("inf") if failed_at is None else failed_at), pod.name


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f}"
