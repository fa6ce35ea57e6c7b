"""Fewer replicas on a real API server: the pods are told apart before the Deployment's number falls."""

import pytest

import factories as make

from .played import Object, Played, revision_of

pytestmark = pytest.mark.light

COST = "controller.kubernetes.io/pod-deletion-cost"


def ready_pod(world: Played, name: str, address: str, *, running: int) -> None:
    """A pod of the service `chat` that serves so many requests."""
    revision = revision_of(world.deployment_at("chat"))
    requests = {"running": running, "waiting": 0}
    world.reports[address] = make.report(revision=revision, phase="Ready", requests=requests)
    world.add_pod("chat", name, {**make.running_pod(ready=True)["status"], "podIP": address})


def test_the_busy_pod_is_dearer_before_the_number_falls(world: Played) -> None:
    world.serve("chat", replicas=2)
    ready_pod(world, "busy", "127.0.3.1", running=7)
    ready_pod(world, "idle", "127.0.3.2", running=0)
    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 2)

    world.set_spec("chat", replicas=1)
    fewer = world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 1)

    pods: dict[str, Object] = {pod["metadata"]["name"]: pod["metadata"] for pod in world.items("Pod")}
    assert int(pods["idle"]["annotations"][COST]) < int(pods["busy"]["annotations"][COST])
    written = [int(pod["resourceVersion"]) for pod in pods.values()]
    assert max(written) < int(fewer["metadata"]["resourceVersion"])
