"""Fewer replicas: the emptiest goes, and is told before the smaller number is."""

import json
from typing import Any

import pytest

import factories as make
from llmservice_operator.clients.engine import parse_report
from llmservice_operator.clients.kube import ForbiddenError, KubeError, NotFoundError
from llmservice_operator.controller.podstate import PodState, read_pod
from llmservice_operator.controller.scale_in import deletion_costs, shrinks

from .memory_kube import World

COST = "controller.kubernetes.io/pod-deletion-cost"
INT32_MAX = 2**31 - 1


def pod(name: str, *, requests: make.Object | None = None, silent: bool = False, **fields: Any) -> PodState:
    report = make.report(**({} if requests is None else {"requests": requests}))
    return read_pod(
        make.running_pod(name=name, **{"ready": True, **fields}),
        None if silent else parse_report(json.dumps(report)),
        make.NOW,
    )


def load(running: int | None, waiting: int | None = 0) -> make.Object:
    return {"running": running, "waiting": waiting}


IDLE, BUSY = pod("idle", requests=load(0)), pod("busy", requests=load(2, 5))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (IDLE, BUSY),
        (BUSY, pod("busier", requests=load(8))),
        (pod("waiting", requests=load(0, 1)), BUSY),
        (pod("not ready", ready=False, requests=load(9)), IDLE),
        (pod("not ready", ready=False, silent=True), IDLE),
        (IDLE, pod("silent", silent=True)),
        (IDLE, pod("old supervisor")),
        (IDLE, pod("half known", requests=load(0, None))),
        (BUSY, pod("silent", silent=True)),
        (pod("crowded", requests=load(2**31 - 3)), pod("silent", silent=True)),
    ],
    ids=lambda each: each.name,
)
def test_the_first_costs_less(first: PodState, then: PodState) -> None:
    costs = deletion_costs([then, first])

    assert costs[first.name] < costs[then.name]


def test_pod_that_is_not_ready_costs_what_a_pod_without_the_annotation_does() -> None:
    assert deletion_costs([pod("starting", ready=False)]) == {"starting": 0}


def test_cost_never_exceeds_what_the_annotation_holds() -> None:
    assert deletion_costs([pod("crowded", requests=load(2**40))]) == {"crowded": INT32_MAX}


def test_pod_on_its_way_out_is_not_ranked() -> None:
    assert deletion_costs([pod("stopping", deleted=300), IDLE]).keys() == {"idle"}


@pytest.mark.parametrize(
    ("current", "wanted", "fewer"),
    [(3, 2, True), (3, 1, True), (3, 3, False), (2, 3, False), (3, 0, False), (3, None, False)],
)
def test_replicas_are_chosen_where_some_go_and_some_stay(
    current: int, wanted: int | None, fewer: bool
) -> None:
    spec = {} if wanted is None else {"replicas": wanted}

    assert shrinks({"spec": {"replicas": current}}, {"spec": spec}) == fewer


def test_first_apply_takes_no_replica_away() -> None:
    assert not shrinks(None, {"spec": {"replicas": 1}})


async def serving(world: World, **loads: make.Object) -> None:
    """Ready replicas with so many requests each; what was written for them is forgotten."""
    world.serve(replicas=len(loads))
    await world.settle()
    for number, (name, requests) in enumerate(loads.items(), 1):
        address = f"10.0.0.{number}"
        world.add_pod(make.running_pod(name=name, revision=world.revision, ready=True, podIP=address))
        world.engines.reports[address] = make.report(
            revision=world.revision, phase="Ready", requests=requests
        )
    await world.settle()
    assert world.deployment["spec"]["replicas"] == len(loads)
    world.kube.writes.clear()


def costs(world: World) -> dict[str, str]:
    return {
        name: pod["metadata"]["annotations"][COST]
        for (kind, name), pod in world.kube.objects.items()
        if kind == "Pod" and COST in pod["metadata"].get("annotations", {})
    }


async def test_costs_are_written_before_the_smaller_number(world: World) -> None:
    await serving(world, busy=load(2, 5), idle=load(0))

    world.serve(replicas=1)
    await world.settle()

    children = [write for write in world.kube.writes if write[0] != "status"]
    assert sorted(children[:2]) == [("patch", "Pod", "busy"), ("patch", "Pod", "idle")]
    assert children[2:] == [("apply", "Deployment", "chat")]
    assert int(costs(world)["idle"]) < int(costs(world)["busy"])


async def test_lower_maximum_chooses_the_emptiest_too(world: World) -> None:
    await serving(world, busy=load(1), idle=load(0))

    world.serve(scaling={"minReplicas": 1, "maxReplicas": 1})
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 1
    assert int(costs(world)["idle"]) < int(costs(world)["busy"])


@pytest.mark.parametrize("replicas", [0, 2, 3])
async def test_no_pod_is_written_where_none_has_to_be_chosen(world: World, replicas: int) -> None:
    await serving(world, busy=load(1), idle=load(0))

    world.serve(replicas=replicas)
    await world.settle()

    assert [kind for _, kind, _ in world.kube.writes if kind == "Pod"] == []


async def test_cost_that_stands_already_is_not_written_again(world: World) -> None:
    await serving(world, busy=load(1), idle=load(0), full=load(9))
    world.serve(replicas=2)
    await world.settle()
    world.kube.writes.clear()

    world.serve(replicas=1)
    await world.settle()

    assert [write for write in world.kube.writes if write[0] != "status"] == [("apply", "Deployment", "chat")]


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError(404, "NotFound", "pods not found"),
        ForbiddenError(403, "Forbidden", "no right to patch pods"),
    ],
    ids=["gone", "forbidden"],
)
async def test_pod_that_cannot_be_written_does_not_keep_the_number_up(world: World, error: KubeError) -> None:
    await serving(world, busy=load(1), idle=load(0))
    world.kube.refuse["Pod"] = error

    world.serve(replicas=1)
    await world.settle()

    assert world.deployment["spec"]["replicas"] == 1
