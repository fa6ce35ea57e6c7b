"""What is told while the model's config is missing, broken or out of reach, and what runs meanwhile."""

import json

from factories import TINY
from llmservice_operator.clients.modelhub import HubModel, ModelHubError

from .memory_kube import World

COMMIT = "a" * 40


async def test_missing_config_map_is_told_with_the_command_that_makes_it(world: World) -> None:
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "none"})

    again = await world.settle()

    status, reason, message = world.condition("Planned")
    assert (status, reason) == ("Unknown", "ModelConfigUnavailable")
    assert "kubectl -n default create configmap none --from-file=config.json" in message
    assert world.condition("Stalled")[0] == "False"
    assert again == 1.0
    assert "Deployment" not in {kind for _, kind, _ in world.kube.writes}


async def test_what_stays_missing_is_looked_for_less_and_less(world: World) -> None:
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "none"})
    await world.settle()

    world.clock.seconds += 120
    assert await world.settle() == 60.0
    world.clock.seconds += 86_400
    assert await world.settle() == 300.0


async def test_config_map_that_comes_later_is_found(world: World) -> None:
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "late"})
    await world.settle()

    world.kube.put(
        {"kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"config.json": json.dumps(TINY)}}
    )
    await world.settle()

    assert world.condition("Planned")[0] == "True"


async def test_config_map_without_json_is_told_as_it_is(world: World) -> None:
    world.kube.put({"kind": "ConfigMap", "metadata": {"name": "bad"}, "data": {"config.json": "{"}})
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "bad"})

    await world.settle()

    status, reason, message = world.condition("Planned")
    assert (status, reason) == ("False", "InvalidModelConfig")
    assert "ConfigMap default/bad, config.json is not JSON" in message


async def test_config_map_nested_without_end_is_told(world: World) -> None:
    world.kube.put(
        {"kind": "ConfigMap", "metadata": {"name": "deep"}, "data": {"config.json": "[" * 100_000}}
    )
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "deep"})

    await world.settle()

    assert "config.json is nested too deeply to be read" in world.condition("Planned")[2]


async def test_half_a_surrogate_pair_in_a_config_is_no_obstacle(world: World) -> None:
    config = json.dumps({**TINY, "note": "\ud800"})
    world.kube.put({"kind": "ConfigMap", "metadata": {"name": "half"}, "data": {"config.json": config}})
    world.serve(model={"uri": "pvc://models/tiny", "configMap": "half"})

    await world.settle()

    assert world.condition("Planned")[0] == "True"


async def test_volume_without_config_map_names_both_ways_out(world: World) -> None:
    world.serve(model={"uri": "pvc://models/tiny"})

    await world.settle()

    status, reason, message = world.condition("Planned")
    assert (status, reason) == ("Unknown", "ModelConfigUnavailable")
    assert "spec.model.configMap" in message
    assert "hf://" in message


async def test_branch_of_the_hub_is_pinned_to_its_commit(world: World) -> None:
    model = HubModel(repository="org/tiny", commit=COMMIT, config=TINY, weights_bytes=269_000_000)
    world.hub.models["org/tiny", "main"] = model
    world.hub.models["org/tiny", COMMIT] = model
    world.serve(model={"uri": "hf://org/tiny"})
    await world.settle()
    first = world.revision

    moved = HubModel(repository="org/tiny", commit="b" * 40, config=TINY, weights_bytes=269_000_000)
    world.hub.models["org/tiny", "main"] = moved
    world.start()
    await world.settle()

    assert world.revision == first
    assert world.status["plan"]["modelRevision"] == COMMIT
    assert COMMIT in world.engine_args


async def test_hub_that_is_away_after_a_restart_changes_nothing(world: World) -> None:
    model = HubModel(repository="org/tiny", commit=COMMIT, config=TINY, weights_bytes=269_000_000)
    world.hub.models["org/tiny", "main"] = model
    world.hub.models["org/tiny", COMMIT] = model
    world.serve(model={"uri": "hf://org/tiny"})
    await world.settle()
    first = world.revision

    world.hub.error = ModelHubError("HubUnavailable", "the hub did not answer", permanent=False)
    world.start()
    await world.settle()

    assert world.revision == first
    assert world.condition("Planned")[0] == "True"
    assert world.condition("UpToDate")[0] == "Unknown"
