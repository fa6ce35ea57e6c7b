"""The admission policies that ship, on a real API server: what each lets in, and what it refuses in which words."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from devcluster.errors import CommandError
from devcluster.fixtures import AnyLightCluster

pytestmark = pytest.mark.light

ROOT = Path(__file__).resolve().parents[3]
POLICIES = ROOT / "policies" / "admission"
BOUND, FREE = "admission-bound", "admission-free"
PARAMETERS = {
    "acceleratorTypes": "nvidia-h200, cpu",
    "registries": "ghcr.io/llmservice, docker.io/vllm/vllm-openai, registry.local",
    "modelSources": "hf://Qwen/, pvc://models/shared, hf://meta-llama/Llama-3.1-8B",
    "maxAcceleratorsPerService": "8",
    "serviceAccounts": "engines",
    "priorityClasses": "batch",
    "hostPaths": "/mnt/nvme/",
}
GOOD = {"model": {"uri": "hf://Qwen/Qwen3-8B"}, "accelerator": {"types": ["nvidia-h200"]}}
ACTIVE_WITHIN_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Bad:
    """What is changed of a good service, and what is said of it."""

    policy: str
    spec: Mapping[str, Any]
    words: str


def accelerators(**fields: Any) -> dict[str, Any]:
    return {"accelerator": {"types": ["nvidia-h200"], **fields}}


BAD = {
    "accelerator not listed": Bad(
        policy="accelerators",
        spec=accelerators(types=["nvidia-h200", "nvidia-b200"]),
        words="spec.accelerator.types is [nvidia-h200, nvidia-b200]: services in namespace admission-bound may use "
        "[nvidia-h200, cpu]; name some of these",
    ),
    "accelerator not named": Bad(
        policy="accelerators", spec={"accelerator": {}}, words="spec.accelerator.types is []:"
    ),
    "registry not listed": Bad(
        policy="registries",
        spec={"engine": {"image": "quay.io/vllm/vllm-openai:v1"}},
        words="spec.engine.image is quay.io/vllm/vllm-openai:v1",
    ),
    "Docker Hub by its short name": Bad(
        policy="registries",
        spec={"engine": {"image": "someone/vllm-openai:v1"}},
        words="(docker.io/someone/vllm-openai:v1)",
    ),
    "another port of a listed host": Bad(
        policy="registries",
        spec={"engine": {"image": "registry.local:5000/vllm:1"}},
        words="images of services in namespace admission-bound come from",
    ),
    "repository that begins like a listed one": Bad(
        policy="registries",
        spec={"engine": {"image": "vllm/vllm-openai-evil:1"}},
        words="docker.io/vllm/vllm-openai-evil:1",
    ),
    "organisation not listed": Bad(
        policy="model-sources",
        spec={"model": {"uri": "hf://someone/Qwen3-8B"}},
        words="spec.model.uri is hf://someone/Qwen3-8B: models of services in namespace admission-bound come from",
    ),
    "model that begins like a listed one": Bad(
        policy="model-sources", spec={"model": {"uri": "hf://meta-llama/Llama-3.1-8B-x"}}, words="come from"
    ),
    "command of one's own": Bad(
        policy="model-sources", spec={"engine": {"command": ["serve"]}}, words="spec.engine.command is set"
    ),
    "flag that loads a further model": Bad(
        policy="model-sources",
        spec={"engine": {"args": {"speculative_config": "{}"}}},
        words="spec.engine.args has speculative_config, which may load what is not spec.model.uri",
    ),
    "flag that runs a model's code, cut short": Bad(
        policy="model-sources",
        spec={"engine": {"args": {"trust-remote": "true"}}},
        words="spec.engine.args has trust-remote",
    ),
    "flag that loads a draft model by its short name": Bad(
        policy="model-sources",
        spec={"engine": {"args": {"spec-model": "x/y"}}},
        words="spec.engine.args has spec-model",
    ),
    "flag that loads code from a mounted file": Bad(
        policy="model-sources",
        spec={"engine": {"args": {"reasoning_parser_plug": "/code/p.py"}}},
        words="spec.engine.args has reasoning_parser_plug",
    ),
    "variable by which clients load adapters": Bad(
        policy="model-sources",
        spec={"engine": {"env": [{"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": "1"}]}},
        words="spec.engine.env has VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    ),
    "more accelerators than allowed": Bad(
        policy="accelerator-quota",
        spec={**accelerators(parallelism={"tensor": 4}), "replicas": 3},
        words="spec asks for 3 replicas of 4 accelerators: a service in namespace admission-bound may hold 8",
    ),
    "more replicas than accelerators allowed": Bad(
        policy="accelerator-quota", spec={"replicas": 9}, words="9 replicas of at least 1 accelerators"
    ),
    "too many at most": Bad(
        policy="accelerator-quota",
        spec={**accelerators(parallelism={"tensor": 2}), "scaling": {"maxReplicas": 5}},
        words="spec asks for 5 replicas of 2 accelerators",
    ),
    "root": Bad(
        policy="pod-template",
        spec={"podTemplate": {"securityContext": {"runAsNonRoot": False}}},
        words="lets the engine run as root",
    ),
    "root's group": Bad(
        policy="pod-template",
        spec={"podTemplate": {"securityContext": {"supplementalGroups": [0]}}},
        words="lets the engine run in root's group",
    ),
    "annotation that takes devices past the quota": Bad(
        policy="pod-template",
        spec={"podTemplate": {"annotations": {"cdi.k8s.io/more": "nvidia.com/gpu=all"}}},
        words="spec.podTemplate.annotations has cdi.k8s.io/more",
    ),
    "service account not listed": Bad(
        policy="pod-template",
        spec={"podTemplate": {"serviceAccountName": "cluster-admin"}},
        words="spec.podTemplate.serviceAccountName is cluster-admin",
    ),
    "priority class not listed": Bad(
        policy="pod-template",
        spec={"podTemplate": {"priorityClassName": "system-node-critical"}},
        words="spec.podTemplate.priorityClassName is system-node-critical",
    ),
    "folder not listed": Bad(
        policy="host-path-caches",
        spec={"model": {**GOOD["model"], "cache": {"hostPath": "/mnt/nvme2/x"}}},
        words="spec.model.cache.hostPath is /mnt/nvme2/x",
    ),
}
LET_IN: dict[str, dict[str, Any]] = {
    "the smallest": {},
    "cpu": {"accelerator": {"types": ["cpu"]}, "replicas": 20},
    "image of a listed organisation": {"engine": {"image": "ghcr.io/llmservice/vllm-cpu:0.32.0"}},
    "image of a listed repository, by its short name": {"engine": {"image": "vllm/vllm-openai:v0.33.0"}},
    "image of a listed host": {"engine": {"image": "registry.local/any/thing:1"}},
    "listed model": {"model": {"uri": "hf://meta-llama/Llama-3.1-8B"}},
    "model below a listed folder": {"model": {"uri": "pvc://models/shared/qwen"}},
    "flags": {"engine": {"args": {"tokenizer-mode": "slow", "reasoning-parser": "qwen3"}}},
    "all accelerators that are allowed": {**accelerators(parallelism={"tensor": 4}), "replicas": 2},
    "listed account and class": {
        "podTemplate": {"serviceAccountName": "engines", "priorityClassName": "batch"}
    },
    "annotations for others": {"podTemplate": {"annotations": {"team.example.com/owner": "a"}}},
    "another user": {"podTemplate": {"securityContext": {"runAsUser": 3000}}},
    "listed folder": {"model": {**GOOD["model"], "cache": {"hostPath": "/mnt/nvme/x"}}},
}


def service(namespace: str, name: str = "asked", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**GOOD, **spec},
    }


def deployment(accelerators: int, replicas: int) -> dict[str, Any]:
    """A Deployment as the operator makes it for a service."""
    labels = {"llmservice.dev/service": "asked"}
    limits = {"nvidia.com/gpu": str(accelerators), "memory": "1Gi"}
    container = {"name": "engine", "image": "x", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "asked", "namespace": BOUND, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def answer(cluster: AnyLightCluster, obj: Mapping[str, Any], *, verb: str = "create") -> str:
    """What the API server says of it; nothing is kept."""
    try:
        return cluster.kubectl(verb, "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    except CommandError as error:
        return str(error)


def wait_until_said(cluster: AnyLightCluster, obj: Mapping[str, Any], words: str) -> None:
    """Until the API server says so: it reads policies and parameters a moment after they are there."""
    deadline = time.monotonic() + ACTIVE_WITHIN_SECONDS
    while words not in (said := answer(cluster, obj)):
        assert time.monotonic() < deadline, f"not held, {words}: {said}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def guarded(light_cluster: AnyLightCluster) -> Iterator[AnyLightCluster]:
    """A cluster with all policies, and a namespace that they hold for."""
    cluster = light_cluster
    crd = ROOT / "crds" / "llmservices.yaml"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
    deploy.wait_for_crd(cluster)
    labels = {BOUND: {"llmservice.dev/admission": "standard"}, FREE: {}, deploy.OPERATOR_NAMESPACE: {}}
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": each}}
        for name, each in labels.items()
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": namespaces})
    cluster.kubectl("apply", "-f", "-", stdin=text)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(service(BOUND, "older", replicas=1000)))
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(POLICIES))))
    (parameters,) = (each for each in objects if each["kind"] == "ConfigMap")
    parameters["data"] = PARAMETERS
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    for bad in BAD.values():
        wait_until_said(cluster, service(BOUND, **bad.spec), f"'llmservice-{bad.policy}'")
    yield cluster
    cluster.kubectl("delete", "-k", str(POLICIES), "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "llmservice", "--all", "-n", BOUND, "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "namespace", BOUND, FREE, "--wait=false")


@pytest.mark.parametrize("case", BAD)
def test_refused(guarded: AnyLightCluster, case: str) -> None:
    bad = BAD[case]
    said = answer(guarded, service(BOUND, **bad.spec))

    assert f"ValidatingAdmissionPolicy 'llmservice-{bad.policy}'" in said
    assert bad.words in said


@pytest.mark.parametrize("case", LET_IN)
def test_let_in(guarded: AnyLightCluster, case: str) -> None:
    assert "created" in answer(guarded, service(BOUND, **LET_IN[case]))


def test_other_namespaces_are_not_held(guarded: AnyLightCluster) -> None:
    assert "created" in answer(guarded, service(FREE, **BAD["accelerator not listed"].spec))


@pytest.mark.parametrize(("each", "replicas", "verdict"), [(4, 2, "created"), (4, 3, "may hold 8")])
def test_a_deployment_is_held_to_the_quota(
    guarded: AnyLightCluster, each: int, replicas: int, verdict: str
) -> None:
    """Where the plan chose the number, and where `kubectl scale` changed the replicas."""
    assert verdict in answer(guarded, deployment(each, replicas))


def test_what_stands_already_may_be_labelled_and_not_said_anew(guarded: AnyLightCluster) -> None:
    patch = ("patch", "llmservice", "older", "-n", BOUND, "--type=merge", "--dry-run=server", "-p")
    labelled = guarded.kubectl(*patch, json.dumps({"metadata": {"labels": {"a": "b"}}}))
    with pytest.raises(CommandError, match="1000 replicas of at least 1 accelerators"):
        guarded.kubectl(*patch, json.dumps({"spec": {"drain": {"timeout": "60s"}}}))

    assert "patched" in labelled


def test_what_stands_already_may_be_deleted(guarded: AnyLightCluster) -> None:
    """A finalizer is taken off by an update of an object that is not allowed."""
    held = service(BOUND, "going", replicas=7)
    held["metadata"]["finalizers"] = ["example.com/held"]
    guarded.kubectl("create", "-f", "-", stdin=json.dumps(held))
    guarded.kubectl("delete", "llmservice", "going", "-n", BOUND, "--wait=false")

    said = guarded.kubectl(
        "patch", "llmservice", "going", "-n", BOUND, "--type=merge", "-p",
        json.dumps({"metadata": {"finalizers": []}, "spec": {"replicas": 900}}),
    )  # fmt: skip

    assert "patched" in said


def test_parameters_that_are_missing_let_nothing_in(guarded: AnyLightCluster) -> None:
    """Last: it takes the parameters away."""
    guarded.kubectl("delete", "configmap", "llmservice-admission-standard", "-n", deploy.OPERATOR_NAMESPACE)
    wait_until_said(guarded, service(BOUND), "no params found for policy binding")
