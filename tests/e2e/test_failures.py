"""What a user reads when a service does not get on: every cause on a real cluster, with real kubelets.

All services are created at once, so that the whole takes as long as the slowest cause.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import deploy
from devcluster.fixtures import AnyCluster
from e2e.conftest import Platform

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
FAKE_ENGINE = "ghcr.io/llmservice/fake-engine:0.32.0"
LITTLE = {"requests": {"cpu": "10m", "memory": "64Mi"}}
"""The fake engine needs next to nothing, so that all of them find room."""
FIRST_WAIT_SECONDS = 180.0

NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA L4, 23034'\n"

STREAM_FOR_EVER = """
import json, urllib.request
body = {"model": "hung", "prompt": "Once", "max_tokens": 500, "stream": True}
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
urllib.request.urlopen(request, timeout=900).read()
"""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A service that will not get on, and what is to be read then."""

    fault: str = ""
    """Of the fake engine."""
    spec: Object = field(default_factory=dict)
    engine: Object = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    where: str = "plain"
    """Which namespace: `plain` or `quota`."""
    condition: str = "Stalled"
    status: str = "True"
    reason: str
    words: tuple[str, ...]
    seconds: float = FIRST_WAIT_SECONDS


CAUSES = {
    "unschedulable": Cause(
        pod={"nodeSelector": {"no-such": "node"}},
        condition="Progressing",
        status="False",
        reason="Unschedulable",
        words=("nodes are available", "didn't match Pod's node affinity/selector"),
    ),
    "no-accelerator-left": Cause(
        spec={"accelerator": {"types": ["nvidia-h200"], "resourceName": "nvidia.com/mig-3g.71gb"}},
        condition="Progressing",
        status="False",
        reason="Unschedulable",
        words=("Insufficient nvidia.com/mig-3g.71gb",),
    ),
    "image-pull": Cause(
        engine={"image": "registry.invalid/none:0.32.0"},
        reason="ImagePullFailed",
        words=("registry.invalid", "correct the image"),
    ),
    "missing-claim": Cause(
        spec={"model": {"uri": "pvc://nowhere/smollm2", "configMap": "smollm2-config"}},
        reason="VolumeNotMounted",
        words=('persistentvolumeclaim "nowhere" not found', "create the claim"),
    ),
    "missing-secret": Cause(
        engine={
            "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "token"}}}]
        },
        reason="ContainerConfigInvalid",
        words=('secret "nowhere" not found',),
    ),
    "missing-volume": Cause(
        pod={"volumes": [{"name": "extra", "configMap": "nowhere", "mountPath": "/extra"}]},
        reason="VolumeNotMounted",
        words=("ConfigMap nowhere: not there", "spec.podTemplate.volumes"),
    ),
    "missing-config": Cause(
        spec={"model": {"uri": "pvc://models/smollm2", "configMap": "nowhere"}},
        condition="Planned",
        status="Unknown",
        reason="ModelConfigUnavailable",
        words=("create configmap nowhere --from-file=config.json",),
    ),
    "model-not-found": Cause(
        fault="model-not-found",
        reason="ModelNotFound",
        words=("Invalid repository ID", "correct spec.model.uri"),
    ),
    "model-gated": Cause(
        fault="model-gated", reason="ModelAccessDenied", words=("gated repo", "spec.model.tokenSecret")
    ),
    "bad-flag": Cause(
        engine={"args": {"flag-of-nobody": "1"}},
        reason="BadFlag",
        words=("unrecognized arguments: --flag-of-nobody", "correct spec.engine.args"),
    ),
    "disk-full": Cause(
        fault="disk-full", reason="DiskFull", words=("No space left on device", "spec.model.cache")
    ),
    "no-engine": Cause(
        engine={"image": "ghcr.io/llmservice/operator:0.1.0", "version": "0.32.0"},
        reason="EngineNotFound",
        words=("can import 'vllm'", "set spec.engine.image"),
    ),
    "wrong-accelerator": Cause(
        spec={"accelerator": {"types": ["nvidia-h200"]}},
        engine={"env": [{"name": "PATH", "value": "/tools:/usr/local/bin:/usr/bin:/bin"}]},
        pod={"volumes": [{"name": "tools", "claim": "models", "subPath": "tools", "mountPath": "/tools"}]},
        reason="WrongAccelerator",
        words=("NVIDIA L4", "nvidia-h200", "correct the node's labels"),
    ),
    "oom-at-load": Cause(
        fault="oom-load",
        reason="OutOfMemory",
        words=("CUDA out of memory", "no replica is left"),
        seconds=400,
    ),
    "crash-loop": Cause(
        fault="die:step=load,code=3",
        reason="CrashLooping",
        words=("exit code 3", "again and again"),
        seconds=240,
    ),
    "slow-load": Cause(
        fault="slow-load:seconds=120,shards=60",
        condition="Progressing",
        status="True",
        reason="LoadingWeights",
        words=("GiB of weights read", "s left"),
    ),
    "quota": Cause(where="quota", reason="PodRefused", words=("exceeded quota: no-pods",)),
    "pod-security": Cause(
        pod={"securityContext": {"runAsUser": 0, "runAsNonRoot": False}},
        reason="PodRefused",
        words=('violates PodSecurity "restricted:latest"', "runAsNonRoot"),
    ),
}


DEATHS = {
    "engine-died": Cause(
        fault="exit-zero:after=5", reason="EngineDied", words=("exit code 0 while serving",)
    ),
    "hung": Cause(fault="hang:tokens=1", reason="Hung", words=("no token",), seconds=420),
}
"""Engines that end while they serve and are started again: they are ready in between."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The cluster, and where the services of each kind of cause are."""

    cluster: AnyCluster
    namespaces: dict[str, str]

    def wait(self, name: str, cause: Cause) -> Object:
        """The condition of this service, once it says what it should."""

        def told(service: Object) -> bool:
            found = deploy.condition(service, cause.condition)
            return (found.get("status"), found.get("reason")) == (cause.status, cause.reason)

        path = deploy.llmservice_path(self.namespaces[cause.where], name)
        return deploy.condition(
            deploy.wait_until(self.cluster, path, told, timeout_seconds=cause.seconds), cause.condition
        )

    def service(self, name: str, *, where: str = "plain") -> Object:
        """The LLMService as it is now."""
        text = self.cluster.kubectl("get", "llmservice", name, "-n", self.namespaces[where], "-o", "json")
        found: Object = json.loads(text)
        return found


@pytest.fixture(scope="module")
def stage(platform: Platform, namespace: str) -> Iterator[Stage]:
    """All services, created at once."""
    cluster, poor = platform.cluster, f"{namespace}-poor"
    deploy.create_namespace(cluster, poor, labels={})
    _put_nvidia_smi(cluster)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-pods", "namespace": poor},
        "spec": {"hard": {"pods": "0"}},
    }
    config = (deploy.build_model() / "config.json").read_text()
    config_maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "smollm2-config", "namespace": each},
            "data": {"config.json": config},
        }
        for each in (namespace, poor)
    ]
    deploy.apply(cluster, quota, *config_maps)
    namespaces = {"plain": namespace, "quota": poor}
    causes = CAUSES | DEATHS
    services = [llmservice(name, namespaces[cause.where], cause) for name, cause in causes.items()]
    deploy.apply(cluster, *services, corrected_service(namespace))
    with _request_that_never_ends(cluster, namespace):
        yield Stage(cluster=cluster, namespaces=namespaces)
    cluster.kubectl("delete", "namespace", poor, "--wait=false")


def llmservice(name: str, namespace: str, cause: Cause) -> Object:
    """The object that its user applies."""
    fault = [{"name": "FAKE_ENGINE_FAULT", "value": cause.fault}] if cause.fault else []
    engine = {"image": FAKE_ENGINE, **cause.engine, "env": [*fault, *cause.engine.get("env", [])]}
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "pvc://models/smollm2", "configMap": "smollm2-config"},
            "accelerator": {"types": ["cpu"]},
            "workload": {"context": {"max": 2048}},
            **cause.spec,
            "engine": engine,
            "podTemplate": {"resources": LITTLE, **cause.pod},
        },
    }


def corrected_service(namespace: str) -> Object:
    """A service whose engine has room for 1,024 tokens where 2,048 were planned."""
    short = [{"name": "FAKE_ENGINE_KV_CACHE_TOKENS", "value": "1024"}]
    cause = Cause(
        engine={"env": short}, spec={"workload": {"context": {"min": 256, "max": 2048}}}, reason="", words=()
    )
    return llmservice("kv-too-small", namespace, cause)


@pytest.mark.parametrize("name", CAUSES)
def test_cause_is_told_with_a_mend(stage: Stage, name: str) -> None:
    cause = CAUSES[name]

    told = stage.wait(name, cause)

    service = stage.service(name, where=cause.where)
    assert [word for word in cause.words if word not in told["message"]] == [], told["message"]
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]


@pytest.mark.parametrize("name", DEATHS)
def test_death_while_serving_is_told_and_the_service_comes_back(stage: Stage, name: str) -> None:
    cause = DEATHS[name]

    def back(service: Object) -> bool:
        failure = service.get("status", {}).get("lastFailure", {})
        ready = deploy.condition(service, "Ready").get("status") == "True"
        return failure.get("class") == cause.reason and ready

    path = deploy.llmservice_path(stage.namespaces["plain"], name)
    service = deploy.wait_until(stage.cluster, path, back, timeout_seconds=cause.seconds)
    message = service["status"]["lastFailure"]["message"]
    assert [word for word in cause.words if word not in message] == [], message


def test_plan_that_asked_for_too_much_is_corrected_and_the_service_serves(stage: Stage) -> None:
    ready = Cause(condition="Ready", reason="Ready", words=())

    stage.wait("kv-too-small", ready)

    status = stage.service("kv-too-small")["status"]
    planned = next(each for each in status["conditions"] if each["type"] == "Planned")
    assert planned["reason"] == "PlanCorrected"
    assert status["plan"]["knobs"]["maxModelLen"] <= 1024
    assert [each["starts"] for each in status["start"]["revisions"]] == [1, 0]


def test_memory_failure_twice_leaves_no_pod(stage: Stage) -> None:
    stage.wait("oom-at-load", CAUSES["oom-at-load"])

    stage.cluster.kubectl(
        "wait", "--for=delete", "pod", "-l", "llmservice.dev/service=oom-at-load",
        "-n", stage.namespaces["plain"], "--timeout=60s",
    )  # fmt: skip
    assert stage.service("oom-at-load")["status"]["lastFailure"]["class"] == "OutOfMemory"


def _put_nvidia_smi(cluster: AnyCluster) -> None:
    """A node whose labels say H200 and whose driver says L4."""
    tools = cluster.models_folder / "tools"
    tools.mkdir(exist_ok=True)
    program = tools / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)


class _request_that_never_ends:  # noqa: N801  used as a function
    """A request to the engine that hangs, from inside its pod, as soon as it serves."""

    def __init__(self, cluster: AnyCluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> None:
        def ready(pod: Object) -> bool:
            return deploy.condition(pod, "Ready").get("status") == "True"

        path = deploy.pods_path(self._namespace, "hung")
        pod = deploy.wait_until(self._cluster, path, ready, timeout_seconds=FIRST_WAIT_SECONDS)
        command = deploy.kubectl_command(
            self._cluster, "exec", "-n", self._namespace, pod["metadata"]["name"], "-c", "engine", "--",
            "python3", "-c", STREAM_FOR_EVER,
        )  # fmt: skip
        environ = deploy.direct_environment()
        self._process = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
