"""What follows when an engine runs out of memory: corrected once, then the last good revision, or none."""

from typing import Any

import pytest

import factories as make

from .memory_kube import World

ADDRESS = "10.0.0.7"


def hold(
    world: World, failure_class: str = "KvCacheTooSmall", *, name: str = "chat-1", **fields: Any
) -> None:
    """A pod of the revision that runs, held by its supervisor after its engine failed."""
    revision = world.revision
    world.add_pod(make.running_pod(name=name, revision=revision, started=True))
    failure = make.failure(failure_class, **fields)
    world.engines.reports[ADDRESS] = make.report(revision=revision, phase="Failed", failure=failure)


def become_ready(world: World, name: str = "chat-1") -> None:
    world.add_pod(make.running_pod(name=name, revision=world.revision, ready=True))
    world.engines.reports[ADDRESS] = make.report(
        revision=world.revision,
        phase="Ready",
        memory={"weightsBytes": 269_000_000, "kvCacheBytes": 2**30, "kvCacheTokens": 23296},
    )


async def test_unproven_plan_starts_on_one_replica_and_the_others_follow(world: World) -> None:
    world.serve(replicas=3)
    await world.settle()
    assert world.deployment["spec"]["replicas"] == 1

    become_ready(world)
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3
    assert world.status["start"]["revisions"] == [
        {"revision": world.revision, "starts": 0, "proven": True, "corrected": False}
    ]


async def test_ready_pod_proves_the_plan_where_no_report_can_be_read(world: World) -> None:
    world.serve(replicas=3)
    await world.settle()

    world.add_pod(make.running_pod(revision=world.revision, ready=True))
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3


async def test_roll_of_a_running_service_keeps_its_replicas(world: World) -> None:
    world.serve(replicas=3)
    await world.settle()
    become_ready(world)
    await world.settle()

    world.serve(replicas=3, workload={"context": {"max": 1024, "min": 512}})
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3


async def test_length_the_engine_says_fits_is_planned(world: World) -> None:
    world.serve()
    await world.settle()
    first = world.revision

    hold(world, estimatedMaxModelLen=3000)
    await world.reconcile()

    assert world.revision != first
    assert int(world.engine_args[world.engine_args.index("--max-model-len") + 1]) <= 3000
    assert ("Warning", "PlanCorrected") in [event[:2] for event in world.said.events]


async def test_corrected_plan_that_starts_is_told_as_such(world: World) -> None:
    world.serve()
    await world.settle()
    hold(world, estimatedMaxModelLen=3000)
    await world.settle()

    world.drop_pods()
    become_ready(world, "chat-2")
    await world.settle()

    assert world.condition("Planned")[:2] == ("True", "PlanCorrected")
    assert world.condition("Ready")[0] == "True"
    assert world.condition("Stalled")[0] == "False"


async def test_corrected_plan_is_not_a_difference_to_refresh_away(world: World) -> None:
    world.serve()
    await world.settle()
    hold(world, estimatedMaxModelLen=3000)
    await world.settle()
    world.drop_pods()
    world.start()

    await world.settle()

    assert world.condition("UpToDate")[:2] == ("True", "UpToDate")


async def test_second_failure_without_a_good_revision_leaves_no_replica(world: World) -> None:
    world.serve(replicas=2)
    await world.settle()
    hold(world, estimatedMaxModelLen=3000)
    await world.settle()
    world.drop_pods()

    hold(world, name="chat-2", message="still too small, says the engine")
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 0
    status, reason, message = world.condition("Stalled")
    assert (status, reason) == ("True", "KvCacheTooSmall")
    assert "still too small, says the engine" in message
    assert world.condition("Planned")[0] == "False"
    assert world.condition("Ready")[0] == "False"


async def test_no_replica_stays_no_replica_without_a_change(world: World) -> None:
    world.serve(replicas=2)
    await world.settle()
    hold(world, estimatedMaxModelLen=3000)
    await world.settle()
    world.drop_pods()
    hold(world, name="chat-2")
    await world.settle()

    world.drop_pods()
    world.start()
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Stalled")[0] == "True"


async def test_second_failure_brings_the_last_good_revision_back(world: World) -> None:
    world.serve(replicas=2, workload={"context": {"max": 1024, "min": 512}})
    await world.settle()
    become_ready(world)
    await world.settle()
    good = world.revision

    world.serve(replicas=2, workload={"context": {"max": 4096, "min": 512}})
    await world.settle()
    world.drop_pods()
    hold(world, name="chat-2", estimatedMaxModelLen=3000)
    await world.settle()
    world.drop_pods()
    hold(world, name="chat-3")
    await world.settle()

    assert world.revision == good
    assert world.deployment["spec"]["replicas"] == 2
    status, _, message = world.condition("Stalled")
    assert status == "True"
    assert f"the last good revision {good} runs in its place" in message


async def test_good_revision_that_came_back_stays(world: World) -> None:
    await test_second_failure_brings_the_last_good_revision_back(world)
    good = world.revision
    world.drop_pods()
    become_ready(world, "chat-4")

    world.start()
    await world.settle()

    assert world.revision == good
    assert world.condition("Available")[0] == "True"
    assert world.condition("Ready")[0] == "False"


async def test_edit_after_the_end_starts_anew(world: World) -> None:
    await test_no_replica_stays_no_replica_without_a_change(world)

    world.serve(replicas=2, annotations={"llmservice.dev/restart": "again"})
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 1
    assert world.condition("Stalled")[0] == "False"


@pytest.mark.parametrize("failure_class", ["DeviceNotEmpty"])
async def test_start_that_another_plan_would_not_mend_gets_a_second_try(
    world: World, failure_class: str
) -> None:
    world.serve()
    await world.settle()
    first = world.revision

    hold(world, failure_class)
    await world.settle()
    assert (world.revision, world.deployment["spec"]["replicas"]) == (first, 1)

    world.add_pod(
        make.running_pod(
            name="chat-1",
            revision=first,
            started=True,
            restarts=1,
            last=make.terminated(message=make.termination_message(failure_class)),
        )
    )
    await world.settle()
    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Stalled")[:2] == ("True", failure_class)


async def test_one_failure_seen_many_times_is_one_start(world: World) -> None:
    """First in the report, then in the container's end, then in its last state."""
    world.serve()
    await world.settle()
    first = world.revision
    hold(world, "DeviceNotEmpty")
    for _ in range(5):
        world.clock.seconds += 10
        await world.reconcile()

    del world.engines.reports[ADDRESS]
    ended = make.termination_message("DeviceNotEmpty")
    world.add_pod(make.crashed_pod(ended, name="chat-1", revision=first))
    await world.settle()

    assert world.status["start"]["revisions"][0]["starts"] == 1
    assert world.deployment["spec"]["replicas"] == 1


async def test_failure_of_a_proven_revision_changes_no_plan(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world)
    await world.settle()
    first = world.revision

    world.drop_pods()
    hold(world, name="chat-2", estimatedMaxModelLen=3000)
    await world.settle()

    assert (world.revision, world.deployment["spec"]["replicas"]) == (first, 1)
    assert world.condition("Progressing")[:2] == ("False", "KvCacheTooSmall")


async def test_length_below_what_the_user_needs_is_refused_with_the_engine_words(world: World) -> None:
    world.serve(workload={"context": {"min": 4096, "max": 8192}})
    await world.settle()

    hold(world, estimatedMaxModelLen=3000, message="the estimated maximum model length is 3000")
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 0
    assert world.condition("Stalled")[0] == "True"
    assert "3000" in world.condition("Planned")[2]


async def test_crash_between_correction_and_status_corrects_no_second_time(world: World) -> None:
    world.serve()
    await world.settle()
    before = dict(world.status)
    hold(world, estimatedMaxModelLen=3000)
    await world.reconcile()
    corrected = world.revision
    world.kube.objects["LLMService", "chat"]["status"] = before
    world.kube.put(world.kube.objects["LLMService", "chat"])
    world.start()
    world.drop_pods()

    hold(world, name="chat-2", estimatedMaxModelLen=2000)
    await world.settle()

    assert world.revision == corrected
    assert world.deployment["spec"]["replicas"] == 0


async def test_report_is_told_beside_the_plan(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world)
    await world.settle()

    engine = world.status["engine"]
    weights = next(each for each in engine["memory"] if each["name"] == "weights")
    assert engine["kvCacheTokens"] == 23296
    assert weights["actualBytes"] == 269_000_000
    planned = weights["plannedBytes"]
    assert weights["errorPercent"] == pytest.approx(100 * (planned - 269e6) / 269e6, abs=0.05)


async def test_ready_engine_is_asked_for_its_report_once(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world)
    await world.settle()
    asked = len(world.engines.asked)

    await world.reconcile()

    assert len(world.engines.asked) == asked
