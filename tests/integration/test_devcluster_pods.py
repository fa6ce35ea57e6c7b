"""Pods on the development cluster: network, names, logs, limits, accelerators — what a real node does."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster import Cluster, images

pytest_plugins = ("devcluster.fixtures",)
pytestmark = pytest.mark.cluster

ECHO = "llmservice.dev/devcluster/echo:1"
WAIT = "--timeout=60s"


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace at Pod Security `restricted`, with the echo image in both nodes."""
    archive = tmp_path_factory.mktemp("images") / "echo.tar"
    images.write_archive(archive, name=ECHO, program=cluster.program("echo"))
    cluster.load_image(archive)
    name = f"devcluster-{time.time_ns()}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, WAIT)
    for pod in (
        echo_pod("one", cluster.nodes[0]),
        echo_pod("two", cluster.nodes[0]),
        echo_pod("three", cluster.nodes[1]),
    ):
        apply(cluster, name, pod)
    service = {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 8080}]}
    apply(
        cluster, name, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": service}
    )
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "--all", "-n", name, WAIT)
    yield name
    cluster.kubectl("delete", "namespace", name, WAIT)


def echo_pod(name: str, node: str | None, *, limits: dict[str, str] | None = None) -> dict[str, Any]:
    container = {
        "name": "echo",
        "image": ECHO,
        "imagePullPolicy": "Never",
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        "resources": {"limits": limits or {}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": 2000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec: dict[str, Any] = {
        "securityContext": security,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "echo"}},
        "spec": spec,
    }


def apply(cluster: Cluster, namespace: str, item: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(item))


def read(cluster: Cluster, namespace: str, resource: str, path: str) -> str:
    return cluster.kubectl("get", resource, "-n", namespace, "-o", f"jsonpath={{{path}}}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


def fetch_from(cluster: Cluster, namespace: str, pod: str, url: str) -> str:
    """GETs ``url`` from inside a pod."""
    return get(f"http://{read(cluster, namespace, f'pod/{pod}', '.status.podIP')}:8080/fetch?url={url}")


def test_pod_reaches_pod_on_the_other_node(cluster: Cluster, namespace: str) -> None:
    """Pods of different nodes talk by address, and see each other's own address."""
    one = read(cluster, namespace, "pod/one", ".status.podIP")
    three = read(cluster, namespace, "pod/three", ".status.podIP")

    answer = fetch_from(cluster, namespace, "one", f"http://{three}:8080/")

    assert answer.startswith(f"three {one}:")


def test_service_is_reached_by_its_dns_name(cluster: Cluster, namespace: str) -> None:
    """A Service's name resolves in a pod, and its address leads to one of its pods, also on the same node."""
    seen = {fetch_from(cluster, namespace, "one", f"http://echo.{namespace}/").split()[0] for _ in range(40)}

    assert seen == {"one", "two", "three"}


def test_service_is_reached_from_the_machine(cluster: Cluster, namespace: str) -> None:
    """Tests on the machine itself can use a ClusterIP."""
    address = read(cluster, namespace, "service/echo", ".spec.clusterIP")

    seen = {get(f"http://{address}/").split()[0] for _ in range(40)}

    assert seen == {"one", "two", "three"}


def test_logs_come_from_the_container(cluster: Cluster, namespace: str) -> None:
    """`kubectl logs` shows what the container printed."""
    assert cluster.kubectl("logs", "-n", namespace, "three") == "listening on :8080\n"


def test_exec_runs_in_the_container(cluster: Cluster, namespace: str) -> None:
    """`kubectl exec` starts a program of the image in the container."""
    assert cluster.kubectl("exec", "-n", namespace, "one", "--", "/echo", "hello") == "[hello]\n"


def test_container_over_its_memory_limit_is_killed(cluster: Cluster, namespace: str) -> None:
    """It ends as on any node: reason OOMKilled, exit code 137."""
    apply(cluster, namespace, echo_pod("hungry", cluster.nodes[1], limits={"memory": "32Mi"}))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/hungry", "-n", namespace, WAIT)
    address = read(cluster, namespace, "pod/hungry", ".status.podIP")
    last = ".status.containerStatuses[0].lastState.terminated"

    with pytest.raises(OSError):  # noqa: PT011 - the server dies in mid-answer, with one of several errors
        get(f"http://{address}:8080/allocate?mib=256")
    cluster.kubectl(
        "wait", f"--for=jsonpath={{{last}.reason}}=OOMKilled", "pod/hungry", "-n", namespace, WAIT
    )

    assert read(cluster, namespace, "pod/hungry", f"{last}.exitCode") == "137"


def test_pod_gets_the_accelerators_it_asks_for(cluster: Cluster, namespace: str) -> None:
    """The scheduler counts accelerators: of 8 a node, 8 fit and one more stays pending with the scheduler's words."""
    apply(cluster, namespace, echo_pod("all", cluster.nodes[0], limits={"nvidia.com/gpu": "8"}))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/all", "-n", namespace, WAIT)

    apply(cluster, namespace, echo_pod("more", cluster.nodes[0], limits={"nvidia.com/gpu": "1"}))
    condition = '.status.conditions[?(@.type=="PodScheduled")]'
    cluster.kubectl("wait", "--for=condition=PodScheduled=False", "pod/more", "-n", namespace, WAIT)

    assert "Insufficient nvidia.com/gpu" in read(cluster, namespace, "pod/more", f"{condition}.message")


def test_restricted_namespace_refuses_a_root_pod(cluster: Cluster, namespace: str) -> None:
    """Pod Security is enforced, with the field named."""
    pod = echo_pod("root", None)
    pod["spec"]["securityContext"] = {"runAsUser": 0}

    with pytest.raises(Exception, match="runAsNonRoot != true"):
        apply(cluster, namespace, pod)


def test_image_that_is_there_is_not_imported_again(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """A second load of the same archive is a look."""
    assert namespace
    images.write_archive(tmp_path / "echo.tar", name=ECHO, program=cluster.program("echo"))
    said: list[str] = []

    images.load(tmp_path / "echo.tar", cluster.layout.nodes, ctr=cluster.program("ctr"), say=said.append)

    assert said == []


def test_image_goes_to_one_node_only(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """An image loaded into the first node is not on the second: a pod there cannot start."""
    name = f"llmservice.dev/devcluster/only:{time.time_ns()}"
    images.write_archive(
        tmp_path / "only.tar", name=name, program=cluster.program("echo"), environment={"A": name}
    )
    cluster.load_image(tmp_path / "only.tar", node=cluster.nodes[0])
    for pod_name, node in (("there", cluster.nodes[0]), ("absent", cluster.nodes[1])):
        pod = echo_pod(pod_name, node)
        pod["spec"]["containers"][0]["image"] = name
        apply(cluster, namespace, pod)

    cluster.kubectl("wait", "--for=condition=Ready", "pod/there", "-n", namespace, WAIT)
    waiting = ".status.containerStatuses[0].state.waiting.reason"
    cluster.kubectl(
        "wait", f"--for=jsonpath={{{waiting}}}=ErrImageNeverPull", "pod/absent", "-n", namespace, WAIT
    )
