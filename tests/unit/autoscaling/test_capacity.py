"""Capacity models: worked formulas, and a grid that answers as the function behind it."""

import math

import pytest

from llmservice_operator.autoscaling.capacity import (
    Capacity,
    GriddedCapacity,
    LengthMix,
    SimpleCapacity,
    speed_capacity,
)
from unit.simulation.machines import speed


def test_a_request_takes_its_prompts_and_its_answers_share() -> None:
    """1000/10000 + 200/1000 = 0.3 s of a replica; 80 % of it is usable."""
    model = SimpleCapacity(prefill_tokens_per_second=10_000, decode_tokens_per_second=1_000)
    capacity = model.capacity(LengthMix(input_tokens=1000, output_tokens=200))

    assert capacity.requests_per_second == pytest.approx(0.8 / 0.3)


def test_cached_prompt_tokens_take_nothing() -> None:
    model = SimpleCapacity(prefill_tokens_per_second=10_000, decode_tokens_per_second=1_000)
    capacity = model.capacity(LengthMix(input_tokens=1000, output_tokens=200, cached_share=0.5))

    assert capacity.requests_per_second == pytest.approx(0.8 / 0.25)


def gridded(calls: list[tuple[int, int]]) -> GriddedCapacity:
    def evaluate(inputs: int, outputs: int) -> Capacity:
        calls.append((inputs, outputs))
        return Capacity(requests_per_second=1e5 / inputs / outputs**0.5)

    return GriddedCapacity(evaluate)


@pytest.mark.parametrize(("inputs", "outputs"), [(1000, 200), (37, 5), (30_000, 3000), (1234.5, 77.7)])
def test_a_grid_answers_as_a_power_law_behind_it(inputs: float, outputs: float) -> None:
    capacity = gridded([]).capacity(LengthMix(input_tokens=inputs, output_tokens=outputs))

    # The grid's points are whole tokens: a percent at lengths of a few tokens.
    assert capacity.requests_per_second == pytest.approx(1e5 / inputs / math.sqrt(outputs), rel=0.05)


def test_each_point_is_worked_out_once() -> None:
    calls: list[tuple[int, int]] = []
    model = gridded(calls)
    for _ in range(3):
        model.capacity(LengthMix(input_tokens=1000, output_tokens=200))

    assert len(calls) == 4


def test_points_can_be_worked_out_beforehand() -> None:
    calls: list[tuple[int, int]] = []
    model = gridded(calls)
    mix = LengthMix(input_tokens=1000, output_tokens=200)
    for point in model.prepare(mix):
        model.learn(point, model.evaluate(point))
    calls.clear()
    model.capacity(mix)

    assert (calls, model.prepare(mix)) == ([], [])


def test_what_is_kept_is_bounded() -> None:
    model = gridded([])
    for step in range(2000):
        model.capacity(LengthMix(input_tokens=1.01**step, output_tokens=1 + step % 50))

    assert len(model._known) <= 256


def test_an_objective_out_of_reach_is_told() -> None:
    model = GriddedCapacity(lambda inputs, outputs: Capacity(requests_per_second=1.0, unreachable="TTFT"))

    assert model.capacity(LengthMix(input_tokens=1000, output_tokens=200)).unreachable == "TTFT"


def test_no_capacity_at_all_is_told_as_it_is() -> None:
    model = GriddedCapacity(lambda inputs, outputs: Capacity(requests_per_second=0.0))

    assert model.capacity(LengthMix(input_tokens=1000, output_tokens=200)).requests_per_second == 0.0


def test_a_point_of_the_grid_beyond_what_a_replica_holds_has_the_capacity_of_what_it_holds() -> None:
    """16,834 + 656 tokens, next to mixes that fit: no capacity there would be none of theirs."""
    model = speed_capacity(speed(kv_cache_tokens=17_000), ttft_p95_seconds=None, tpot_p95_seconds=None)

    beyond, within = model.evaluate((24, 16)), model.evaluate((23, 16))

    assert beyond.requests_per_second == pytest.approx(within.requests_per_second, rel=0.1)
    assert beyond.unreachable == ""


def test_lengths_that_no_request_can_have_are_cut_in_proportion() -> None:
    told = LengthMix(input_tokens=3e6, output_tokens=1e6, cached_share=0.5)

    assert told.within(8000) == LengthMix(input_tokens=6000.0, output_tokens=2000.0, cached_share=0.5)


def test_lengths_that_fit_are_left_as_they_are() -> None:
    mix = LengthMix(input_tokens=7000.0, output_tokens=1000.0)

    assert mix.within(8000) is mix
