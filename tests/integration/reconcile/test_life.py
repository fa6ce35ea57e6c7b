"""A service's life on a real API server, with pods and supervisors that the test plays."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import factories as make
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text

from .played import Played, RestartableOperator, condition_of, revision_of

pytestmark = pytest.mark.light


def starting_pod(world: Played, address: str, **report: Any) -> str:
    """A pod of the service `chat` at this address, whose supervisor says this; the revision it runs."""
    revision = revision_of(world.deployment_at("chat"))
    world.reports[address] = make.report(revision=revision, **report)
    name = f"chat-{address.rpartition('.')[2]}"
    world.add_pod("chat", name, {**make.running_pod()["status"], "podIP": address})
    return revision


def test_load_of_the_weights_is_told_with_done_rate_and_time_left(world: Played) -> None:
    world.serve("chat")

    starting_pod(world, "127.0.1.1")

    progressing = world.wait_condition("chat", "Progressing", "True", "LoadingWeights")
    service = world.get("LLMService", "chat")
    assert service is not None
    assert "4.0 of 16.0 GiB of weights read, 256 MiB/s, about 48 s left" in progressing["message"]
    assert service["status"]["start"]["weights"]["loadedBytes"] == 4 * 2**30


def test_memory_failure_is_corrected_and_the_service_gets_ready(world: Played) -> None:
    world.serve("chat", replicas=2)
    failed = starting_pod(world, "127.0.1.2", phase="Failed", failure=make.failure(estimatedMaxModelLen=3000))

    corrected = revision_of(world.deployment_at("chat", other_than=failed))
    world.delete("Pod", "chat-2")
    world.reports["127.0.1.3"] = make.report(revision=corrected, phase="Ready")
    world.add_pod("chat", "chat-3", {**make.running_pod(ready=True)["status"], "podIP": "127.0.1.3"})

    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 2)
    planned = world.wait_condition("chat", "Planned", "True", "PlanCorrected")
    assert "To serve at least one request" in planned["message"]


def test_failure_twice_gives_the_accelerators_back(world: Played) -> None:
    world.serve("chat", replicas=2)
    failed = starting_pod(world, "127.0.1.4", phase="Failed", failure=make.failure(estimatedMaxModelLen=3000))
    world.deployment_at("chat", other_than=failed)
    world.delete("Pod", "chat-4")
    starting_pod(world, "127.0.1.5", phase="Failed", failure=make.failure(message="too small again"))

    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 0)
    stalled = world.wait_condition("chat", "Stalled", "True", "KvCacheTooSmall")
    assert "too small again" in stalled["message"]


def test_two_builds_that_differ_restart_no_pod_until_asked(
    world: Played, operator: RestartableOperator, tmp_path: Path
) -> None:
    """Another init image, another hub (a variable of the engine), another catalogue."""
    world.serve("chat")
    world.serve("gpu", accelerator={"types": ["nvidia-h200"]})
    before = {name: world.deployment_at(name) for name in ("chat", "gpu")}
    for name in before:
        world.wait_condition(name, "UpToDate", "True")
    rows = yaml.safe_load(builtin_catalogue_text())
    for row in rows["rows"]:
        row.update({"memoryGiB": 100.0} if row["name"] == "nvidia-h200" else {})
    catalogue = tmp_path / "rows.yaml"
    catalogue.write_text(yaml.safe_dump(rows))

    operator.restart(
        LLMSERVICE_SUPERVISOR_IMAGE="ghcr.io/llmservice/operator:9.9.9",
        LLMSERVICE_HUB_ENDPOINT="http://127.0.0.1:8",
        LLMSERVICE_CATALOGUE_FILES=str(catalogue),
    )
    try:
        told = {name: world.wait_condition(name, "UpToDate", "False", "RefreshAvailable") for name in before}
        after = {name: world.get("Deployment", name) for name in before}
        world.annotate("gpu", refresh="1")
        refreshed = world.deployment_at("gpu", other_than=revision_of(before["gpu"]))
    finally:
        operator.restart()

    for name, deployment in after.items():
        assert deployment is not None
        assert deployment["metadata"]["generation"] == before[name]["metadata"]["generation"]
        assert "operator:9.9.9" in told[name]["message"]
    init = refreshed["spec"]["template"]["spec"]["initContainers"][0]
    assert init["image"] == "ghcr.io/llmservice/operator:9.9.9"


def test_edit_that_changes_a_knob_rolls_once_and_one_that_does_not_rolls_never(world: Played) -> None:
    world.serve("chat")
    first = world.deployment_at("chat")

    world.set_spec("chat", workload={"inputTokens": {"p50": 10}})
    world.wait_condition("chat", "Planned", "True")
    same = world.get("Deployment", "chat")
    world.set_spec("chat", workload={"context": {"min": 512, "max": 1024}})
    rolled = world.deployment_at("chat", other_than=revision_of(first))
    world.wait_condition("chat", "Planned", "True")
    after = world.get("Deployment", "chat")

    assert same is not None
    assert after is not None
    assert same["metadata"]["generation"] == first["metadata"]["generation"]
    assert after["metadata"]["generation"] == rolled["metadata"]["generation"]


def test_refused_service_has_no_children(world: Played) -> None:
    world.serve("chat", accelerator={"types": ["nvidia-h2000"]})

    world.wait_condition("chat", "Planned", "False", "UnknownAccelerator")

    assert [world.items(kind) for kind in ("Deployment", "Service", "ControllerRevision")] == [[], [], []]


def test_paused_service_says_so_and_goes_on_afterwards(world: Played) -> None:
    world.serve("chat", annotations={"llmservice.dev/paused": "true"})
    world.wait_condition("chat", "Progressing", "False", "Paused")
    assert world.get("Deployment", "chat") is None

    world.annotate("chat", paused=None)

    world.deployment_at("chat")


def test_observed_generation_follows_each_edit(world: Played) -> None:
    world.serve("chat", replicas=0)

    for port in (9001, 9002, 9003):
        edited = world.set_spec("chat", service={"port": port})
        world.wait_condition("chat", "Ready", "True")
        service = world.get("LLMService", "chat")
        assert service is not None
        assert service["status"]["observedGeneration"] == edited["metadata"]["generation"]
        assert condition_of(service, "Ready") is not None
        assert service["status"]["address"].endswith(f":{port}/v1")
