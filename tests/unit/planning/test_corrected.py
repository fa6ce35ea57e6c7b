"""What a failed start's figures bind, and what they do not."""

from typing import Any

import pytest

from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import MemoryCorrection, Plan
from unit.perfmodel.samples import inputs_for, on, planned

GIB = 1 << 30
LLAMA = "meta-llama--Meta-Llama-3.1-8B"
NOT_EMPTY = (
    "Free memory on device cuda:0 (60.00/139.80 GiB) on startup is less than desired GPU memory utilization "
    "(0.95, 132.81 GiB)."
)


def corrected(*cards: str, **fields: Any) -> Plan:
    return planned(LLAMA, on(*cards), correction=MemoryCorrection(**fields))


def utilization(plan: Plan) -> float:
    assert plan.knobs.gpu_memory_utilization is not None
    return plan.knobs.gpu_memory_utilization


@pytest.mark.parametrize(
    ("accelerator", "most"), [("nvidia-h200", 60 / 139.8), ("", 60 / 139.8), ("nvidia-l4", 1.0)]
)
def test_neighbour_is_planned_around_on_the_card_that_it_was_found_on(accelerator: str, most: float) -> None:
    plan = corrected(
        "nvidia-h200",
        failure_class="DeviceNotEmpty",
        message=NOT_EMPTY,
        accelerator=accelerator,
        accelerators=1,
    )

    assert utilization(plan) <= most
    assert (utilization(plan) < 0.5) == (most < 1)


def test_size_of_a_card_is_that_of_its_row_only() -> None:
    fields: dict[str, Any] = {
        "failure_class": "OutOfMemory",
        "stage": "profile",
        "device_total_bytes": 40 * GIB,
        "accelerators": 1,
    }
    same = corrected("nvidia-h200", accelerator="nvidia-h200", **fields)
    other = corrected("nvidia-h200", accelerator="nvidia-l40s", **fields)

    assert (same.total_bytes, other.total_bytes) == (40 * GIB, pytest.approx(139.8 * GIB, rel=1e-6))


def test_larger_card_than_the_catalogue_says_stays_the_catalogues() -> None:
    plan = corrected(
        "nvidia-h200",
        failure_class="OutOfMemory",
        stage="profile",
        device_total_bytes=190 * GIB,
        accelerator="nvidia-h200",
    )

    assert plan.total_bytes == pytest.approx(139.8 * GIB, rel=1e-6)


@pytest.mark.parametrize(("loaded_gib", "expected_gib"), [(10, 14.99), (40, 40)])
def test_weights_that_were_loaded_count_where_they_are_more(loaded_gib: int, expected_gib: float) -> None:
    plan = corrected(
        "nvidia-h200",
        failure_class="KvCacheTooSmall",
        stage="profile",
        weights_bytes=loaded_gib * GIB,
        accelerator="nvidia-h200",
        accelerators=1,
    )

    weights = next(term.size_bytes for term in plan.memory if term.name == "weights")
    assert weights / GIB == pytest.approx(expected_gib, rel=0.01)


def test_weights_of_one_rank_are_half_on_two() -> None:
    plan = corrected(
        "nvidia-l40s",
        failure_class="KvCacheTooSmall",
        stage="profile",
        weights_bytes=60 * GIB,
        accelerator="nvidia-l40s",
        accelerators=1,
    )

    weights = next(term.size_bytes for term in plan.memory if term.name == "weights")
    assert (plan.knobs.tensor_parallel_size, weights / GIB) == (2, pytest.approx(30, rel=0.01))


@pytest.mark.parametrize("stage", ["profile", "warmup", "capture"])
def test_late_shortage_without_a_figure_takes_a_fixed_step(stage: str) -> None:
    before = utilization(planned(LLAMA, on("nvidia-h200")))

    plan = corrected("nvidia-h200", failure_class="OutOfMemory", stage=stage)

    assert before - utilization(plan) == pytest.approx(0.05, abs=0.011)


ODD = [0, 1, -1, -(1 << 40), 1 << 52]


@pytest.mark.parametrize(
    "failure_class", ["KvCacheTooSmall", "OutOfMemory", "DeviceNotEmpty", "HostOutOfMemory", "?"]
)
@pytest.mark.parametrize("number", ODD)
@pytest.mark.parametrize("card", ["nvidia-h200", "cpu"])
def test_no_figure_makes_a_plan_that_is_none(card: str, number: int, failure_class: str) -> None:
    """Whatever a pod says of its failure: its service is planned, or refused."""
    correction = MemoryCorrection(
        failure_class=failure_class,
        stage="load",
        message="(0.0/0.0 GiB) on startup",
        accelerator=card,
        accelerators=0 if card == "cpu" else 1,
        estimated_max_model_len=number,
        kv_cache_available_bytes=number,
        device_total_bytes=number,
        device_others_bytes=number,
        weights_bytes=number,
        weights_at_least_bytes=number,
        missing_bytes=number,
        planned_cache_bytes=number,
    )

    result = make_plan(inputs_for(LLAMA, on(card), correction=correction))

    if isinstance(result, Plan):
        assert result.knobs.max_model_len > 0
        assert 0 <= (result.knobs.gpu_memory_utilization or 0) <= 1
        assert result.kv_cache_tokens > 0


def test_pool_that_a_failed_start_had_is_all_that_is_promised() -> None:
    """A start on an H200 had 4.87 GiB where far more was planned: 2,493 blocks of 2 MiB, 39,888 tokens."""
    plan = corrected(
        "nvidia-h200",
        failure_class="KvCacheTooSmall",
        stage="profile",
        estimated_max_model_len=39_856,
        kv_cache_available_bytes=int(4.87 * GIB),
        accelerator="nvidia-h200",
        accelerators=1,
    )

    kv_cache = next(term.size_bytes for term in plan.memory if term.name == "kv_cache")
    assert kv_cache == int(4.87 * GIB)
    assert plan.kv_cache_tokens <= 39_888
    assert plan.knobs.max_model_len <= 39_856
