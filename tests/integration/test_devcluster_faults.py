"""Fault handles of the development cluster: what tests break on purpose breaks, and heals."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from devcluster import Cluster, images
from devcluster.api import Api

pytest_plugins = ("devcluster.fixtures",)
pytestmark = pytest.mark.cluster

SECONDS = 60


def wait_node(cluster: Cluster, node: str, condition: Callable[[dict[str, str]], bool]) -> None:
    """Watches a node until its conditions (type → status) are as wanted."""
    api: Api = cluster.api
    for item in api.events("/api/v1/nodes", deadline=time.monotonic() + SECONDS):
        found = {c["type"]: c["status"] for c in item["status"].get("conditions", [])}
        if item["metadata"]["name"] == node and condition(found):
            return
    pytest.fail(f"{node} did not change within {SECONDS} s")


def allocatable_gpus(cluster: Cluster, node: str) -> str:
    return cluster.kubectl("get", "node", node, "-o", r"jsonpath={.status.allocatable.nvidia\.com/gpu}")


@pytest.fixture
def healed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, brought up again after the test."""
    yield cluster
    cluster.up()


def test_cut_node_becomes_not_ready_and_joins_again(healed: Cluster) -> None:
    """A node whose link is down is noticed by the controllers, and is Ready again once it is back."""
    node = healed.nodes[1]

    with healed.faults.cut(node):
        wait_node(healed, node, lambda found: found.get("Ready") == "Unknown")
    wait_node(healed, node, lambda found: found.get("Ready") == "True")


def test_accelerators_survive_a_kubelet_restart(healed: Cluster) -> None:
    """A restarted kubelet forgets extended resources unless a device plugin registers again: ours does."""
    node = healed.nodes[0]
    healed.faults.restart("kubelet-1")

    healed.up()

    assert allocatable_gpus(healed, node) == "8"


def test_unhealthy_accelerator_is_not_allocatable(healed: Cluster) -> None:
    """A device reported unhealthy leaves the node's allocatable count, and comes back with its health."""
    node = healed.nodes[1]
    healed.faults.set_unhealthy_gpus(node, [3, 5])
    path = r"--for=jsonpath={.status.allocatable.nvidia\.com/gpu}"
    try:
        healed.kubectl("wait", f"{path}=6", f"node/{node}", f"--timeout={SECONDS}s")
    finally:
        healed.faults.set_unhealthy_gpus(node, [])

    healed.kubectl("wait", f"{path}=8", f"node/{node}", f"--timeout={SECONDS}s")


def test_up_restarts_what_was_killed(healed: Cluster) -> None:
    """After kill -9 of every component, `up` brings back the same cluster with its data."""
    healed.kubectl("create", "configmap", "kept", "--dry-run=none")
    for name in [name for name, state in healed.status().items() if state == "running"]:
        healed.faults.kill(name)
    assert set(healed.status().values()) == {"dead"}

    healed.up()

    assert set(healed.status().values()) == {"running"}
    assert json.loads(healed.kubectl("get", "configmap", "kept", "-o", "json"))["metadata"]["name"] == "kept"
    healed.kubectl("delete", "configmap", "kept")


def test_pods_run_again_after_all_components_were_killed(healed: Cluster) -> None:
    """Nodes come back as after a power cut: their pods are started anew."""
    image = "llmservice.dev/devcluster/echo:1"
    archive = healed.layout.folder / "echo.tar"
    images.write_archive(archive, name=image, program=healed.program("echo"))
    healed.load_image(archive)
    healed.kubectl("create", "deployment", "again", f"--image={image}", "--replicas=2", "--port=8080")
    healed.kubectl("rollout", "status", "deployment/again", f"--timeout={SECONDS}s")
    for name in healed.status():
        healed.faults.kill(name)

    healed.up()

    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    healed.kubectl("wait", restarted, "pod", "-l", "app=again", f"--timeout={SECONDS}s")
    healed.kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=again", f"--timeout={SECONDS}s")
    healed.kubectl("delete", "deployment", "again")


def test_stopped_api_server_answers_again_once_continued(healed: Cluster) -> None:
    """A stopped component holds still without losing anything."""
    with healed.faults.stopped("kube-apiserver"):
        assert healed.status()["kube-apiserver"] == "stopped"
        assert not healed.api.ready()

    assert healed.api.ready()
