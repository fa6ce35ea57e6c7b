"""What is told of a paused service: what runs, not what would."""

from typing import Any

import factories as make

from .memory_kube import World

PAUSED = {"llmservice.dev/paused": "true"}
SHORTER: dict[str, Any] = {"workload": {"context": {"min": 512, "max": 1024}}}


async def serving(world: World) -> str:
    """A service whose one replica answers; its revision."""
    world.serve()
    await world.settle()
    world.add_pod(make.running_pod(ready=True, revision=world.revision))
    await world.settle()
    return world.revision


async def test_edit_under_a_pause_leaves_the_plan_that_runs_in_the_status(world: World) -> None:
    running = await serving(world)

    world.serve(annotations=PAUSED, **SHORTER)
    await world.settle()

    plan = world.status["plan"]
    assert (plan["revision"], plan["knobs"]["maxModelLen"]) == (running, 8192)


async def test_replica_that_serves_is_ready_under_a_pause(world: World) -> None:
    await serving(world)

    world.serve(annotations=PAUSED, **SHORTER)
    await world.settle()

    assert world.condition("Ready")[:2] == ("True", "Ready")
    assert world.condition("Progressing")[:2] == ("False", "Paused")


async def test_edit_is_taken_when_the_pause_ends(world: World) -> None:
    running = await serving(world)
    world.serve(annotations=PAUSED, **SHORTER)
    await world.settle()

    world.serve(**SHORTER)
    await world.settle()

    assert world.revision != running
    assert world.status["plan"]["knobs"]["maxModelLen"] == 1024
