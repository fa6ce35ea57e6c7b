"""What a replica takes: the plan's own prediction until the speed model has answered, and never a wait for it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fakes.scaling_rig import OBJECTIVES, NoThread, capacity_case
from llmservice_operator.autoscaling.capacity import Capacity, GriddedCapacity, LengthMix
from llmservice_operator.controller import autoscale_capacity
from llmservice_operator.controller.autoscale_capacity import (
    CapacityBook,
    ReadyCapacity,
    expected_mix,
    modelled_capacity,
    simple_capacity,
)
from unit.perfmodel.samples import load_config, on, planned

MIX = LengthMix(input_tokens=400.0, output_tokens=150.0)


def test_the_plan_s_rate_is_met_exactly_at_the_workload_s_lengths() -> None:
    """80 % of 5 requests a second."""
    assert simple_capacity(capacity_case(5.0).speed).capacity(MIX).requests_per_second == pytest.approx(4.0)


def test_longer_requests_take_more_of_a_replica() -> None:
    simple = simple_capacity(capacity_case(5.0).speed)

    longer = simple.capacity(LengthMix(input_tokens=800.0, output_tokens=300.0))

    assert longer.requests_per_second == pytest.approx(2.0)


def test_a_plan_without_a_prediction_has_a_capacity_all_the_same() -> None:
    assert simple_capacity(None).capacity(MIX).requests_per_second > 0


def constant(rate: float) -> Any:
    """A grid that answers this everywhere, and the points that it was asked to work out."""
    return GriddedCapacity(lambda _inputs, _outputs: Capacity(requests_per_second=rate)), 1e9


async def settled(book: CapacityBook) -> None:
    """Let the book work out all that is wanted."""
    task = asyncio.create_task(book.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()


async def test_the_speed_model_answers_once_its_points_are_worked_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autoscale_capacity, "modelled_capacity", lambda _case: constant(7.0))
    book = CapacityBook(NoThread())
    model = book.model(replace(capacity_case(5.0), config={"any": "model"}))
    before = model.capacity(MIX).requests_per_second

    await settled(book)

    assert before == pytest.approx(4.0)
    assert model.capacity(MIX).requests_per_second == pytest.approx(7.0)
    assert model.weights_bytes_per_step == 1e9


async def test_new_lengths_go_on_from_the_last_good_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At lengths twice as long the plan's prediction is half; the speed model said 7 where the plan says 4."""
    monkeypatch.setattr(autoscale_capacity, "modelled_capacity", lambda _case: constant(7.0))
    book = CapacityBook(NoThread())
    model = book.model(replace(capacity_case(5.0), config={"any": "model"}))
    await settled(book)
    model.capacity(MIX)

    longer = model.capacity(LengthMix(input_tokens=800.0, output_tokens=300.0))

    assert longer.requests_per_second == pytest.approx(3.5)
    assert model.missing


async def test_points_that_were_asked_for_are_worked_out_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscale_capacity, "modelled_capacity", lambda _case: constant(7.0))
    book = CapacityBook(NoThread())
    model = book.model(replace(capacity_case(5.0), config={"any": "model"}))
    await settled(book)
    longer = LengthMix(input_tokens=800.0, output_tokens=300.0)
    model.capacity(longer)
    book.ask(model)

    await settled(book)

    assert model.capacity(longer).requests_per_second == pytest.approx(7.0)


async def test_a_model_that_can_not_be_worked_out_leaves_the_plan_s_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_case: object) -> Any:
        raise KeyError("num_hidden_layers")

    monkeypatch.setattr(autoscale_capacity, "modelled_capacity", fail)
    book = CapacityBook(NoThread())
    model = book.model(replace(capacity_case(5.0), config={"any": "model"}))

    await settled(book)

    assert model.capacity(MIX).requests_per_second == pytest.approx(4.0)


@pytest.mark.parametrize(
    "engine",
    [{}, {"args": {"enforce-eager": "true"}}, {"quantization": "fp8"}, {"args": {"dtype": "float32"}}],
)
def test_the_capacity_is_that_of_the_engine_as_it_is_planned(engine: dict[str, Any]) -> None:
    """Its steps are as long as the plan predicts, at the plan's batch: without graphs 1.9 times those with."""
    plan = planned("Qwen--Qwen3-8B", on("nvidia-h200", engine=engine))
    case = autoscale_capacity.capacity_case(
        plan, revision="r", config=load_config("Qwen--Qwen3-8B"), config_digest="d", objectives=OBJECTIVES
    )

    grid, _ = modelled_capacity(case)

    assert plan.speed is not None
    seconds = grid.itl_seconds(plan.speed.batch, expected_mix(plan.speed))
    assert seconds == pytest.approx(plan.speed.itl_seconds, rel=0.02)


def test_services_that_say_the_same_share_a_model() -> None:
    book = CapacityBook(NoThread())

    assert book.model(capacity_case(5.0)) is book.model(capacity_case(5.0))
    assert book.model(capacity_case(6.0)) is not book.model(capacity_case(5.0))


def test_without_the_model_s_config_no_speed_model_is_waited_for() -> None:
    assert ReadyCapacity(capacity_case(5.0)).is_rough


def test_lengths_beyond_the_engine_s_longest_request_do_not_leave_a_replica_without_capacity() -> None:
    """An engine whose page tells of prompts of a billion tokens: what it can take is taken, not all replicas."""
    case = capacity_case(5.0)
    longest = float(case.knobs.max_model_len)

    told = ReadyCapacity(case).capacity(LengthMix(input_tokens=1e9, output_tokens=1.0))
    held = ReadyCapacity(case).capacity(LengthMix(input_tokens=longest, output_tokens=1.0))

    assert told.requests_per_second == pytest.approx(held.requests_per_second, rel=0.01)
