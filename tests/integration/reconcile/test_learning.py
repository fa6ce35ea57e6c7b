"""What is learnt of a start, on a real API server: told of the service, and kept over operators."""

import json
from typing import Any

import pytest

import factories as make
from devcluster.api import Api
from running import wait_for

from .played import Played, RestartableOperator, revision_of

pytestmark = pytest.mark.light

GIB = 1 << 30
CALIBRATION = "/api/v1/namespaces/default/configmaps/llmservice-operator-calibration"
SPEC: dict[str, Any] = {
    "model": {"uri": "pvc://models/tiny", "configMap": "tiny"},
    "accelerator": {"types": ["nvidia-h200"]},
    "engine": {"version": "0.26.0"},
}


def start(world: Played, name: str, address: str, *, more_bytes: int = 0) -> dict[str, Any]:
    """The service's engine becomes ready, with so much more taken than was planned; the plan as the status tells it."""
    revision = revision_of(world.deployment_at(name))
    world.wait_condition(name, "Planned", "True")
    service = world.get("LLMService", name)
    assert service is not None
    plan: dict[str, Any] = service["status"]["plan"]
    sizes = {each["name"]: each["sizeBytes"] for each in plan["memory"]}
    world.reports[address] = make.report(
        revision=revision,
        phase="Ready",
        readyAt=make.NOW,
        engine={"name": "vllm", "version": "0.26.0", "versionKnown": True},
        memory={
            "totalBytes": plan["totalBytes"],
            "requestedBytes": plan["requestedBytes"],
            "weightsBytes": sizes["weights"],
            "activationBytes": sizes["activation"] + more_bytes,
            "nonTorchBytes": sizes["non_torch"],
            "kvCacheBytes": sizes["kv_cache"] + sizes["margin"] - more_bytes,
        },
    )
    world.add_pod(name, f"{name}-1", {**make.running_pod(ready=True)["status"], "podIP": address})
    return plan


def kv_cache(plan: dict[str, Any]) -> int:
    return next(int(each["sizeBytes"]) for each in plan["memory"] if each["name"] == "kv_cache")


def test_start_that_took_more_is_told_kept_and_planned_with(
    world: Played, operator: RestartableOperator, api: Api
) -> None:
    world.serve("chat", SPEC)
    first = start(world, "chat", "127.0.9.1", more_bytes=2 * GIB)
    found = world.wait_condition("chat", "PlanAccurate", "False")
    template = world.deployment_at("chat")["spec"]["template"]
    told = operator.metrics()

    operator.restart()
    world.serve("other", SPEC)
    world.wait_condition("other", "Planned", "True")

    kept = api.request("GET", CALIBRATION)
    other = world.get("LLMService", "other")
    labels = f'{{name="chat",namespace="{world.namespace}",term="kv_cache"}}'
    predicted, actual = (told[f"llmservice_plan_{word}_bytes{labels}"] for word in ("predicted", "actual"))
    assert predicted == kv_cache(first)
    assert actual < predicted - GIB
    assert "GiB" in found["message"]
    assert [len(json.loads(text)["starts"]) for text in kept["data"].values()] == [1]
    assert other is not None
    assert kv_cache(first) - kv_cache(other["status"]["plan"]) == pytest.approx(2 * GIB, abs=4 << 20)
    assert world.deployment_at("chat")["spec"]["template"] == template


def test_series_of_a_service_go_with_it(world: Played, operator: RestartableOperator) -> None:
    world.serve("gone", SPEC)
    start(world, "gone", "127.0.9.2")
    world.wait_condition("gone", "PlanAccurate", "True")

    def series() -> list[str]:
        found = operator.metrics()
        return [each for each in found if "llmservice_plan_" in each and world.namespace in each]

    assert series()
    world.delete("LLMService", "gone")
    wait_for(lambda: not series(), "the series to go")
