"""Each way in which a pod does not get on is told by one reason and in words that a user can act on."""

import json
from typing import Any

import pytest

import factories as make
from llmservice_operator.clients.engine import parse_report
from llmservice_operator.controller.podstate import PodStage, PodState, read_pod, report_address


def read(pod: dict[str, Any], report: dict[str, Any] | None = None, *, later: float = 0) -> PodState:
    return read_pod(pod, None if report is None else parse_report(json.dumps(report)), make.NOW + later)


UNSCHEDULABLE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available"
PULL = 'failed to pull and unpack image "registry.test/none:1": not found'

TROUBLES = {
    "unschedulable": (
        make.pod(
            scheduled=False,
            conditions=(
                make.condition("PodScheduled", "False", reason="Unschedulable", message=UNSCHEDULABLE),
            ),
        ),
        PodStage.UNSCHEDULED,
        "Unschedulable",
        "2 Insufficient nvidia.com/gpu",
        False,
    ),
    "missing claim": (
        make.pod(
            scheduled=False,
            conditions=(
                make.condition(
                    "PodScheduled",
                    "False",
                    reason="Unschedulable",
                    message='0/2 nodes are available: persistentvolumeclaim "models" not found',
                ),
            ),
        ),
        PodStage.UNSCHEDULED,
        "VolumeNotMounted",
        'persistentvolumeclaim "models" not found',
        True,
    ),
    "unbound claim": (
        make.pod(
            scheduled=False,
            conditions=(
                make.condition(
                    "PodScheduled",
                    "False",
                    reason="Unschedulable",
                    message="0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims",
                ),
            ),
        ),
        PodStage.UNSCHEDULED,
        "VolumeNotMounted",
        "unbound immediate PersistentVolumeClaims",
        False,
    ),
    "image pull": (
        make.pod(
            init=make.INIT_DONE,
            engine=make.container_status("engine", waiting={"reason": "ErrImagePull", "message": PULL}),
        ),
        PodStage.CREATING,
        "ImagePullFailed",
        PULL,
        True,
    ),
    "supervisor's image pull": (
        make.pod(
            init=make.container_status("supervisor", waiting={"reason": "ErrImagePull", "message": PULL})
        ),
        PodStage.CREATING,
        "ImagePullFailed",
        PULL,
        True,
    ),
    "missing secret": (
        make.pod(
            init=make.INIT_DONE,
            engine=make.container_status(
                "engine",
                waiting={"reason": "CreateContainerConfigError", "message": 'secret "hf-token" not found'},
            ),
        ),
        PodStage.CREATING,
        "ContainerConfigInvalid",
        'secret "hf-token" not found',
        True,
    ),
    "init container fails": (
        make.pod(
            init=make.container_status(
                "supervisor",
                waiting={"reason": "CrashLoopBackOff"},
                last=make.terminated(message="cp: cannot create '/llmservice/supervisor.pyz': Read-only"),
                restarts=3,
            )
        ),
        PodStage.CREATING,
        "InitFailed",
        "cannot create '/llmservice/supervisor.pyz'",
        True,
    ),
    "evicted": (
        make.pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
        PodStage.ENDED,
        "PodEvicted",
        "low on resource: memory",
        False,
    ),
    "preempted": (
        make.running_pod(
            conditions=(
                make.condition(
                    "DisruptionTarget",
                    "True",
                    reason="PreemptionByScheduler",
                    message="default-scheduler: preempting to accommodate a higher priority pod",
                ),
            )
        ),
        PodStage.STOPPING,
        "PodPreempted",
        "higher priority pod",
        False,
    ),
    "refused by the node": (
        make.pod(
            phase="Failed",
            reason="UnexpectedAdmissionError",
            message="Allocate failed due to no healthy devices",
        ),
        PodStage.ENDED,
        "PodRefused",
        "no healthy devices",
        False,
    ),
    "node lost": (
        make.running_pod(ready=True, deleted=-300),
        PodStage.STOPPING,
        "NodeLost",
        "node-1",
        False,
    ),
    "node silent": (
        make.running_pod(
            started=True,
            conditions=(
                make.condition("Ready", "False", since=-20),
                make.condition("ContainersReady", "True"),
            ),
        ),
        PodStage.STARTING,
        "NodeLost",
        "node node-1 does not answer any more",
        False,
    ),
    "evicted by a taint": (
        make.running_pod(
            deleted=30,
            conditions=(
                make.condition(
                    "DisruptionTarget",
                    "True",
                    reason="DeletionByTaintManager",
                    message="Taint manager: deleting due to NoExecute taint",
                ),
            ),
        ),
        PodStage.STOPPING,
        "PodEvicted",
        "NoExecute taint",
        False,
    ),
    "probe failing": (
        make.running_pod(started=True, conditions=(make.condition("Ready", "False", since=-60),)),
        PodStage.STARTING,
        "ProbeFailing",
        "does not answer /health",
        False,
    ),
    "killed for host memory": (
        make.crashed_pod("", exit_code=137, last={"reason": "OOMKilled"}),
        PodStage.STARTING,
        "HostOutOfMemory",
        "raise the memory in spec.podTemplate.resources",
        False,
    ),
    "crash loop without the supervisor's words": (
        make.crashed_pod("Traceback: no module named vllm", restarts=4),
        PodStage.STARTING,
        "CrashLooping",
        "no module named vllm",
        True,
    ),
    "first crash without words": (
        make.crashed_pod("Traceback: no module named vllm"),
        PodStage.STARTING,
        "Unknown",
        "no module named vllm",
        False,
    ),
}


@pytest.mark.parametrize("case", TROUBLES.values(), ids=TROUBLES)
def test_trouble_is_told_with_its_reason_and_words(
    case: tuple[dict[str, Any], PodStage, str, str, bool],
) -> None:
    pod, stage, reason, words, needs_person = case

    state = read(pod)

    assert state.trouble is not None
    assert (state.stage, state.trouble.reason, state.trouble.needs_person) == (stage, reason, needs_person)
    assert words in state.trouble.message


CLASSES = {
    "ModelNotFound": ("ModelNotFound", "spec.model.uri", True),
    "ModelAccessDenied": ("ModelAccessDenied", "spec.model.tokenSecret", True),
    "ModelInvalid": ("ModelInvalid", "model's files", True),
    "DiskFull": ("DiskFull", "spec.model.cache", True),
    "BadFlag": ("BadFlag", "spec.engine.args", True),
    "PortInUse": ("PortInUse", "port", True),
    "SharedMemoryTooSmall": ("SharedMemoryTooSmall", "spec.podTemplate.resources", True),
    "WrongAccelerator": ("WrongAccelerator", "WrongAccelerator", True),
    "EngineNotFound": ("EngineNotFound", "EngineNotFound", True),
    "KvCacheTooSmall": ("KvCacheTooSmall", "spec.workload.context.max", False),
    "OutOfMemory": ("OutOfMemory", "more memory", False),
    "DeviceNotEmpty": ("DeviceNotEmpty", "stop what else uses", False),
    "HostOutOfMemory": ("HostOutOfMemory", "spec.podTemplate.resources", False),
    "StartTimeout": ("StartTimeout", "spec.model.cache", False),
    "EngineDied": ("EngineDied", "EngineDied", False),
    "Hung": ("Hung", "Hung", False),
    "Signal": ("Signal", "Signal", False),
}


@pytest.mark.parametrize("failure_class", CLASSES)
def test_engine_end_is_told_by_class_with_a_mend(failure_class: str) -> None:
    reason, mend, needs_person = CLASSES[failure_class]
    words = "the engine's very own words"

    state = read(make.crashed_pod(make.termination_message(failure_class, message=words)))

    assert state.trouble is not None
    assert (state.trouble.reason, state.trouble.needs_person) == (reason, needs_person)
    assert words in state.trouble.message
    assert mend in state.trouble.message


@pytest.mark.parametrize("failure_class", ["EngineDied", "Signal", "Unknown"])
def test_vague_end_again_and_again_is_a_crash_loop_that_needs_a_person(failure_class: str) -> None:
    state = read(make.crashed_pod(make.termination_message(failure_class), restarts=3))

    assert state.trouble is not None
    assert (state.trouble.reason, state.trouble.needs_person) == ("CrashLooping", True)


def test_asked_stop_is_no_trouble() -> None:
    state = read(make.crashed_pod(make.termination_message("Stopped", message="stopped as asked")))

    assert state.trouble is None


def test_last_end_is_told_until_the_engine_is_ready_again() -> None:
    last = make.terminated(message=make.termination_message("EngineDied", message="died unexpectedly"))

    again = read(make.running_pod(restarts=1, last=last))
    ready = read(make.running_pod(restarts=1, last=last, ready=True))

    assert again.trouble is not None
    assert again.trouble.reason == "EngineDied"
    assert ready.trouble is None
    assert ready.stage == PodStage.READY


def test_failure_held_by_the_supervisor_is_read_from_its_report() -> None:
    held = make.report(phase="Failed", failure=make.failure("KvCacheTooSmall", estimatedMaxModelLen=1234))

    state = read(make.running_pod(started=True), held)

    assert state.trouble is not None
    assert state.trouble.failure is not None
    assert state.trouble.failure.estimated_max_model_len == 1234


def test_pull_back_off_and_pull_error_read_the_same() -> None:
    """The kubelet shows them in turn; a condition must not flap with them."""

    def waiting(reason: str, message: str) -> dict[str, Any]:
        state = {"reason": reason, "message": message}
        return make.pod(init=make.INIT_DONE, engine=make.container_status("engine", waiting=state))

    error = read(waiting("ErrImagePull", PULL))
    back_off = read(
        waiting("ImagePullBackOff", f'Back-off pulling image "registry.test/none:1": ErrImagePull: {PULL}')
    )

    assert error.trouble == back_off.trouble


def test_pod_on_its_way_has_no_trouble() -> None:
    stages = [
        read(make.pod(scheduled=False, conditions=(make.condition("PodScheduled", "Unknown"),))),
        read(make.pod()),
        read(make.running_pod(), make.report()),
    ]

    assert [state.stage for state in stages] == [PodStage.UNSCHEDULED, PodStage.CREATING, PodStage.STARTING]
    assert [state.trouble for state in stages] == [None, None, None]


def test_creation_that_takes_over_a_minute_points_to_the_pod_events() -> None:
    slow = read(make.pod(conditions=(make.condition("PodScheduled", "True", since=-61),)))

    assert slow.trouble is not None
    assert slow.trouble.reason == "VolumeNotMounted"
    assert "kubectl describe pod chat-7d9c-abcde" in slow.trouble.message


def test_just_started_engine_may_be_unready_for_a_moment() -> None:
    state = read(make.running_pod(started=True, conditions=(make.condition("Ready", "False", since=-9),)))

    assert state.trouble is None


def test_draining_engine_is_no_failing_probe() -> None:
    pod = make.running_pod(started=True, conditions=(make.condition("Ready", "False", since=-60),))

    assert read(pod, make.report(phase="Draining")).trouble is None


@pytest.mark.parametrize(
    ("ready_seconds_ago", "reason"),
    [
        pytest.param(None, None, id="the report was read before it served"),
        pytest.param(1, None, id="the kubelet has not asked yet"),
        pytest.param(60, "ProbeFailing", id="it should have been ready for a minute"),
    ],
)
def test_a_first_start_is_given_time_from_when_it_served(
    ready_seconds_ago: float | None, reason: str | None
) -> None:
    """The condition Ready has been False since the pod was made, an hour ago."""
    pod = make.running_pod(started=True, conditions=(make.condition("Ready", "False", since=-3600),))
    ready_at = None if ready_seconds_ago is None else make.NOW - ready_seconds_ago

    trouble = read(pod, make.report(readyAt=ready_at)).trouble

    assert (trouble.reason if trouble is not None else None) == reason


def test_report_of_another_revision_is_not_believed() -> None:
    state = read(make.running_pod(), make.report(revision="chat-another"))

    assert state.report is None


def test_deleted_pod_is_no_replica() -> None:
    assert not read(make.running_pod(ready=True, deleted=30)).live


def test_supervisor_is_asked_only_while_the_engine_container_runs() -> None:
    assert report_address(make.running_pod()) == ("10.0.0.7", 9410)
    assert report_address(make.crashed_pod("")) is None
    assert report_address(make.pod()) is None
