"""Flags that share a model out, leave parts of it away, or change how it runs."""

import pytest

from llmservice_operator.errors import InvalidInputError
from unit.planning.estimates import GPT_OSS_20B, LLAMA_8B, estimated


def test_a_pipeline_shares_the_layers() -> None:
    """16 of 32 layers a stage: half of the bytes a token; the pool is that of the stage with the fewest blocks."""
    whole, staged = estimated(LLAMA_8B), estimated(LLAMA_8B, "pp=2")

    assert staged.kv_cache.bytes_per_token * 2 == whole.kv_cache.bytes_per_token
    assert staged.kv_cache.blocks > 2 * whole.kv_cache.blocks


def test_an_uneven_pipeline_holds_less() -> None:
    uneven = estimated(LLAMA_8B, "pp=2", env={"VLLM_PP_LAYER_PARTITION": "8,24"})

    assert uneven.kv_cache.blocks < estimated(LLAMA_8B, "pp=2").kv_cache.blocks


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="33 stages for 32 layers"):
        estimated(LLAMA_8B, "pp=33")


def test_ranks_that_do_not_divide_the_model() -> None:
    result = estimated(LLAMA_8B, "tp=3")

    assert not result.fits
    assert "32 attention heads don't divide by 3" in result.warnings[0]


def test_ranks_share_out_the_tokens_of_a_latent() -> None:
    """A latent is whole on every rank; decode context parallelism keeps a part of the tokens on each instead."""
    flags = ("tp=2", "max_model_len=32768", "kv_cache_memory_bytes=10G")
    alike = estimated("deepseek-ai--DeepSeek-V2-Lite", *flags)
    shared = estimated("deepseek-ai--DeepSeek-V2-Lite", *flags, "dcp=2")

    assert shared.kv_cache.max_concurrency == 2 * alike.kv_cache.max_concurrency


def test_ranks_that_keep_different_heads_share_no_tokens() -> None:
    assert not estimated(LLAMA_8B, "tp=2", "dcp=2").fits


def test_looking_up_n_grams_loads_nothing() -> None:
    speculating = estimated(LLAMA_8B, "speculative_config.method=ngram")

    assert speculating.memory.weights_bytes == estimated(LLAMA_8B).memory.weights_bytes


def test_layers_that_draft_keep_a_cache_too() -> None:
    """One more layer of the same kind: 33 instead of 32."""
    drafting = estimated(LLAMA_8B, "speculative_config.method=eagle3", "kv_cache_memory_bytes=33G").kv_cache

    assert drafting.blocks == estimated(LLAMA_8B, "kv_cache_memory_bytes=32G").kv_cache.blocks


def test_windows_that_keep_everything_hold_fewer_requests() -> None:
    flags = ("disable_hybrid_kv_cache_manager", "kv_cache_memory_bytes=40G")
    full = estimated(GPT_OSS_20B, *flags).kv_cache.max_concurrency

    assert full < estimated(GPT_OSS_20B, flags[1]).kv_cache.max_concurrency


def test_text_alone_leaves_the_tower_out() -> None:
    model = "Qwen--Qwen2.5-VL-7B-Instruct"
    text = estimated(model, "language_model_only").memory

    assert text.weights_bytes < estimated(model).memory.weights_bytes


def test_unprofiled_images_leave_the_tower_in() -> None:
    model = "Qwen--Qwen2.5-VL-7B-Instruct"
    unprofiled, profiled = estimated(model, "skip_mm_profiling").memory, estimated(model).memory

    assert unprofiled.weights_bytes == profiled.weights_bytes
    assert unprofiled.activation_bytes < profiled.activation_bytes


# What each runner doesn't support yet (config/vllm.py of 0.26 and 0.33).
@pytest.mark.parametrize(
    ("flag", "version", "runner"),
    [
        ("speculative_config.method=ngram", "0.26.0", "V1"),
        ("speculative_config.method=eagle3", "0.26.0", "V2"),
        ("speculative_config.method=ngram", "0.33.0", "V2"),
        ("speculative_config.method=suffix", "0.33.0", "V1"),
        ("enable_prompt_embeds", "0.26.0", "V1"),
        ("enable_lora", "0.26.0", "V2"),
    ],
)
def test_features_that_change_the_runner(flag: str, version: str, runner: str) -> None:
    assert estimated(LLAMA_8B, flag, version=version).settings["model_runner"] == runner


@pytest.mark.parametrize(
    "flag",
    [
        "cudagraph_capture_sizes=[1,2,4,8]",
        "max_cudagraph_capture_size=8",
        'compilation_config={"cudagraph_capture_sizes": [1, 2, 4, 8]}',
        "compilation_config.cudagraph_mode=PIECEWISE",
        "optimization_level=1",
    ],
)
def test_fewer_graphs_take_less(flag: str) -> None:
    assert estimated(LLAMA_8B, flag).memory.cuda_graph_bytes < estimated(LLAMA_8B).memory.cuda_graph_bytes


@pytest.mark.parametrize(
    "flag", ["enforce_eager", "optimization_level=0", "compilation_config.cudagraph_mode=NONE"]
)
def test_no_graphs_take_nothing(flag: str) -> None:
    assert estimated(LLAMA_8B, flag).memory.cuda_graph_bytes == 0


def test_a_mode_of_graphs_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="FULL_AND_PIECEWISE"):
        estimated(LLAMA_8B, "compilation_config.cudagraph_mode=SOME")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("pp=2", "stages are timed one after the other"),
        ("dp=2", "of one of 2 engines"),
        ("speculative_config.method=ngram", "without speculation"),
    ],
)
def test_what_times_leave_out_is_said(flag: str, said: str) -> None:
    assert any(said in each for each in estimated(LLAMA_8B, flag, prefill=(512,)).warnings)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("num_gpu_blocks_override=65000", "num_gpu_blocks_override 65,000 leaves"),
        ("kv_cache_memory_bytes=126G", "kv_cache_memory_bytes of 126.00 GiB leaves"),
        ("gpu_memory_utilization=0.99", "gpu_memory_utilization 0.99 leaves"),
    ],
)
def test_whatever_takes_the_whole_card_leaves_no_room_to_start(flag: str, said: str) -> None:
    result = estimated(LLAMA_8B, flag, "max_model_len=8192")

    assert not result.fits
    assert any(said in each and "dies in its warm-up" in each for each in result.warnings)


def test_states_need_no_blocks_of_their_own_without_full_graphs() -> None:
    flags = (
        "max_num_seqs=1024",
        "kv_cache_memory_bytes=20G",
        "max_model_len=4096",
        "gpu_memory_utilization=0.9",
    )
    model = "Qwen--Qwen3.5-27B"

    assert any("blocks of states" in each for each in estimated(model, *flags).warnings)
    assert estimated(model, *flags, "compilation_config.cudagraph_mode=PIECEWISE").fits


def test_no_length_is_offered_where_not_one_block_fits() -> None:
    warnings = estimated(LLAMA_8B, "num_gpu_blocks_override=1").warnings

    assert any("not one block of tokens fits" in each for each in warnings)
