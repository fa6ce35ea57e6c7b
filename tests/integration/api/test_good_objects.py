"""Objects that must pass, and what becomes of them."""

import json
from pathlib import Path

import pytest

from integration.api.kubectl import Kubectl

pytestmark = pytest.mark.light

GOOD = {path.stem: path for path in sorted((Path(__file__).parent / "good").glob("*.yaml"))}


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("name", GOOD)
def test_the_api_server_accepts_it(name: str, kubectl: Kubectl) -> None:
    result = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(GOOD[name]))

    assert result.returncode == 0, result.stderr


def test_zero_replicas_stay_zero(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", str(GOOD["zero-replicas"]))

    scale = kubectl(
        "get",
        "--raw",
        f"/apis/llmservice.dev/v1alpha1/namespaces/{namespace}/llmservices/zero-replicas/scale",
    )
    assert json.loads(scale.stdout)["spec"] == {}, "the scale subresource leaves a zero out"
    stored = kubectl("get", "llmsvc", "-n", namespace, "zero-replicas", "-o", "jsonpath={.spec.replicas}")
    assert stored.stdout == "0"


def test_the_minimal_object_gets_its_defaults(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", str(GOOD["minimal"]))

    stored = kubectl("get", "llmsvc", "-n", namespace, "minimal", "-o", "jsonpath={.spec}")
    assert json.loads(stored.stdout) == {
        "accelerator": {"parallelism": {"tensor": "auto"}},
        "drain": {"timeout": "5m"},
        "engine": {"kvCacheDtype": "auto", "name": "vllm", "prefixCaching": True, "quantization": "auto"},
        "model": {"revision": "main", "uri": "hf://Qwen/Qwen3-8B"},
        "replicas": 1,
        "service": {"port": 8000, "type": "ClusterIP"},
    }


def test_get_prints_these_columns(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", str(GOOD["minimal"]))

    header = kubectl("get", "llmsvc", "-n", namespace).stdout.splitlines()[0].split()
    assert header == [
        "NAME",
        "READY",
        "STATUS",
        "REPLICAS",
        "ACCELERATOR",
        "CONTEXT",
        "KV",
        "TOKENS",
        "TTFT",
        "P95",
        "AGE",
    ]
