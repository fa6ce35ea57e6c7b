"""Whether a plan was true: what is told when it was, when it was not, and by how much.

The figures of the report are those of a start of Llama-3.1-8B with vLLM 0.26.0 on one H200, moved where a test says so.
"""

from typing import Any

import pytest

import factories as make
from llmservice_operator.api.conditions import Reason
from llmservice_operator.clients.engine import EngineReport
from llmservice_operator.controller.accuracy import Finding, comparisons, finding
from llmservice_operator.controller.statusfields import engine_status
from llmservice_operator.planning.types import Plan
from unit.perfmodel.samples import on, planned

from .memory_kube import World

GIB = 1 << 30
REVISION = "chat-1"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned("meta-llama--Meta-Llama-3.1-8B", on("nvidia-h200"), engine_version="0.26.0")


def term(plan: Plan, name: str) -> int:
    return next((each.size_bytes for each in plan.memory if each.name == name), 0)


def as_planned(plan: Plan, **gib: float) -> dict[str, float]:
    """A report of just what was planned, the margin left to the KV cache, with terms moved by so many GiB."""
    said: dict[str, float] = {
        "totalBytes": plan.total_bytes,
        "requestedBytes": plan.requested_bytes,
        "weightsBytes": term(plan, "weights"),
        "activationBytes": term(plan, "activation"),
        "nonTorchBytes": term(plan, "non_torch"),
        "kvCacheBytes": term(plan, "kv_cache") + term(plan, "margin"),
    }
    return said | {name: said[name] + moved * GIB for name, moved in gib.items()}


def found(plan: Plan, said: dict[str, float], *, version_known: bool = True) -> Finding:
    report = EngineReport(
        service="default/chat", revision=REVISION, phase="Ready", memory=said, version_known=version_known
    )
    return finding(engine_status(report, plan, make.NOW), plan, REVISION)


def test_plan_that_holds_is_accurate(plan: Plan) -> None:
    result = found(plan, as_planned(plan))

    assert (result.accurate, result.reason) == (True, Reason.WITHIN_TOLERANCE)


def test_margin_that_was_not_needed_is_no_error(plan: Plan) -> None:
    result = found(plan, as_planned(plan, kvCacheBytes=0.7))

    assert result.accurate is True


def test_kv_cache_that_is_not_there_is_named_with_its_size(plan: Plan) -> None:
    margin = term(plan, "margin") / GIB
    result = found(plan, as_planned(plan, kvCacheBytes=-margin - 1.5))

    assert (result.accurate, result.reason) == (False, Reason.KV_CACHE_OVER_PROMISED)
    assert "(-1.50 GiB" in result.message


def test_more_than_the_margin_left_unused_is_told(plan: Plan) -> None:
    result = found(plan, as_planned(plan, kvCacheBytes=4.0))

    assert (result.accurate, result.reason) == (False, Reason.MEMORY_LEFT_UNUSED)


def test_term_that_is_off_is_named_with_by_how_much(plan: Plan) -> None:
    result = found(plan, as_planned(plan, activationBytes=2.0))

    assert (result.accurate, result.reason) == (False, Reason.MEMORY_DIFFERS)
    assert result.message.startswith("activation: planned")
    assert "(+2.00 GiB" in result.message


def test_lost_kv_cache_is_told_before_the_term_that_took_it(plan: Plan) -> None:
    result = found(plan, as_planned(plan, weightsBytes=3.0, kvCacheBytes=-3.0 - term(plan, "margin") / GIB))

    assert result.reason == Reason.KV_CACHE_OVER_PROMISED
    assert "also off: weights +3.00 GiB" in result.message


def test_another_card_than_the_catalogue_says_comes_first(plan: Plan) -> None:
    result = found(plan, as_planned(plan, totalBytes=-60.0, kvCacheBytes=-55.0))

    assert result.reason == Reason.ACCELERATOR_DIFFERS
    assert "correct the row or the node's labels" in result.message


def test_engine_of_unknown_words_leaves_it_open(plan: Plan) -> None:
    result = found(plan, {}, version_known=False)

    assert (result.accurate, result.reason) == (None, Reason.REPORT_INCOMPLETE)


def test_report_of_another_revision_says_nothing_of_this_one(plan: Plan) -> None:
    report = EngineReport(service="default/chat", revision="chat-0", phase="Ready", memory=as_planned(plan))

    result = finding(engine_status(report, plan, make.NOW), plan, REVISION)

    assert (result.accurate, result.reason) == (None, Reason.NOT_YET_REPORTED)


def test_graphs_are_compared_by_what_was_charged_for_them() -> None:
    """V1 charges an estimate; of 0.64 GiB where the graphs then took 1.04 (vLLM 0.26.0 on H200)."""
    plan = planned("Qwen--Qwen3-30B-A3B", on("nvidia-h200"), engine_version="0.26.0")
    rows = comparisons({"cudaGraphBytes": 1.04 * GIB, "cudaGraphEstimateBytes": 0.64 * GIB}, plan)

    (graphs,) = (row for row in rows if row.name == "cuda_graphs")
    assert graphs.actual_bytes == int(0.64 * GIB)


# ── in a service's life ──────────────────────────────────────────────────────────────────────────────────────


def become_ready(world: World, name: str = "chat-1", *, ready_at: float = make.NOW, **memory: Any) -> None:
    """An engine that has the KV cache that was planned, and else what the test says."""
    revision = world.revision
    (kv_cache,) = (each for each in world.status["plan"]["memory"] if each["name"] == "kv_cache")
    since = make.condition("Ready", "True", since=ready_at - make.NOW)
    world.add_pod(make.running_pod(name=name, revision=revision, ready=True, conditions=(since,)))
    world.engines.reports["10.0.0.7"] = make.report(
        revision=revision,
        phase="Ready",
        readyAt=ready_at,
        memory={"kvCacheBytes": kv_cache["sizeBytes"], **memory},
    )


async def test_before_the_first_report_nothing_is_known(world: World) -> None:
    world.serve()
    await world.settle()

    assert world.condition("PlanAccurate")[:2] == ("Unknown", "NotYetReported")


async def test_report_that_agrees_is_no_event(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world)
    await world.settle()

    assert world.condition("PlanAccurate")[0] == "True"
    assert "WithinTolerance" not in [reason for _, reason, _ in world.said.events]


async def test_report_that_disagrees_is_an_event_once(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world, weightsBytes=5 * GIB)
    for _ in range(3):
        await world.settle()

    assert world.condition("PlanAccurate")[:2] == ("False", "MemoryDiffers")
    assert [reason for _, reason, _ in world.said.events].count("MemoryDiffers") == 1


async def test_verdict_outlives_the_operator(world: World) -> None:
    world.serve()
    await world.settle()
    become_ready(world, weightsBytes=5 * GIB)
    await world.settle()

    world.engines.reports.clear()
    world.start()
    await world.settle()

    assert world.condition("PlanAccurate")[:2] == ("False", "MemoryDiffers")


async def test_later_start_takes_the_place_of_the_earlier_one(world: World) -> None:
    world.serve(replicas=2)
    await world.settle()
    become_ready(world, weightsBytes=5 * GIB)
    await world.settle()

    world.clock.seconds += 120
    become_ready(world, "chat-2", ready_at=world.clock.seconds - 1, weightsBytes=269_000_000)
    world.clock.seconds += 1
    await world.settle()

    weights = next(each for each in world.status["engine"]["memory"] if each["name"] == "weights")
    assert weights["actualBytes"] == 269_000_000


async def test_plan_that_holds_again_is_told_once_more(world: World) -> None:
    world.serve(replicas=2)
    await world.settle()
    become_ready(world, weightsBytes=5 * GIB)
    await world.settle()
    world.said.events.clear()

    world.clock.seconds += 120
    become_ready(world, "chat-2", ready_at=world.clock.seconds - 1)
    world.clock.seconds += 1
    await world.settle()

    assert world.condition("PlanAccurate")[0] == "True"
    assert [event[:2] for event in world.said.events if event[1] == "WithinTolerance"] == [
        ("Normal", "WithinTolerance")
    ]
