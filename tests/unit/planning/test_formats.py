"""Formats that a card cannot run are refused by name; those that run otherwise are said."""

from typing import Any

import pytest

from unit.perfmodel.samples import SMOLLM2, load_config, on, planned, refused

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
HALF = {"args": {"dtype": "half"}}


@pytest.mark.parametrize(
    ("config", "card", "engine", "version", "words"),
    [
        (LLAMA_8B, "nvidia-t4", {}, "0.26.0", "can't compute in bfloat16"),
        (SMOLLM2, "nvidia-t4", {**HALF, "kvCacheDtype": "fp8"}, "0.26.0", "for a KV cache of fp8"),
        ("openai--gpt-oss-20b", "nvidia-t4", HALF, "0.26.0", "mxfp4"),
        (LLAMA_8B, "nvidia-h200", {"kvCacheDtype": "nvfp4"}, "0.33.0", "for a KV cache of nvfp4"),
        (LLAMA_8B, "nvidia-h200", {"kvCacheDtype": "float16"}, "0.33.0", "computes in bfloat16"),
        ("deepseek-ai--DeepSeek-V2-Lite", "nvidia-a100-80gb", {"kvCacheDtype": "fp8"}, "0.26.0", "latent attention"),
        ("Qwen--Qwen3-32B-FP8", "nvidia-h200", {"kvCacheDtype": "fp8_e5m2"}, "0.26.0", "takes fp8_e4m3"),
        ("nvidia--Llama-3.1-70B-Instruct-FP8", "nvidia-a100-80gb", {}, "0.26.0", "modelopt"),
    ],
)  # fmt: skip
def test_a_format_without_a_kernel_is_refused(
    config: Any, card: str, engine: dict[str, Any], version: str, words: str
) -> None:
    refusal = refused(config, on(card, engine=engine), engine_version=version)

    assert (refusal.reason, words in refusal.message) == ("InvalidSpec", True), refusal.message


def test_the_refused_card_is_named() -> None:
    assert refused(LLAMA_8B, on("nvidia-t4")).message.startswith(
        "nvidia-t4 (compute capability 7.5) can't compute in bfloat16; set spec.engine.args.dtype to half"
    )


def test_another_card_of_the_list_is_taken_where_one_lacks_a_format() -> None:
    plan = planned(LLAMA_8B, on("nvidia-t4", "nvidia-l4"))

    assert plan.accelerator.name == "nvidia-l4"
    assert any("can't compute in bfloat16" in reason for reason in plan.reasons)


def test_half_runs_on_turing() -> None:
    assert planned(SMOLLM2, on("nvidia-t4", engine=HALF)).accelerator.name == "nvidia-t4"


@pytest.mark.parametrize(
    ("config", "engine", "words"),
    [
        ("Qwen--Qwen3-30B-A3B-FP8", {}, "Marlin's kernels compute in bfloat16"),
        (LLAMA_8B, {"kvCacheDtype": "fp8"}, "only FlashInfer's attention reads an FP8 KV cache there"),
        ("openai--gpt-oss-20b", {}, "has no FP4 arithmetic"),
    ],
)
def test_what_runs_by_wider_kernels_is_said(config: str, engine: dict[str, Any], words: str) -> None:
    plan = planned(config, on("nvidia-a100-80gb", engine=engine))

    assert any(words in warning for warning in plan.warnings), plan.warnings


def test_native_formats_are_not_worth_a_word() -> None:
    assert planned("Qwen--Qwen3-32B-FP8", on("nvidia-h200")).warnings == ()


def test_a_method_that_the_engine_no_longer_has_is_refused() -> None:
    """Built in up to 0.26.0, gone in 0.28.0."""
    config = {
        **load_config(LLAMA_8B),
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    }

    assert planned(config, on("nvidia-l4"), engine_version="0.26.0")
    assert "no longer has from 0.28.0 on" in refused(config, on("nvidia-l4"), engine_version="0.33.0").message


ONE_L4 = {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}


def test_the_cache_is_never_quantised_unasked() -> None:
    spec = {"accelerator": ONE_L4, "workload": {"context": {"min": 40_000}}}

    assert "spec.engine.kvCacheDtype of fp8" in refused(LLAMA_8B, spec).message


def test_leave_to_quantise_is_used_where_it_is_needed() -> None:
    workload = {"context": {"min": 40_000}}
    engine = {"kvCacheDtype": "fp8-if-needed"}

    plan = planned(LLAMA_8B, {"accelerator": ONE_L4, "workload": workload, "engine": engine})

    assert plan.knobs.kv_cache_dtype == "fp8"
    assert any("as spec.engine.kvCacheDtype allows" in reason for reason in plan.reasons)


def test_leave_to_quantise_is_not_used_where_it_is_not_needed() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", engine={"kvCacheDtype": "fp8-if-needed"}))

    assert plan.knobs.kv_cache_dtype == "auto"


def test_what_fp8_would_hold_is_told_where_the_cache_is_short() -> None:
    """Half the bytes hold twice the blocks of a dense model."""
    plan = planned(LLAMA_8B, {"accelerator": ONE_L4})

    assert any("fp8 would hold 2.00 times the requests" in each for each in plan.reasons)


def test_fp8_is_not_spoken_of_where_the_card_cannot_run_it() -> None:
    plan = planned(SMOLLM2, on("nvidia-t4", engine=HALF, workload={"concurrency": {"min": 200}}))

    assert not any("fp8" in each for each in plan.reasons)
