"""Whatever a pod's status holds or lacks, it is read; whatever the pods are, the status can be told."""

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import factories as make
from llmservice_operator.api.conditions import MESSAGE_MAX_LENGTH
from llmservice_operator.clients.engine import parse_report
from llmservice_operator.controller.podstate import PodStage, read_pod
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, load_catalogue

from .memory_kube import World

CATALOGUE = load_catalogue(builtin_catalogue_text())
texts = st.sampled_from(
    [
        "",
        "Unschedulable",
        "ErrImagePull",
        "CrashLoopBackOff",
        "Evicted",
        "NodeLost",
        "{",
        make.termination_message("Hung"),
    ]
)
times = st.integers(-4000, 100).map(make.at)
ended = st.fixed_dictionaries(
    {}, optional={"exitCode": st.integers(0, 255), "message": texts, "reason": texts, "finishedAt": times}
)
states = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"waiting": st.fixed_dictionaries({}, optional={"reason": texts, "message": texts})}
    ),
    st.fixed_dictionaries({"running": st.fixed_dictionaries({}, optional={"startedAt": times})}),
    st.fixed_dictionaries({"terminated": ended}),
)


def containers(name: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {"name": st.just(name)},
        optional={
            "state": states,
            "lastState": states,
            "restartCount": st.integers(0, 9),
            "started": st.booleans(),
        },
    )
    return st.lists(one, max_size=1)


conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["PodScheduled", "Ready", "ContainersReady", "DisruptionTarget", "Other"]
            ),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        },
        optional={"reason": texts, "message": texts, "lastTransitionTime": times},
    ),
    max_size=5,
)
pods = st.builds(
    lambda status, spec, deleted: {
        "kind": "Pod",
        "metadata": {
            "name": "chat-1",
            "labels": {"llmservice.dev/service": "chat", "llmservice.dev/revision": make.REVISION},
            "creationTimestamp": make.at(-60),
            **({"deletionTimestamp": make.at(deleted)} if deleted is not None else {}),
        },
        "spec": spec,
        "status": status,
    },
    st.fixed_dictionaries(
        {},
        optional={
            "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            "reason": texts,
            "message": texts,
            "podIP": st.just("10.0.0.7"),
            "conditions": conditions,
            "initContainerStatuses": containers("supervisor"),
            "containerStatuses": containers("engine"),
        },
    ),
    st.sampled_from([{}, {"nodeName": "node-1"}]),
    st.none() | st.integers(-400, 400),
)


@given(pods)
@settings(max_examples=400, deadline=None)
def test_any_pod_has_a_stage_and_its_trouble_has_words(pod: dict[str, Any]) -> None:
    state = read_pod(pod, None, make.NOW)

    assert state.stage in PodStage
    assert state.trouble is None or (state.trouble.reason and state.trouble.message)
    assert not (state.stage == PodStage.READY and state.trouble)


junk = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(make.report())), junk))
@settings(max_examples=200, deadline=None)
def test_any_report_is_read(odd: dict[str, Any]) -> None:
    parse_report(json.dumps({**make.report(), **odd}))


@given(st.lists(pods, max_size=3))
@settings(max_examples=40, deadline=None)
def test_status_is_told_whatever_the_pods_are(found: list[dict[str, Any]]) -> None:
    async def told() -> World:
        world = World(catalogue=CATALOGUE)
        world.serve(replicas=2)
        await world.settle()
        for number, pod in enumerate(found):
            metadata = {**pod["metadata"], "name": f"chat-{number}"}
            metadata["labels"] = {**metadata["labels"], "llmservice.dev/revision": world.revision}
            world.add_pod({**pod, "metadata": metadata})
        await world.settle()
        return world

    status = asyncio.run(told()).status
    by_type = {each["type"]: each for each in status["conditions"]}

    assert set(by_type) >= {"Ready", "Stalled", "Planned", "Available", "Progressing", "UpToDate"}
    assert all(each["reason"] and len(each["message"]) <= MESSAGE_MAX_LENGTH for each in by_type.values())
    assert by_type["Ready"]["status"] != "True" or by_type["Stalled"]["status"] == "False"
