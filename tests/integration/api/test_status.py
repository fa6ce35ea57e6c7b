"""What the operator writes into the status is taken by the schema, and shows in `kubectl get` and `kubectl wait`."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from integration.api.kubectl import Kubectl
from llmservice_operator.api.conditions import ConditionType, Reason, set_condition
from llmservice_operator.api.status import (
    EngineStatus,
    FailureStatus,
    KnobsStatus,
    LLMServiceStatus,
    MemoryComparison,
    MemoryTermStatus,
    PlanStatus,
    RevisionStarts,
    StartStatus,
    WeightsProgress,
)
from llmservice_operator.api.status_scaling import DecisionStatus, ScalingStatus, SignalStatus

pytestmark = pytest.mark.light

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

STATUS = LLMServiceStatus(
    observed_generation=1,
    replicas=2,
    ready_replicas=1,
    desired_replicas=2,
    selector="llmservice.dev/service=one",
    address="http://one.default.svc:8000/v1",
    plan=PlanStatus(
        revision="one-0123456789",
        accelerator="nvidia-h200",
        accelerators_per_replica=1,
        resource_name="nvidia.com/gpu",
        knobs=KnobsStatus(
            max_model_len=32_768, gpu_memory_utilization=0.92, max_num_seqs=256, max_num_batched_tokens=8_192
        ),
        memory=(
            MemoryTermStatus(
                name="weights", size_bytes=16_381_470_720, explanation="8.19e9 parameters of 2 B"
            ),
        ),
        total_bytes=150_110_000_000,
        requested_bytes=138_101_200_000,
        kv_cache_tokens=812_000,
        max_concurrency=24.8,
        reasons=("one accelerator holds it",),
    ),
    engine=EngineStatus(
        version="0.33.0",
        reported_at=THEN,
        memory=(MemoryComparison(name="weights", planned_bytes=2, actual_bytes=1, error_percent=100.0),),
    ),
    start=StartStatus(
        pod="one-0",
        step="load",
        since=THEN,
        weights=WeightsProgress(total_bytes=2, loaded_bytes=1, bytes_per_second=0.5, expected_at=THEN),
        revisions=(RevisionStarts(revision="one-0123456789", starts=1),),
    ),
    last_failure=FailureStatus(
        failure_class="OutOfMemory", message="CUDA out of memory", exit_code=1, at=THEN
    ),
    scaling=ScalingStatus(
        desired_replicas=2,
        ruling="load",
        reason="9.5 requests/s ask for 1.9 replicas",
        capacity_requests_per_second=5.881,
        correction=1.04,
        start_seconds=95.0,
        signals=(
            SignalStatus(name="arrivals_per_second", state="ok", value=9.5, at=THEN),
            SignalStatus(name="ttft_p95_seconds", state="ok", value=0.183, at=THEN),
            SignalStatus(name="tpot_p95_seconds", state="idle", at=THEN),
        ),
        decisions=(
            DecisionStatus(
                at=THEN,
                from_replicas=1,
                to_replicas=2,
                ruling="load",
                reason="9.5 requests/s",
                steps={"load": 1.9},
            ),
        ),
        state='{"v":1}',
    ),
    conditions=set_condition(
        (),
        ConditionType.READY,
        "False",
        Reason.LOADING_WEIGHTS,
        "1 of 2 GiB",
        generation=1,
        now=THEN.timestamp(),
    ),
)


@pytest.fixture
def written(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    """An LLMService with the whole status applied by the operator's field manager, as it is read back."""
    head = {"apiVersion": "llmservice.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": "one"}}
    spec = {"model": {"uri": "hf://Qwen/Qwen3-8B"}, "replicas": 2}
    kubectl.output("create", "-n", namespace, "-f", "-", stdin=json.dumps({**head, "spec": spec}))
    status = STATUS.model_dump(mode="json", by_alias=True, exclude_none=True)
    apply = (
        "apply",
        "-n",
        namespace,
        "--server-side",
        "--subresource=status",
        "--field-manager=llmservice-operator",
    )
    kubectl.output(*apply, "-f", "-", stdin=json.dumps({**head, "status": status}))
    found: dict[str, Any] = json.loads(kubectl.output("get", "llmsvc/one", "-n", namespace, "-o", "json"))
    return found


def test_the_whole_status_comes_back_as_it_was_written(written: dict[str, Any]) -> None:
    assert LLMServiceStatus.model_validate(written["status"]) == STATUS


def test_get_tells_what_is_going_on(written: dict[str, Any], kubectl: Kubectl) -> None:
    namespace = written["metadata"]["namespace"]
    line = kubectl.output("get", "llmsvc", "-n", namespace, "--no-headers").split()

    assert line[:8] == ["one", "False", "LoadingWeights", "2", "nvidia-h200", "32768", "812000", "0.183"]


def test_a_ttft_that_is_not_known_shows_as_nothing(written: dict[str, Any], kubectl: Kubectl) -> None:
    namespace = written["metadata"]["namespace"]
    idle = {"status": {"scaling": {"signals": [{"name": "ttft_p95_seconds", "state": "idle"}]}}}
    patch = ("patch", "llmsvc/one", "-n", namespace, "--subresource=status", "--type=merge")
    kubectl.output(*patch, "-p", json.dumps(idle))

    line = kubectl.output("get", "llmsvc", "-n", namespace, "--no-headers").split()
    assert line[6:8] == ["812000", line[-1]]


def test_wait_sees_the_condition(written: dict[str, Any], kubectl: Kubectl) -> None:
    namespace = written["metadata"]["namespace"]

    kubectl.output("wait", "llmsvc/one", "-n", namespace, "--for=condition=Ready=False", "--timeout=5s")


def test_the_scale_subresource_has_the_selector(written: dict[str, Any], kubectl: Kubectl) -> None:
    path = (
        f"/apis/llmservice.dev/v1alpha1/namespaces/{written['metadata']['namespace']}/llmservices/one/scale"
    )

    scale = json.loads(kubectl.output("get", "--raw", path))
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": "llmservice.dev/service=one"}
