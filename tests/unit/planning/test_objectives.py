"""Objectives of spec.slo: the batch, the ranks and the card that keep them, and what is said where none does."""

from typing import Any

import pytest

from llmservice_operator.planning.objectives import largest_batch
from llmservice_operator.planning.types import NodeAccelerators
from unit.perfmodel.samples import SMOLLM2, on, planned

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
LLAMA_70B = "meta-llama--Meta-Llama-3.1-70B"
WORKLOAD = {
    "inputTokens": {"p50": 1000, "p95": 4000},
    "outputTokens": {"p50": 200, "p95": 600},
    "context": {"max": 16_384},
}


def promised(*cards: str, tpot: str = "", ttft: str = "", **rest: Any) -> dict[str, Any]:
    """A spec with objectives at p95."""
    slo = {name: {"p95": value} for name, value in (("tpot", tpot), ("ttft", ttft)) if value}
    workload = {**WORKLOAD, **rest.pop("workload", {})}
    return on(*cards, slo=slo, workload=workload, **rest)


@pytest.mark.parametrize(("limit", "batch"), [(10.0, 10), (10.5, 10), (0.5, 0), (1000.0, 64)])
def test_the_largest_batch_within_a_limit(limit: float, batch: int) -> None:
    assert largest_batch(float, limit, 64) == batch


@pytest.mark.parametrize("tpot", ["10ms", "20ms", "50ms"])
def test_the_batch_keeps_the_objective_for_tpot(tpot: str) -> None:
    plan = planned(LLAMA_8B, promised("nvidia-h200", tpot=tpot))

    assert plan.speed is not None
    assert plan.speed.tpot_p95_seconds * 1e3 <= float(tpot.removesuffix("ms"))
    assert plan.missed == ()


def test_a_tighter_objective_takes_a_smaller_batch() -> None:
    batches = [
        planned(LLAMA_8B, promised("nvidia-h200", tpot=tpot)).knobs.max_num_seqs
        for tpot in ("10ms", "20ms", "40ms")
    ]

    assert batches == sorted(set(batches))


def test_no_objective_leaves_the_batch_as_it_is() -> None:
    assert planned(LLAMA_8B, on("nvidia-h200", workload=WORKLOAD)).knobs.max_num_seqs == 256


def test_the_next_larger_batch_is_told_as_the_alternative() -> None:
    plan = planned(LLAMA_8B, promised("nvidia-h200", tpot="20ms"))

    (reason,) = (each for each in plan.reasons if each.startswith("max_num_seqs:"))
    assert f"{plan.knobs.max_num_seqs}, the largest batch within spec.slo.tpot.p95 of 20.0 ms" in reason
    assert f"{plan.knobs.max_num_seqs + 8} would take" in reason


def test_a_faster_card_is_taken_where_the_cheaper_one_is_too_slow() -> None:
    """An L4 needs 16.06 GB / 300 GB/s = 53.5 ms to read the weights once, whatever the batch."""
    spec = promised("nvidia-l4", "nvidia-h200", tpot="20ms")
    spec["accelerator"]["parallelism"] = {"tensor": 1}

    plan = planned(LLAMA_8B, spec)

    assert plan.accelerator.name == "nvidia-h200"
    assert any(each.startswith("not nvidia-l4 x 1: TPOT") for each in plan.reasons)


def test_more_ranks_are_taken_where_fewer_are_too_slow() -> None:
    loose = planned(LLAMA_70B, promised("nvidia-h200", tpot="100ms"))
    tight = planned(LLAMA_70B, promised("nvidia-h200", tpot="20ms"))

    assert tight.accelerators_per_replica > loose.accelerators_per_replica


def test_concurrency_is_kept_before_the_objective() -> None:
    plan = planned(LLAMA_8B, promised("nvidia-l4", tpot="60ms", workload={"concurrency": {"min": 64}}))

    assert plan.knobs.max_num_seqs >= 64


def test_an_objective_beyond_physics_is_planned_and_told() -> None:
    """65.7 GiB of weights on each of two ranks at 4.8 TB/s take 14.7 ms."""
    spec = promised("nvidia-h200", tpot="5ms")
    spec["accelerator"] = {"types": ["nvidia-h200"], "parallelism": {"tensor": 2}}

    plan = planned(LLAMA_70B, spec)

    (missed,) = plan.missed
    assert missed in plan.warnings
    assert "spec.slo.tpot.p95 of 5.0 ms is missed" in missed
    assert "with a single request" in missed
    assert "reading 65.74 GiB of weights at 4,800 GB/s alone takes 14.7 ms" in missed


def test_a_batch_is_not_cut_for_an_objective_that_nothing_keeps() -> None:
    assert planned(LLAMA_8B, promised("nvidia-l4", tpot="1ms")).knobs.max_num_seqs == 256


def test_a_long_prompt_misses_the_objective_for_ttft() -> None:
    plan = planned(LLAMA_70B, promised("nvidia-h200", ttft="100ms"))

    (missed,) = plan.missed
    assert "spec.slo.ttft.p95 of 100.0 ms is missed" in missed
    assert "for a prompt of 4,000 tokens" in missed


def test_what_comes_closest_is_told() -> None:
    (missed,) = planned(LLAMA_8B, promised("nvidia-l4", "nvidia-h200", tpot="1ms")).missed

    assert "nvidia-h200 x" in missed.partition("; ")[2]


def test_a_card_that_no_node_has_is_not_waited_for_to_be_faster() -> None:
    node = NodeAccelerators(
        node_name="l4", labels={"nvidia.com/gpu.product": "NVIDIA-L4"}, allocatable={"nvidia.com/gpu": 8}
    )

    plan = planned(LLAMA_8B, promised("nvidia-l4", "nvidia-h200", tpot="10ms"), nodes=(node,))

    assert plan.accelerator.name == "nvidia-l4"
    assert plan.missed


def test_pinned_sequences_are_kept() -> None:
    spec = promised("nvidia-h200", tpot="10ms", engine={"pin": {"maxNumSeqs": 128}})

    plan = planned(LLAMA_8B, spec)

    assert plan.knobs.max_num_seqs == 128
    assert plan.missed


def test_the_cpu_row_tells_a_missed_objective() -> None:
    plan = planned(SMOLLM2, {**promised("cpu", tpot="1ms")})

    assert any("spec.slo.tpot.p95 of 1.0 ms is missed" in each for each in plan.warnings)
