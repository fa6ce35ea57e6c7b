"""What the scaling loop finds becomes replicas, a status and an Event, by the service's reconcile."""

from dataclasses import replace

import factories as make
from llmservice_operator.api.conditions import ConditionType, Reason
from llmservice_operator.autoscaling.decision import Decision, Step
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_subject import Role
from llmservice_operator.controller.verdict import Verdict

from .memory_kube import KEY, World

SCALED = {"scaling": {"minReplicas": 1, "maxReplicas": 4}, "slo": {"ttft": {"p95": "1s"}}}


def outcome(current: int, desired: int) -> Outcome:
    """The loop wants another number."""
    return Outcome(
        uid="uid-chat",
        at=make.NOW,
        signals=Signals(),
        decision=Decision(
            desired=desired, current=current, ruling="forward", reason="9.0 requests/s",
            steps=(Step("forward", float(desired), ""),), state=ScalerState(),
        ),
        bounds=(1, 4),
        verdicts={ConditionType.SCALING_ACTIVE: Verdict(status="True", reason=Reason.SCALING_ACTIVE)},
        memory='{"v":1}',
        start_seconds=60.0,
        capacity_requests_per_second=4.0,
    )  # fmt: skip


async def running(world: World, **spec: object) -> None:
    """The service with one ready replica of a proven plan."""
    world.serve(**{**SCALED, **spec})
    await world.settle()
    world.add_pod(make.running_pod(ready=True, revision=world.revision))
    await world.settle()


async def test_what_the_loop_wants_is_written_into_the_deployment(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3
    assert world.status["scaling"]["desiredReplicas"] == 3
    assert world.status["scaling"]["decisions"][0]["from"] == 1
    assert ("Normal", "ScaledOut", "from 1 to 3 replicas: forward: 9.0 requests/s") in world.said.events


async def test_the_event_of_a_change_is_said_once(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))

    await world.settle()
    await world.settle()

    assert [reason for _, reason, _ in world.said.events].count("ScaledOut") == 1


async def test_a_new_process_keeps_what_the_deployment_has_until_it_has_looked(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))
    await world.settle()
    world.start()

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3
    assert world.status["scaling"]["desiredReplicas"] == 3
    assert world.condition("ScalingActive")[1] == Reason.SCALING_ACTIVE


async def test_a_deployment_that_was_deleted_comes_back_with_what_was_wanted(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))
    await world.settle()
    world.start()
    del world.kube.objects["Deployment", KEY.name]

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 3


async def test_a_decision_made_for_fewer_takes_nothing_from_what_somebody_set_meanwhile(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 2))
    await world.settle()
    world.deployment["spec"]["replicas"] = 4

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 4


async def test_an_unproven_plan_starts_on_one_replica_whatever_is_wanted(world: World) -> None:
    world.serve(**SCALED)
    await world.settle()
    world.board.conclude(KEY, outcome(1, 3))

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 1


async def test_a_user_s_lower_maximum_holds_before_the_next_decision(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))
    await world.settle()
    world.serve(**{**SCALED, "scaling": {"minReplicas": 1, "maxReplicas": 2}})

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 2


async def test_an_outcome_of_an_earlier_service_of_the_name_counts_for_nothing(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, replace(outcome(1, 3), uid="uid-before"))

    await world.settle()

    assert world.deployment["spec"]["replicas"] == 1


async def test_the_loop_is_told_of_the_deployment_as_it_is_after_the_write(world: World) -> None:
    await running(world)
    world.board.conclude(KEY, outcome(1, 3))

    await world.settle()

    subject = world.board.subjects()[KEY]
    assert subject.wanted == 3
    assert [pod.role for pod in subject.pods] == [Role.READY]


async def test_a_service_that_is_neither_scaled_nor_promised_anything_is_not_looked_at(world: World) -> None:
    await running(world, scaling=None, slo={})

    assert KEY not in world.board.subjects()


async def test_a_service_that_is_gone_is_not_looked_at(world: World) -> None:
    await running(world)
    del world.kube.objects["LLMService", KEY.name]

    await world.reconcile()

    assert KEY not in world.board.subjects()
