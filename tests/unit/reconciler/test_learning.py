"""What one service's start teaches the plan of the next, and that it restarts nobody."""

import json
from typing import Any

import pytest

import factories as make
from llmservice_operator.api.labels import KIND
from llmservice_operator.perfmodel.calibration import Start
from unit.perfmodel.samples import load_config

from .memory_kube import KEY, World

GIB = 1 << 30
ADDRESS = "10.0.0.7"
SPEC: dict[str, Any] = {
    "accelerator": {"types": ["nvidia-h200"]},
    "engine": {"version": "0.26.0"},
}


def become_ready(
    world: World, *, pod: str = "chat-1", more: float = 0.0, version: str = "0.26.0", **memory: Any
) -> None:
    """An engine that took so many GiB more than was planned."""
    plan = world.status["plan"]
    sizes = {each["name"]: each["sizeBytes"] for each in plan["memory"]}
    revision = world.revision
    world.add_pod(make.running_pod(name=pod, revision=revision, ready=True))
    world.engines.reports[ADDRESS] = make.report(
        revision=revision,
        phase="Ready",
        readyAt=make.NOW,
        engine={"name": "vllm", "version": version, "versionKnown": True},
        memory={
            "totalBytes": plan["totalBytes"],
            "requestedBytes": plan["requestedBytes"],
            "weightsBytes": sizes["weights"],
            "activationBytes": sizes["activation"] + int(more * GIB),
            "nonTorchBytes": sizes["non_torch"],
            "kvCacheBytes": sizes["kv_cache"] + sizes["margin"] - int(more * GIB),
            **memory,
        },
    )


def starts(world: World) -> list[Start]:
    return [each for entry in world.calibration.calibration.entries.values() for each in entry.starts]


async def served(world: World, **fields: Any) -> None:
    world.serve(**{**SPEC, **fields})
    await world.settle()


def kv_cache(world: World) -> int:
    return next(each["sizeBytes"] for each in world.status["plan"]["memory"] if each["name"] == "kv_cache")


async def forget_service(world: World) -> None:
    """The service and all that is its own go; the ConfigMaps stay."""
    kept = {where: obj for where, obj in world.kube.objects.items() if where[0] == "ConfigMap"}
    world.kube.objects = kept
    world.engines.reports.clear()
    await world.reconcile()


async def test_start_is_measured_once(world: World) -> None:
    await served(world)
    become_ready(world)
    for _ in range(3):
        await world.settle()

    assert len(starts(world)) == 1


async def test_next_plan_leaves_room_for_what_the_last_start_took(world: World) -> None:
    await served(world)
    before = kv_cache(world)
    become_ready(world, more=1.0)
    await world.settle()
    await forget_service(world)

    await served(world)

    assert before - kv_cache(world) == pytest.approx(GIB, abs=2 << 20)
    assert any("calibrated by 1 start of 1 service" in each for each in world.status["plan"]["reasons"])


async def test_calibrated_plan_that_starts_as_planned_teaches_the_same(world: World) -> None:
    """Else the correction would be forgotten as soon as it had worked."""
    await test_next_plan_leaves_room_for_what_the_last_start_took(world)
    calibrated = kv_cache(world)
    become_ready(world, pod="chat-2")
    await world.settle()
    await forget_service(world)

    await served(world)

    assert kv_cache(world) == pytest.approx(calibrated, abs=2 << 20)


async def test_what_is_learnt_restarts_nobody(world: World) -> None:
    await served(world, engine={"version": "0.26.0", "pin": {"maxNumSeqs": 256}})
    template = json.dumps(world.deployment["spec"]["template"], sort_keys=True)
    become_ready(world, more=1.5)

    for _ in range(3):
        world.clock.seconds += 60
        await world.settle()
    await world.calibration.write()
    world.start()
    await world.calibration.read()
    await world.settle()

    assert json.dumps(world.deployment["spec"]["template"], sort_keys=True) == template
    assert len(world.revisions()) == 1


async def test_less_context_that_would_be_planned_now_is_shown_and_not_taken(world: World) -> None:
    """On a card that the context fills: half a GiB less is fewer tokens."""
    data = {"config.json": json.dumps(load_config("meta-llama--Meta-Llama-3.1-8B"))}
    world.kube.put({"kind": "ConfigMap", "metadata": {"name": "llama"}, "data": data})
    await served(
        world, accelerator={"types": ["nvidia-l4"]}, model={"uri": "pvc://m/x", "configMap": "llama"}
    )
    before = world.revision
    become_ready(world, more=0.5)
    await world.settle()

    assert world.revision == before
    status, reason, message = world.condition("UpToDate")
    assert (status, reason) == ("False", "RefreshAvailable")
    assert "max_model_len" in message


async def test_engine_of_another_version_than_planned_teaches_nothing(world: World) -> None:
    await served(world)
    become_ready(world, more=1.0, version="0.27.0")
    await world.settle()

    assert starts(world) == []


@pytest.mark.parametrize(
    ("engine", "another"),
    [
        ({"args": {"cpu-offload-gb": "4"}}, True),
        ({"args": {"enforce-eager": "true"}}, True),
        ({"env": [{"name": "VLLM_ATTENTION_BACKEND", "value": "FLASHINFER"}]}, True),
        ({"pin": {"maxNumSeqs": 64}}, True),
        ({"args": {"tool-call-parser": "hermes"}}, False),
        ({"version": "v0.26.0"}, False),
    ],
)
async def test_start_teaches_the_same_situation_only(
    world: World, engine: dict[str, Any], *, another: bool
) -> None:
    await served(world)
    become_ready(world)
    await world.settle()
    await forget_service(world)

    await served(world, engine={"version": "0.26.0", **engine})
    become_ready(world, pod="chat-2")
    await world.settle()

    assert len(world.calibration.calibration.entries) == (2 if another else 1)


async def test_smaller_card_than_the_catalogue_says_is_planned_for(world: World) -> None:
    await served(world)
    total = world.status["plan"]["totalBytes"]
    become_ready(world, totalBytes=total // 2, requestedBytes=total // 2, kvCacheBytes=total // 4)
    await world.settle()
    await forget_service(world)

    await served(world)

    assert world.status["plan"]["totalBytes"] == pytest.approx(total // 2, abs=1 << 20)


async def test_what_was_learnt_outlives_the_operator(world: World) -> None:
    await served(world)
    before = kv_cache(world)
    become_ready(world, more=1.0)
    await world.settle()
    await world.calibration.write()
    await forget_service(world)
    world.start()
    await world.calibration.read()

    await served(world)

    assert kv_cache(world) < before


async def test_corrupt_calibration_plans_as_if_there_were_none(world: World) -> None:
    await served(world)
    before = kv_cache(world)
    await forget_service(world)
    name = "llmservice-operator-calibration"
    labels = {"app.kubernetes.io/part-of": "llmservice-operator"}
    metadata = {"name": name, "namespace": "llmservice-system", "labels": labels}
    world.kube.put({"kind": "ConfigMap", "metadata": metadata, "data": {"0" * 16: "{", "x": "y"}})
    world.start()
    await world.calibration.read()

    await served(world)

    assert kv_cache(world) == before
    assert ("Warning", "CalibrationUnreadable") in [event[:2] for event in world.said.events]


@pytest.mark.parametrize(
    "memory",
    [
        {"requestedBytes": 1e300},
        {"weightsBytes": -1},
        {"activationBytes": 1e15},
        {"kvCacheBytes": 0},
        {"kvCacheBytes": -GIB},
        {"requestedBytes": None},
        {"nonTorchBytes": float(1 << 50)},
    ],
)
async def test_report_that_is_no_engines_teaches_nothing(world: World, memory: dict[str, Any]) -> None:
    await served(world)
    become_ready(world, **memory)
    await world.settle()

    assert starts(world) == []


async def test_status_does_not_grow_with_starts(world: World) -> None:
    await served(world)
    for number in range(4):
        become_ready(world, pod=f"chat-{number}", more=0.1 * number)
        await world.settle()

    assert len(json.dumps(world.kube.objects[KIND, KEY.name]["status"])) < 16 * 1024
