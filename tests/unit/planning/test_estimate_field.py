"""Warnings from what happened to others, and the score over what people reported."""

import pytest

from accuracy.field import read_records, score, verdicts
from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.planning.estimate import Estimate, EstimateInputs, estimate
from unit.perfmodel.samples import catalogue, load_config


def warnings(name: str, version: str, *flags: tuple[str, str]) -> str:
    row = find_row(catalogue(), "nvidia-h100-80gb")
    found = estimate(EstimateInputs(config=load_config(name), card=row, engine_version=version, flags=flags))
    return "; ".join(found.warnings)


def test_a_bold_utilization_is_warned_of() -> None:
    said = warnings("meta-llama--Meta-Llama-3.1-8B", "0.14.1", ("gpu_memory_utilization", "0.97"))

    assert "0.97 leaves 2.38 GiB for all that the engine doesn't count" in said


def test_the_same_is_not_said_of_versions_that_count_more() -> None:
    said = warnings("meta-llama--Meta-Llama-3.1-8B", "0.11.2", ("gpu_memory_utilization", "0.97"))

    assert "doesn't count" not in said


def test_images_on_an_engine_that_may_fall_back_are_warned_of() -> None:
    assert "engine V0" in warnings("Qwen--Qwen2.5-VL-7B-Instruct", "0.8.3")


def test_the_score_over_what_people_reported_holds_every_target() -> None:
    assert score(list(verdicts(read_records()))).misses == []


def test_a_wheel_without_flashinfer_is_warned_of_where_it_decides() -> None:
    """8.0 GiB of KV cache with FlashInfer's sampler, 8.0 needed; 3.5 less without it at 1,024 sequences."""
    flags = (("max_num_seqs", "1024"), ("max_model_len", "32768"))

    assert "from a plain wheel" in warnings("Qwen--Qwen3-32B", "0.10.0", *flags)
    assert "wheel" not in warnings("Qwen--Qwen3-32B", "0.12.0", *flags)
    assert "wheel" not in warnings(
        "Qwen--Qwen3-32B", "0.10.0", ("max_num_seqs", "64"), ("max_model_len", "4096")
    )


def compressed(card: str, version: str, **flags: str) -> Estimate:
    return estimate(
        EstimateInputs(
            config=load_config("deepseek-ai--DeepSeek-V4-Flash"),
            card=find_row(catalogue(), card),
            engine_version=version,
            flags=(("enable_expert_parallel", "true"), *flags.items()),
        )
    )


def test_two_public_starts_of_compressed_attention_come_back() -> None:
    """One was refused by the engine at 5.44 GiB, the other served with 7.7."""
    refused = compressed(
        "nvidia-gh200",
        "0.22.0",
        tensor_parallel_size="2",
        max_num_batched_tokens="16384",
        max_num_seqs="1024",
        max_model_len="30000",
        gpu_memory_utilization="0.95",
    )
    served = compressed(
        "nvidia-h20",
        "0.26.0",
        tensor_parallel_size="2",
        max_num_batched_tokens="8192",
        max_num_seqs="32",
        max_model_len="121344",
        gpu_memory_utilization="0.9",
    )

    assert (refused.fits, served.fits) == (False, True)
    assert abs(refused.memory.kv_cache_bytes / 2**30 - 5.44) < 0.6
    assert abs(served.memory.kv_cache_bytes / 2**30 - 7.7) < 0.6
    assert "four public starts alone" in "; ".join(served.warnings)


@pytest.mark.parametrize(
    ("parallel", "printed"), [("tensor_parallel_size", 20.43), ("data_parallel_size", 156.9 / 8)]
)
def test_requests_of_a_million_tokens_on_eight_b200(parallel: str, printed: float) -> None:
    """As a public report of 0.25 has it; the data-parallel start has buffers of its experts' kernel as well."""
    found = compressed(
        "nvidia-b200",
        "0.25.0",
        **{parallel: "8"},
        max_num_batched_tokens="8192",
        max_num_seqs="256",
        gpu_memory_utilization="0.95",
    )

    assert found.kv_cache.max_concurrency == pytest.approx(printed, rel=0.06)
