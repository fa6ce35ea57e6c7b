"""What the demo and the end-to-end tests share: images and models into a cluster, the operator by Helm, a question."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from devcluster import Cluster
from devcluster.binaries import Binaries
from devcluster.fixtures import AnyCluster, outer_cluster
from devcluster.kind import KindCluster

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "llmservice-operator"
RELEASE = "llmservice-operator"
CRD_NAME = "llmservices.llmservice.dev"
OPERATOR_NAMESPACE = "llmservice-system"
DEMO_CLUSTER = "dev"

ASK = """
import json, sys, urllib.request
address, model, question = sys.argv[1:]
body = {"model": model, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 24}
headers = {"Content-Type": "application/json"}
request = urllib.request.Request(address + "/chat/completions", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request, timeout=60) as response:
    print(json.load(response)["choices"][0]["message"]["content"].strip())
"""
"""Runs in the operator's own pod: it has Python, and resolves the Service's name as any client would."""


class HasKubeconfig(Protocol):
    """Any cluster, or whatever else knows where its kubeconfig is."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""


def demo_cluster() -> AnyCluster:
    """The cluster of `make demo` and `make cluster-up`: KUBECONFIG's, kind's, or our own on this machine."""
    return outer_cluster() or Cluster(DEMO_CLUSTER, nodes=1)


def images_command(*arguments: str) -> str:
    """Run `python -m images ...`; its last line of output."""
    command = (sys.executable, "-m", "images", *arguments)
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.strip().splitlines()[-1]


def build_images(*names: str) -> dict[str, Path]:
    """Build what is missing; the archive of each image."""
    return {name: Path(images_command("build", name)) for name in names}


def build_model() -> Path:
    """Build the demo's model where it is missing; its directory."""
    return Path(images_command("model"))


def load_images(cluster: AnyCluster, archives: Mapping[str, Path], *, engine_node: str | None = None) -> None:
    """Load small images into every node and the real engine's into one: it is several GB."""
    for name, archive in archives.items():
        cluster.load_image(archive, node=(engine_node or cluster.nodes[0]) if name == "vllm-cpu" else None)


def program(name: str) -> str:
    """The pinned kubectl or helm, built where it is missing."""
    binaries = Binaries()
    binaries.ensure((name,))
    return str(binaries.path(name))


def kubectl_command(cluster: HasKubeconfig, *arguments: str) -> tuple[str, ...]:
    """Kubectl on the cluster, for processes that outlast a call of `cluster.kubectl`."""
    return (program("kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments)


def direct_environment(**more: str) -> dict[str, str]:
    """The environment, with no proxy before clusters of this machine."""
    return {**os.environ, "NO_PROXY": "127.0.0.0/8,10.0.0.0/8", **more}


def helm(cluster: AnyCluster, *arguments: str) -> str:
    """Run Helm against the cluster; its output."""
    environ = direct_environment(KUBECONFIG=str(cluster.kubeconfig))
    command = (program("helm"), *arguments)
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def install_operator(cluster: AnyCluster, image: Path, *values: str) -> None:
    """Install or upgrade the chart and wait until the operator is ready.

    The archive's name holds the hash of what the image is made from: as an annotation it rolls the operator's pod
    when the image was built anew under the same tag. One copy is enough for a machine that may go at any time.
    """
    built = f"podAnnotations.llmservice\\.dev/image={image.stem}"
    settings = [argument for value in (built, "replicas=1", *values) for argument in ("--set", value)]
    helm(
        cluster, "upgrade", "--install", RELEASE, str(CHART), "--namespace", OPERATOR_NAMESPACE,
        "--create-namespace", "--wait", "--timeout", "120s", *settings,
    )  # fmt: skip


def models_manifests(namespace: str, folder: Path) -> list[dict[str, Any]]:
    """A volume of models on the node's disk and the claim `models` on it."""
    volume = f"models-{namespace}"
    size = {"storage": "10Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": {"namespace": namespace, "name": "models"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": namespace},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        },
    ]


def provide_models(cluster: AnyCluster, namespace: str, model: Path) -> None:
    """Put the model on the nodes' disk and make the claim `models` that leads to it.

    On a cluster whose nodes' disks are out of reach the claim `models`, with the model's folder, must be there.
    """
    if not isinstance(cluster, Cluster | KindCluster):
        cluster.kubectl("get", "pvc", "models", "-n", namespace)
        return
    target = cluster.models_folder / model.name
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(model, partial)
        partial.rename(target)
    apply(cluster, *models_manifests(namespace, cluster.models_folder))


@contextmanager
def platform(
    name: str, *images: str, namespace: str, nodes: int = 1, gpus: int = 0, values: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A cluster with these images, the operator and the namespace; gone in the end.

    Where KUBECONFIG names one of ours it is that one, and only the namespace goes. `values`: settings of the chart.
    """
    archives = build_images("operator", *images)
    outer = outer_cluster()
    given = outer if isinstance(outer, Cluster) else None
    cluster = given or Cluster(f"{name}-{os.getpid()}", nodes=nodes, gpus=gpus, owned=True)
    if given is None:
        cluster.remove_orphans()
    try:
        cluster.up()
        load_images(cluster, archives)
        install_operator(cluster, archives["operator"], *values)
        create_namespace(cluster, namespace, labels={})
        yield cluster
    finally:
        if given is None:
            cluster.down()
        else:
            delete_namespace(cluster, namespace)


def delete_namespace(cluster: AnyCluster, name: str) -> None:
    """A namespace with all that is in it, and the volume of its claim `models`."""
    # A pod may drain for five minutes, where a request is still running in it.
    cluster.kubectl("delete", "namespace", name, "--wait=true", "--timeout=400s", timeout_seconds=410)
    cluster.kubectl("delete", "pv", f"models-{name}", "--ignore-not-found")


def create_namespace(cluster: AnyCluster, name: str, *, labels: Mapping[str, str]) -> None:
    """A namespace with its default ServiceAccount, which a controller makes a moment later."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
    apply(cluster, manifest)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")


def apply(cluster: AnyCluster, *objects: Mapping[str, Any]) -> str:
    """`kubectl apply` of objects."""
    return cluster.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )


@contextmanager
def _kubectl_stream(cluster: HasKubeconfig, *arguments: str) -> Iterator[Iterator[str]]:
    command = kubectl_command(cluster, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=direct_environment()) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.terminate()


def watch(cluster: HasKubeconfig, path: str, *, deadline: float) -> Iterator[dict[str, Any]]:
    """Objects of an API path as they are and as they change, until `deadline` (time.monotonic seconds).

    Deleted objects come with `deleted: true` at the top.
    """
    separator = "&" if "?" in path else "?"
    left = max(1, int(deadline - time.monotonic()))
    with _kubectl_stream(cluster, "get", "--raw", f"{path}{separator}watch=1&timeoutSeconds={left}") as lines:
        for line in lines:
            event = json.loads(line)
            yield event["object"] | ({"deleted": True} if event["type"] == "DELETED" else {})


def llmservice_path(namespace: str, name: str) -> str:
    """The watchable path of one LLMService."""
    return f"/apis/llmservice.dev/v1alpha1/namespaces/{namespace}/llmservices?fieldSelector=metadata.name%3D{name}"


def pods_path(namespace: str, service: str) -> str:
    """The watchable path of a service's pods."""
    return f"/api/v1/namespaces/{namespace}/pods?labelSelector=llmservice.dev%2Fservice%3D{service}"


def wait_until(
    cluster: HasKubeconfig, path: str, wanted: Callable[[dict[str, Any]], bool], *, timeout_seconds: float
) -> dict[str, Any]:
    """The first state of an object of this path that is as wanted; AssertionError with the last one seen."""
    deadline = time.monotonic() + timeout_seconds
    seen: dict[str, Any] = {}
    while time.monotonic() < deadline:
        for seen in watch(cluster, path, deadline=deadline):
            if wanted(seen):
                return seen
    raise AssertionError(
        f"not as wanted within {timeout_seconds} s: {path}; last: {json.dumps(seen.get('status'))}"
    )


def wait_for_crd(cluster: HasKubeconfig, name: str = CRD_NAME) -> None:
    """Return once our CRD of this name is established.

    `kubectl wait` fails on a CRD that is a moment old: it has no conditions yet.
    """
    wait_until(
        cluster,
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3D{name}",
        lambda crd: condition(crd, "Established").get("status") == "True",
        timeout_seconds=30,
    )


def condition(service: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The condition of this type; empty where there is none."""
    conditions = service.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def wait_for_pod(
    cluster: AnyCluster, namespace: str, service: str, *, timeout_seconds: float = 60
) -> dict[str, Any]:
    """The first pod of the service, as soon as it is there."""
    deadline = time.monotonic() + timeout_seconds
    for pod in watch(cluster, pods_path(namespace, service), deadline=deadline):
        return pod
    raise AssertionError(f"no pod of {namespace}/{service} within {timeout_seconds} s")


def ask(cluster: AnyCluster, namespace: str, service: str, question: str) -> str:
    """The model's answer through the Service's own address, asked from inside the cluster."""
    address = f"http://{service}.{namespace}.svc:8000/v1"
    target = f"deployment/{RELEASE}"
    return cluster.kubectl(
        "exec", "-n", OPERATOR_NAMESPACE, target, "--", "python3", "-c", ASK, address, service, question
    ).strip()
