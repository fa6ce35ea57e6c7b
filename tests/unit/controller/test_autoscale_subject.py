"""What a pod is to the autoscaler, and what a service's replicas come to."""

from dataclasses import replace
from typing import Any

import pytest

import factories as make
from fakes.scaling_rig import ready_pod, subject
from llmservice_operator.controller.autoscale_service import fleet_of
from llmservice_operator.controller.autoscale_starts import Starts
from llmservice_operator.controller.autoscale_subject import EnginePod, Role, engine_pods
from llmservice_operator.controller.podstate import read_pod


def role_of(pod: dict[str, Any]) -> Role:
    (found,) = engine_pods([read_pod(pod, None, make.NOW)])
    return found.role


NO_NODE = make.condition("PodScheduled", "False", reason="Unschedulable", message="0/3 nodes are available")
NO_IMAGE = make.container_status("engine", waiting={"reason": "ImagePullBackOff", "message": "no such image"})


@pytest.mark.parametrize(
    ("pod", "role"),
    [
        (make.running_pod(ready=True), Role.READY),
        (make.running_pod(), Role.STARTING),
        (make.pod(scheduled=False, conditions=(NO_NODE,)), Role.UNSCHEDULABLE),
        (make.pod(init=make.INIT_DONE, engine=NO_IMAGE), Role.FAILING),
        (make.crashed_pod("oops", restarts=1), Role.STARTING),
        (make.crashed_pod("oops", restarts=3), Role.FAILING),
        (make.running_pod(ready=True, deleted=10), Role.LEAVING),
    ],
)
def test_a_pod_s_part(pod: dict[str, Any], role: Role) -> None:
    assert role_of(pod) is role


def test_a_pod_that_has_ended_plays_no_part() -> None:
    ended = make.pod(phase="Failed", reason="Evicted", message="the node was low on memory")

    assert engine_pods([read_pod(ended, None, make.NOW)]) == ()


def test_a_restarted_engine_is_another_incarnation_in_the_same_pod() -> None:
    first, second = (
        engine_pods([read_pod(make.running_pod(ready=True, restarts=count), None, make.NOW)])[0]
        for count in (0, 1)
    )

    assert first.name == second.name
    assert first.incarnation != second.incarnation


def pod(name: str, role: Role) -> EnginePod:
    return EnginePod(name=name, role=role, host="", incarnation=name, created_at=make.NOW - 30)


READY = ready_pod("a", "10.0.0.1", make.NOW - 600)


def test_pods_that_are_asked_for_and_not_made_yet_start_now() -> None:
    fleet = fleet_of(subject((READY,), wanted=3), Starts(), make.NOW)

    assert (fleet.wanted, fleet.ready, fleet.starting) == (3, 1, (make.NOW, make.NOW))


def test_pods_that_the_api_server_refuses_are_as_good_as_without_a_node() -> None:
    fleet = fleet_of(subject((READY,), wanted=3, refused=True), Starts(), make.NOW)

    assert (fleet.starting, fleet.unschedulable) == ((), 2)


def test_a_replica_on_its_way_out_takes_nobody_s_place() -> None:
    fleet = fleet_of(subject((READY, pod("b", Role.LEAVING)), wanted=2), Starts(), make.NOW)

    assert len(fleet.starting) == 1


def test_each_part_is_counted_apart() -> None:
    pods = (
        READY,
        pod("b", Role.STARTING),
        pod("c", Role.UNSCHEDULABLE),
        pod("d", Role.FAILING),
        pod("e", Role.AWAY),
    )

    fleet = fleet_of(subject(pods), Starts(), make.NOW)

    assert (fleet.ready, len(fleet.starting), fleet.unschedulable, fleet.failing) == (1, 1, 1, 1)


UNREADY = replace(READY, role=Role.STARTING, ready_since=None)
"""The same engine a moment later: its probe failed once."""
AGAIN = replace(READY, ready_since=make.NOW)


def test_a_replica_that_fails_its_probe_for_a_moment_does_not_start() -> None:
    starts = Starts()
    starts.look((READY,))

    fleet = fleet_of(subject((UNREADY,)), starts, make.NOW)

    assert (fleet.ready, fleet.starting) == (0, ())


def test_a_replica_that_is_ready_again_says_nothing_of_how_long_a_start_takes() -> None:
    starts = Starts()

    for seen in (READY, UNREADY, UNREADY, AGAIN):
        starts.look((seen,))

    assert starts.seconds == ()


def test_an_engine_that_begins_anew_starts() -> None:
    starts = Starts()
    starts.look((READY,))
    anew = replace(UNREADY, incarnation="another", began_anew=True)

    assert len(fleet_of(subject((anew,)), starts, make.NOW).starting) == 1
