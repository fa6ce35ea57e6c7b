"""What is planned anew and what is remembered: the same question has one answer, another question never has it."""

import json
from typing import Any

from factories import TINY

from .memory_kube import World

NO_TYPES: dict[str, Any] = {"accelerator": {}}


def add_node(world: World, name: str, product: str) -> None:
    """A node with eight cards of this product."""
    world.kube.put(
        {
            "kind": "Node",
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        }
    )


async def served_on_h200(world: World) -> str:
    """A service without wishes in a cluster of H200, to which a cheaper L40S then comes; its revision."""
    add_node(world, "node-1", "NVIDIA-H200")
    world.serve(**NO_TYPES)
    await world.settle()
    add_node(world, "node-2", "NVIDIA-L40S")
    await world.settle()
    return world.revision


async def test_cheaper_card_that_turns_up_is_no_difference(world: World) -> None:
    await served_on_h200(world)

    assert world.condition("UpToDate")[:2] == ("True", "UpToDate")


async def test_edit_of_a_knob_leaves_the_service_on_its_card(world: World) -> None:
    first = await served_on_h200(world)

    world.serve(engine={"pin": {"maxNumSeqs": 32}}, **NO_TYPES)
    await world.settle()

    assert world.revision != first
    assert world.status["plan"]["accelerator"] == "nvidia-h200"


async def test_refresh_chooses_the_card_anew(world: World) -> None:
    await served_on_h200(world)

    world.serve(annotations={"llmservice.dev/refresh": "1"}, **NO_TYPES)
    await world.settle()

    assert world.status["plan"]["accelerator"] == "nvidia-l40s"


async def test_other_words_on_accelerators_choose_the_card_anew(world: World) -> None:
    await served_on_h200(world)

    world.serve(accelerator={"types": ["nvidia-h200", "nvidia-l40s"]})
    await world.settle()

    assert world.status["plan"]["accelerator"] == "nvidia-l40s"


async def test_another_cause_of_a_missing_config_is_told_as_it_is(world: World) -> None:
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "late"})
    await world.settle()

    world.kube.put({"kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"other": json.dumps(TINY)}})
    await world.settle()

    assert "has no key config.json" in world.condition("Planned")[2]


def add_holder(world: World, node: str, cards: int) -> None:
    """A pod of another service that holds cards of a node."""
    limits = {"nvidia.com/gpu": str(cards)}
    world.kube.put(
        {
            "kind": "Pod",
            "metadata": {
                "name": "other-0",
                "namespace": "default",
                "labels": {"llmservice.dev/service": "other"},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "engine", "resources": {"limits": limits}}],
            },
            "status": {"phase": "Running"},
        }
    )


async def test_free_card_comes_before_a_cheaper_one_that_is_taken(world: World) -> None:
    add_node(world, "node-1", "NVIDIA-H200")
    add_node(world, "node-2", "NVIDIA-L40S")
    add_holder(world, "node-2", 8)

    world.serve(**NO_TYPES)
    await world.settle()

    assert world.status["plan"]["accelerator"] == "nvidia-h200"


async def test_card_that_becomes_free_is_no_difference(world: World) -> None:
    add_node(world, "node-1", "NVIDIA-H200")
    add_node(world, "node-2", "NVIDIA-L40S")
    add_holder(world, "node-2", 8)
    world.serve(**NO_TYPES)
    await world.settle()

    add_holder(world, "node-1", 0)
    await world.settle()

    assert world.condition("UpToDate")[:2] == ("True", "UpToDate")


async def test_cordoned_node_comes_last(world: World) -> None:
    add_node(world, "node-1", "NVIDIA-H200")
    add_node(world, "node-2", "NVIDIA-L40S")
    world.kube.put(
        {
            "kind": "Node",
            "metadata": {"name": "node-2", "labels": {"nvidia.com/gpu.product": "NVIDIA-L40S"}},
            "spec": {"unschedulable": True},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        }
    )

    world.serve(**NO_TYPES)
    await world.settle()

    assert world.status["plan"]["accelerator"] == "nvidia-h200"


async def test_missed_objective_is_told_and_served_all_the_same(world: World) -> None:
    world.serve(slo={"tpot": {"p95": "1ms"}})
    await world.settle()

    status, reason, message = world.condition("Planned")
    assert (status, reason) == ("True", "ObjectiveMissed")
    assert "spec.slo.tpot.p95 of 1.0 ms is missed" in message
    assert world.deployment["spec"]["replicas"] == 1


async def test_objective_is_a_word_of_the_users_that_plans_anew(world: World) -> None:
    world.serve(accelerator={"types": ["nvidia-h200"]})
    await world.settle()
    before = world.status["plan"]["knobs"]["maxNumSeqs"]

    world.serve(accelerator={"types": ["nvidia-h200"]}, slo={"tpot": {"p95": "2ms"}})
    await world.settle()

    assert world.status["plan"]["knobs"]["maxNumSeqs"] < before
