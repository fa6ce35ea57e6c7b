"""From an LLMService to its children and its status, on a real API server."""

import pytest

import factories as make

from .played import Played, condition_of

pytestmark = pytest.mark.light


def test_service_gets_its_children(world: Played) -> None:
    world.serve("chat")

    deployment = world.deployment_at("chat")
    world.wait("Service", "chat", lambda _: True)
    world.wait("PodDisruptionBudget", "chat", lambda _: True)

    assert deployment["spec"]["replicas"] == 1
    assert [each["metadata"]["name"] for each in world.items("ControllerRevision")] == [
        deployment["spec"]["template"]["metadata"]["labels"]["llmservice.dev/revision"]
    ]


def test_status_tells_plan_and_progress(world: Played) -> None:
    created = world.serve("chat")

    planned = world.wait_condition("chat", "Planned", "True", "Planned")

    service = world.get("LLMService", "chat")
    assert service is not None
    assert planned["observedGeneration"] == created["metadata"]["generation"]
    assert service["status"]["plan"]["accelerator"] == "cpu"
    assert service["status"]["address"] == f"http://chat.{world.namespace}.svc:8000/v1"
    ready = condition_of(service, "Ready")
    assert ready is not None
    assert ready["status"] == "False"


def test_ready_pod_makes_the_service_ready(world: Played) -> None:
    world.serve("chat")
    world.deployment_at("chat")

    world.add_pod("chat", "chat-1", make.running_pod(ready=True)["status"])

    world.wait_condition("chat", "Ready", "True", "Ready")
