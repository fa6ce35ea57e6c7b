"""What is written for a service, and when nothing is."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

import factories as make
from llmservice_operator.api.labels import KIND
from llmservice_operator.clients.kube import ForbiddenError, InvalidError, KubeUnavailableError

from .memory_kube import KEY, RENDER, Killed, World

COMMIT = "a" * 40


async def test_first_reconcile_writes_each_child_and_the_status_once(world: World) -> None:
    world.serve()

    await world.reconcile()

    assert sorted(kind for verb, kind, _ in world.kube.writes if kind != KIND) == [
        "ControllerRevision",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
    ]
    assert [verb for verb, kind, _ in world.kube.writes if kind == KIND] == ["status"]


async def test_what_runs_is_on_record_before_it_runs(world: World) -> None:
    world.serve()

    await world.reconcile()

    kinds = [kind for _, kind, _ in world.kube.writes]
    assert kinds.index("ControllerRevision") < kinds.index("Deployment")


async def test_settled_service_is_not_written_again(world: World) -> None:
    world.serve()
    await world.settle()
    writes = len(world.kube.writes)

    for _ in range(3):
        world.clock.seconds += 600
        await world.reconcile()

    assert len(world.kube.writes) == writes


async def test_gone_or_deleted_service_is_left_alone(world: World) -> None:
    assert await world.reconcile() is None

    world.serve()
    world.kube.objects[KIND, KEY.name]["metadata"]["deletionTimestamp"] = make.at(0)
    await world.reconcile()

    assert world.kube.writes == []


async def test_paused_service_gets_its_status_and_nothing_else(world: World) -> None:
    world.serve(annotations={"llmservice.dev/paused": "true"})

    await world.settle()

    assert {kind for _, kind, _ in world.kube.writes} == {KIND}
    assert world.condition("Progressing")[:2] == ("False", "Paused")


async def test_pause_keeps_a_user_edit_back_until_it_ends(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.revision

    paused = {"llmservice.dev/paused": "true"}
    world.serve(annotations=paused, workload={"context": {"max": 1024, "min": 512}})
    await world.settle()
    assert world.revision == before

    world.serve(workload={"context": {"max": 1024, "min": 512}})
    await world.settle()
    assert world.revision != before


async def test_edit_that_changes_a_knob_rolls_once(world: World) -> None:
    world.serve()
    await world.settle()
    first = world.revision

    world.serve(workload={"context": {"max": 1024, "min": 512}})
    await world.settle()

    assert world.revision != first
    assert "1024" in world.engine_args
    assert [each["revision"] for each in world.revisions()] == [1, 2]


async def test_edit_that_changes_no_knob_rolls_nothing(world: World) -> None:
    world.serve()
    await world.settle()
    before = json.dumps(world.deployment["spec"], sort_keys=True)

    world.serve(workload={"inputTokens": {"p50": 10}})
    await world.settle()

    assert json.dumps(world.deployment["spec"], sort_keys=True) == before
    assert world.status["observedGeneration"] == 2


async def test_way_back_rolls_to_the_old_revision_under_a_new_number(world: World) -> None:
    world.serve()
    await world.settle()
    first = world.revision
    world.serve(workload={"context": {"max": 1024, "min": 512}})
    await world.settle()

    world.serve()
    await world.settle()

    assert world.revision == first
    numbers = {each["metadata"]["name"]: each["revision"] for each in world.revisions()}
    assert numbers[first] == 3


async def test_upgrade_of_the_operator_restarts_nothing_and_shows(world: World) -> None:
    world.serve()
    await world.settle()
    before = json.dumps(world.deployment["spec"], sort_keys=True)

    world.render = dataclasses.replace(RENDER, supervisor_image="ghcr.io/llmservice/operator:0.2.0")
    world.start()
    await world.settle()

    assert json.dumps(world.deployment["spec"], sort_keys=True) == before
    status, reason, message = world.condition("UpToDate")
    assert (status, reason) == ("False", "RefreshAvailable")
    assert "operator:0.2.0" in message


async def test_upgrade_does_not_ride_on_an_edit_that_changes_nothing(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.revision

    world.render = dataclasses.replace(RENDER, supervisor_image="ghcr.io/llmservice/operator:0.2.0")
    world.start()
    world.serve(workload={"inputTokens": {"p50": 10}})
    await world.settle()

    assert world.revision == before


async def test_refresh_takes_what_the_upgrade_would_change(world: World) -> None:
    world.serve()
    await world.settle()
    world.render = dataclasses.replace(RENDER, supervisor_image="ghcr.io/llmservice/operator:0.2.0")
    world.start()

    world.serve(annotations={"llmservice.dev/refresh": "1"})
    await world.settle()

    init = world.deployment["spec"]["template"]["spec"]["initContainers"][0]
    assert init["image"] == "ghcr.io/llmservice/operator:0.2.0"
    assert world.condition("UpToDate")[0] == "True"


async def test_restart_annotation_rolls_once(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.revision

    world.serve(annotations={"llmservice.dev/restart": "now"})
    await world.settle()

    assert world.revision != before
    assert len(world.revisions()) == 2


async def test_history_is_cut_to_three_and_what_pods_run_is_kept(world: World) -> None:
    world.serve()
    await world.settle()
    first = world.revision
    world.add_pod(make.running_pod(revision=first, ready=True))

    for number in range(5):
        world.serve(annotations={"llmservice.dev/restart": str(number)})
        await world.settle()

    names = [each["metadata"]["name"] for each in world.revisions()]
    assert len(names) == 4
    assert first in names


@pytest.mark.parametrize("writes", range(9))
async def test_killed_at_any_write_it_ends_in_the_same_state(world: World, writes: int) -> None:
    straight = World(catalogue=world.catalogue)
    for each in (straight, world):
        each.serve()
    await straight.settle()
    straight.serve(workload={"context": {"max": 1024, "min": 512}})
    await straight.settle()

    world.kube.die_after = writes
    for spec in ({}, {"workload": {"context": {"max": 1024, "min": 512}}}):
        world.serve(**spec)
        try:
            await world.settle()
        except Killed:
            world.kube.die_after = None
            world.start()
            await world.settle()

    assert world.deployment["spec"] == straight.deployment["spec"]
    assert [r["metadata"]["name"] for r in world.revisions()] == [
        r["metadata"]["name"] for r in straight.revisions()
    ]
    assert world.status["plan"] == straight.status["plan"]


async def test_a_strangers_deployment_that_runs_is_not_looked_at_again_and_again(world: World) -> None:
    stranger = {"metadata": {"name": "chat"}, "spec": {"replicas": 1}, "status": {"replicas": 1}}
    world.kube.put({"kind": "Deployment", **stranger})
    world.serve()

    await world.reconcile()

    assert await world.reconcile() != 0.0
    assert world.condition("Stalled")[:2] == ("True", "NameConflict")


async def test_stranger_of_the_same_name_is_not_touched(world: World) -> None:
    world.kube.put({"kind": "Service", "metadata": {"name": "chat"}, "spec": {"ports": [{"port": 80}]}})
    world.serve()

    again = await world.settle()

    assert world.kube.objects["Service", "chat"]["spec"] == {"ports": [{"port": 80}]}
    assert world.condition("Progressing")[:2] == ("False", "NameConflict")
    assert world.condition("Stalled")[:2] == ("True", "NameConflict")
    assert "kubectl -n default delete service chat" in world.condition("Stalled")[2]
    assert again is not None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            InvalidError(422, "Invalid", "spec.template.spec.containers[0].image: bad"),
            "containers[0].image: bad",
        ),
        (ForbiddenError(403, "Forbidden", "exceeded quota: count/deployments.apps"), "exceeded quota"),
    ],
)
async def test_refused_child_is_told_in_the_words_of_the_api_server(
    world: World, error: InvalidError, words: str
) -> None:
    world.kube.refuse["Deployment"] = error
    world.serve()

    await world.settle()

    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "ApplyRefused")
    assert words in message
    assert "Service" in [kind for _, kind, _ in world.kube.writes]


async def test_api_server_that_is_away_is_no_news_for_the_status(world: World) -> None:
    world.kube.refuse["Deployment"] = KubeUnavailableError(503, "ServiceUnavailable", "try later")
    world.serve()

    with pytest.raises(KubeUnavailableError):
        await world.reconcile()

    assert world.status == {}


async def test_refused_edit_keeps_what_runs(world: World) -> None:
    world.serve()
    await world.settle()
    before = world.revision
    world.add_pod(make.running_pod(revision=before, ready=True))

    world.serve(accelerator={"types": ["nvidia-h2000"]})
    await world.settle()

    assert world.revision == before
    assert world.condition("Planned")[:2] == ("False", "UnknownAccelerator")
    assert world.condition("Available")[0] == "True"
    assert world.condition("Ready")[0] == "False"
    assert world.condition("Stalled")[0] == "True"


async def test_spec_that_cannot_be_read_loses_nothing(world: World) -> None:
    world.serve()
    await world.settle()
    before = json.dumps(world.deployment, sort_keys=True)

    world.serve(fromTheFuture={"x": 1})
    await world.settle()

    assert json.dumps(world.deployment, sort_keys=True) == before
    status, reason, message = world.condition("Planned")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "fromTheFuture" in message
    assert world.status["observedGeneration"] == 2


async def test_revision_that_cannot_be_read_is_never_rolled_over(world: World) -> None:
    world.serve()
    await world.settle()
    before = json.dumps(world.deployment, sort_keys=True)
    name = world.revision
    world.kube.objects["ControllerRevision", name]["data"] = {"schema": 99}
    world.kube.put(world.kube.objects["ControllerRevision", name])
    world.start()

    world.serve(workload={"context": {"max": 1024, "min": 512}})
    await world.settle()

    assert json.dumps(world.deployment, sort_keys=True) == before
    assert world.condition("Stalled")[0] == "True"
    assert f"ControllerRevision {name} cannot be read" in world.condition("Stalled")[2]


async def test_fields_of_a_newer_status_are_no_obstacle(world: World) -> None:
    world.serve()
    await world.settle()
    service = world.kube.objects[KIND, KEY.name]
    service["status"] = {**service["status"], "fromTheFuture": {"x": 1}}
    world.kube.put(service)

    await world.settle()

    assert world.condition("Planned")[0] == "True"


async def test_volume_whose_source_is_missing_is_named_once_the_pod_waits_for_it(world: World) -> None:
    extra = {"volumes": [{"name": "extra", "configMap": "nowhere", "mountPath": "/extra"}]}
    world.kube.put({"kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": {}})
    world.serve(podTemplate=extra)
    await world.settle()
    world.add_pod(make.pod(revision=world.revision, created=-5))
    await world.settle()
    assert world.condition("Progressing")[:2] == ("True", "PodStarting")

    world.clock.seconds += 30
    await world.settle()

    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "VolumeNotMounted")
    assert "ConfigMap nowhere: not there in namespace default" in message


async def test_edit_that_comes_with_the_answer_to_our_own_write_is_not_lost(world: World) -> None:
    """The store knows the edit from the answer to the status write; the watch's event of it is no news then."""
    world.serve()
    await world.settle()
    service = world.kube.objects[KIND, KEY.name]
    service["metadata"]["annotations"] = {"llmservice.dev/note": "a status write is needed"}
    world.serve(replicas=2)
    write = world.kube.apply_status

    async def edited_meanwhile(manifest: Mapping[str, Any]) -> dict[str, Any]:
        world.serve(replicas=3)
        return await write(manifest)

    world.kube.apply_status = edited_meanwhile  # type: ignore[method-assign]

    assert await world.reconcile() == 0.0


async def test_failure_of_pods_that_comes_with_the_answer_to_our_own_write_is_not_lost(world: World) -> None:
    world.serve()
    await world.settle()
    apply = world.kube.apply
    refused = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}

    async def failed_meanwhile(manifest: Mapping[str, Any], *, force: bool = True) -> dict[str, Any]:
        if manifest["kind"] == "Deployment":
            world.deployment["status"] = {"conditions": [refused]}
        return await apply(manifest, force=force)

    world.kube.apply = failed_meanwhile  # type: ignore[method-assign]
    world.serve(annotations={"llmservice.dev/restart": "now"})

    assert await world.reconcile() == 0.0
