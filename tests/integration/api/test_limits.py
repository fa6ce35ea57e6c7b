"""The largest objects that the bounds allow: the API server's budgets for rules and objects hold them."""

import json
from typing import Any

import pytest

from integration.api.kubectl import Kubectl

pytestmark = [pytest.mark.light, pytest.mark.usefixtures("crd")]


def name(number: int, length: int) -> str:
    return f"n{number:03d}".ljust(length, "x")


def largest_spec() -> dict[str, Any]:
    labels = {f"{name(n, 60)}.example.com/{name(n, 60)}": "v" * 63 for n in range(32)}
    annotations = dict.fromkeys(labels, "v" * 4096)
    amounts = {f"example.com/{name(n, 60)}": "1" for n in range(12)}
    return {
        "model": {
            "uri": "hf://" + "o" * 200 + "/" + "n" * 200,
            "servedName": "s" * 128,
            "configMap": "c" * 253,
        },
        "engine": {
            "image": "i" * 512,
            "command": ["c" * 1_024] * 16,
            "args": {f"z{name(n, 63)}.{name(n, 64)}": "v" * 4_096 for n in range(64)},
            "env": [{"name": name(n, 128), "value": "v" * 8_192} for n in range(64)],
        },
        "accelerator": {"types": [name(n, 63) for n in range(16)]},
        "workload": {"context": {"min": 1, "max": 16_777_216}, "concurrency": {"min": 65_536}},
        "drain": {"timeout": "00001m00001m00001m00001m"},
        "service": {"annotations": annotations, "labels": labels},
        "podTemplate": {
            "labels": labels,
            "annotations": annotations,
            "nodeSelector": labels,
            "imagePullSecrets": ["s" * 253] * 16,
            "resources": {"requests": amounts, "limits": amounts},
            "volumes": [
                {"name": name(n, 63), "mountPath": "/v/" + "p" * 1_000, "claim": "c" * 253} for n in range(16)
            ],
        },
    }


def manifest(spec: dict[str, Any]) -> str:
    head = {"apiVersion": "llmservice.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": "large"}}
    return json.dumps({**head, "spec": spec})


def test_the_largest_object_is_accepted(kubectl: Kubectl) -> None:
    result = kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest(largest_spec()))

    assert result.returncode == 0, result.stderr[-2_000:]


def test_every_reserved_flag_at_once_is_refused_with_a_mend_for_the_first(kubectl: Kubectl) -> None:
    spec = {
        "model": {"uri": "hf://a/b"},
        "engine": {"args": {"tp": "2", "port": "1", "host": "a", "model": "b", "q": "c", "api-key": "d"}},
    }
    result = kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest(spec))

    assert (
        "api-key: --api-key is not yours to set: name the Secret in spec.engine.apiKeySecret" in result.stderr
    )
    assert "tp: --tensor-parallel-size is not yours to set" in result.stderr


def test_a_key_of_a_megabyte_is_refused(kubectl: Kubectl) -> None:
    spec = {"model": {"uri": "hf://a/b"}, "engine": {"args": {"k" * 1_000_000: "v"}}}
    result = kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest(spec))

    assert result.returncode != 0
    assert "spec.engine.args" in result.stderr
