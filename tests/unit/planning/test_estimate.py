"""The engine with exactly these arguments: its account, its defaults, and whether it starts."""

from typing import Any

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.planning.estimate import Arrival, Estimate, EstimateInputs, estimate
from unit.perfmodel.samples import generating_models, load_config

CATALOGUE = load_catalogue(builtin_catalogue_text())
GIB = 1 << 30
LLAMA_8B, GPT_OSS_20B = "meta-llama--Meta-Llama-3.1-8B", "openai--gpt-oss-20b"


def estimated(
    model: str = LLAMA_8B,
    *flags: str,
    accelerator: str = "nvidia-h200",
    version: str = "0.26.0",
    **changes: Any,
) -> Estimate:
    pairs = tuple(
        (name, value if equals else None) for name, equals, value in (f.partition("=") for f in flags)
    )
    inputs = {
        "config": load_config(model),
        "card": find_row(CATALOGUE, accelerator),
        "engine_version": version,
        "flags": pairs,
    }
    return estimate(EstimateInputs(**(inputs | changes)))


def arrival(rate: float, input_p50: int, output_p50: int) -> Arrival:
    return Arrival(rate_per_second=rate, input_p50=input_p50, output_p50=output_p50)


def test_the_budget_is_spent_to_the_byte() -> None:
    """Requested = weights + activation + non-torch + charged graphs + KV cache: no margin."""
    memory = estimated("Qwen--Qwen3-30B-A3B").memory

    spent = memory.weights_bytes + memory.activation_bytes + memory.non_torch_bytes
    assert memory.requested_bytes == spent + memory.cuda_graph_charged_bytes + memory.kv_cache_bytes


def test_a_pool_of_fifty_gib() -> None:
    """32 layers x 8 heads x 2 x 128 x 2 bytes x 16 tokens are 2 MiB a block."""
    cache = estimated(LLAMA_8B, "kv_cache_memory_bytes=50G").kv_cache

    assert (cache.bytes_per_token, cache.block_size, cache.blocks, cache.tokens) == (
        131072,
        16,
        25600,
        409600,
    )
    assert round(cache.max_concurrency, 3) == 3.125


def test_blocks_that_are_given_replace_the_engines_own() -> None:
    result = estimated(LLAMA_8B, "num_gpu_blocks_override=10000")

    assert (result.kv_cache.blocks, result.kv_cache.tokens) == (10000, 160000)
    assert result.memory.kv_cache_bytes == 10000 * 2 * (1 << 20)


# The tiers of vllm/engine/arg_utils.py: (max_num_batched_tokens, max_num_seqs).
@pytest.mark.parametrize(
    ("accelerator", "version", "entry_point", "expected"),
    [
        ("nvidia-h200", "0.26.0", "server", (8192, 1024)),
        ("nvidia-h200", "0.26.0", "llm", (16384, 1024)),
        ("nvidia-a100-80gb", "0.26.0", "server", (2048, 256)),
        ("nvidia-a100-80gb", "0.8.5", "server", (8192, 1024)),
        ("nvidia-l4", "0.26.0", "server", (2048, 256)),
        ("nvidia-l4", "0.26.0", "llm", (8192, 256)),
        ("nvidia-b200", "0.26.0", "server", (8192, 1024)),
        ("nvidia-b200", "0.28.0", "server", (16384, 1024)),
        ("nvidia-gb10", "0.32.0", "server", (8192, 1024)),
        ("nvidia-gb10", "0.33.0", "server", (2048, 256)),
    ],
)
def test_batch_defaults(accelerator: str, version: str, entry_point: str, expected: tuple[int, int]) -> None:
    settings = estimated(LLAMA_8B, accelerator=accelerator, version=version, entry_point=entry_point).settings

    assert (settings["max_num_batched_tokens"], settings["max_num_seqs"]) == expected


def test_defaults_shrink_with_a_short_context() -> None:
    """Tokens are at most sequences x context, and sequences at most tokens."""
    settings = estimated(LLAMA_8B, "max_num_seqs=2", "max_model_len=100").settings

    assert settings["max_num_batched_tokens"] == 200


@pytest.mark.parametrize(("version", "expected"), [("0.17.1", 0.9), ("0.19.0", 0.9), ("0.26.0", 0.92)])
def test_the_default_share_of_the_card(version: str, expected: float) -> None:
    assert estimated(LLAMA_8B, version=version).settings["gpu_memory_utilization"] == expected


@pytest.mark.parametrize(
    "version", ["0.22", "v0.22.0", "0.22.0.post1", "0.22.0rc1.dev93+g11a4c9d30", "0.22.0 (nightly)"]
)
def test_spellings_of_a_version(version: str) -> None:
    assert estimated(LLAMA_8B, version=version).settings["engine_version"] == "0.22.0"


def test_an_unknown_version_is_said() -> None:
    assert any("rules of vLLM" in each for each in estimated(LLAMA_8B, version="").warnings)


@pytest.mark.parametrize("version", ["latest", "26", "0.26000.0", "-0.26.0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(InvalidInputError, match="is expected, such as"):
        estimated(LLAMA_8B, version=version)


def test_the_longest_context_that_fits() -> None:
    """By the engine's rule, the null block kept: one token more than it is refused."""
    flags = ("kv_cache_memory_bytes=1G", "gpu_memory_utilization=0.5")
    longest = estimated(LLAMA_8B, "max_model_len=auto", *flags).settings["max_model_len"]

    assert longest == (512 - 1) * 16
    assert estimated(LLAMA_8B, f"max_model_len={longest}", *flags).fits
    assert not estimated(LLAMA_8B, f"max_model_len={longest + 1}", *flags).fits


def test_a_context_that_does_not_fit_says_what_does() -> None:
    result = estimated(LLAMA_8B, "max_model_len=131072", accelerator="nvidia-l4")

    assert not result.fits
    assert result.shortfall_bytes > 10 * GIB
    assert "max_model_len of" in result.warnings[0]


def test_weights_that_exceed_the_card() -> None:
    result = estimated("meta-llama--Meta-Llama-3.1-70B", accelerator="nvidia-l4")

    assert not result.fits
    assert "exceed the card" in result.warnings[0]


def test_a_start_that_dies_in_the_samplers_warm_up() -> None:
    """Seen on H100 80 GB with vLLM 0.19.0 at 0.95; it starts at 0.90."""
    flags = {"accelerator": "nvidia-h100-80gb", "version": "0.19.0"}
    dies = estimated(GPT_OSS_20B, "gpu_memory_utilization=0.95", **flags)

    assert not dies.fits
    assert any("dies in its warm-up" in each for each in dies.warnings)
    assert estimated(GPT_OSS_20B, "gpu_memory_utilization=0.90", **flags).fits


def test_a_card_that_others_use() -> None:
    result = estimated(LLAMA_8B, "free_gib=60", "max_model_len=8192")

    assert not result.fits
    assert "is less than the requested" in result.warnings[0]


def test_more_than_the_configs_context_is_said() -> None:
    assert any("VLLM_ALLOW_LONG" in each for each in estimated(LLAMA_8B, "max_model_len=200000").warnings)


def test_a_described_card() -> None:
    result = estimated(LLAMA_8B, "total_gib=24", "max_model_len=8192", card=None)

    assert result.memory.total_bytes == 24 * GIB
    assert result.settings["max_num_seqs"] == 256


def test_memory_of_a_row_can_be_said() -> None:
    assert estimated(LLAMA_8B, "total_gib=130").memory.total_bytes == 130 * GIB


def test_bfloat16_is_refused_on_a_t4() -> None:
    result = estimated("Qwen--Qwen3-0.6B", "dtype=bfloat16", accelerator="nvidia-t4")

    assert not result.fits
    assert "bfloat16" in result.warnings[0]


def test_auto_is_float16_on_a_t4() -> None:
    result = estimated("Qwen--Qwen3-0.6B", "gpu_memory_utilization=0.85", accelerator="nvidia-t4")

    assert result.fits
    assert result.settings["dtype"] == "float16"


def test_half_of_the_bytes_a_token_with_an_fp8_cache() -> None:
    plain, fp8 = estimated(LLAMA_8B), estimated(LLAMA_8B, "kv_cache_dtype=fp8")

    assert plain.kv_cache.bytes_per_token == 2 * fp8.kv_cache.bytes_per_token


def test_graphs_take_nothing_in_an_eager_engine() -> None:
    assert estimated(LLAMA_8B, "enforce_eager").memory.cuda_graph_bytes == 0


def test_lora_slots_count_as_weights() -> None:
    with_slots = estimated(LLAMA_8B, "enable_lora", "max_loras=4", "max_lora_rank=64")

    assert with_slots.memory.weights_bytes > estimated(LLAMA_8B).memory.weights_bytes


def test_offloaded_weights_leave_the_card() -> None:
    offloaded = estimated(LLAMA_8B, "cpu_offload_gb=4")

    assert estimated(LLAMA_8B).memory.weights_bytes - offloaded.memory.weights_bytes == 4 * GIB


def test_overrides_of_the_config_count() -> None:
    result = estimated(LLAMA_8B, 'hf_overrides={"max_position_embeddings": 4096}')

    assert result.settings["max_model_len"] == 4096


def test_the_sampler_of_the_environment() -> None:
    """Since a Triton kernel finds thresholds in place (0.17), FlashInfer's sampler takes as much as vLLM's own."""
    model = "Qwen--Qwen3-0.6B"
    off = estimated(model, version="0.19.0", env={"VLLM_USE_FLASHINFER_SAMPLER": "0"})

    assert off.memory.activation_bytes == estimated(model, version="0.19.0").memory.activation_bytes


@pytest.mark.parametrize("model", generating_models())
def test_every_number_says_where_it_is_from(model: str) -> None:
    document = estimated(model).to_json()

    for part in ("memory", "kv_cache"):
        assert document[part].keys() == document["explain"][part].keys()
        assert all(document["explain"][part].values())


@pytest.mark.parametrize(
    ("flags", "changes", "message"),
    [
        ((), {"card": None}, "give --accelerator NAME, or describe one by --set total_gib=GIB"),
        ((), {"accelerator": "cpu"}, "give the container's memory limit by --set total_gib=GIB"),
        (("total_gib=nan",), {}, "total_gib=nan"),
        (("total_gib=-4",), {}, "total_gib=-4"),
        (("quantization=gguff",), {}, "quantization=gguff"),
        (("kv_cache_dtype=fp9",), {}, "kv_cache_dtype=fp9"),
        (
            ("speculative_config.method=ngram", "speculative_config.num_speculative_tokens=0"),
            {},
            "1 to 1,024",
        ),
        ((), {"config": {}}, "config.json"),
    ],
)
def test_what_cannot_be_used_is_named(flags: tuple[str, ...], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        estimated(LLAMA_8B, *flags, **changes)

    assert message in str(caught.value)


def on_cpu(*flags: str, **changes: Any) -> Estimate:
    model = "HuggingFaceTB--SmolLM2-135M-Instruct"
    return estimated(model, *flags, accelerator="cpu", version="0.32.0", **changes)


def test_the_cpu_engines_pool_is_what_the_environment_says() -> None:
    """1 GiB / (30 layers x 3 heads x 2 x 64 x 4 bytes x 128 tokens) are 182 blocks."""
    result = on_cpu("total_gib=4", "dtype=float32", env={"VLLM_CPU_KVCACHE_SPACE": "1"})

    assert result.fits
    assert (result.kv_cache.block_size, result.kv_cache.blocks) == (128, 182)


def test_times_on_a_cpu_are_said_to_be_rough() -> None:
    result = on_cpu("total_gib=4", "dtype=float32", env={"VLLM_CPU_KVCACHE_SPACE": "1"}, prefill=(128,))

    assert any("rough on a CPU" in each for each in result.warnings)


def test_a_container_that_is_too_small_is_said() -> None:
    result = on_cpu("total_gib=4", "dtype=float32", env={"VLLM_CPU_KVCACHE_SPACE": "4"})

    assert not result.fits
    assert "the kernel would kill it" in result.warnings[0]


def test_the_cpu_engine_sizes_its_cache_by_what_its_worker_holds() -> None:
    """vLLM-CPU 0.32.0 in 8 GiB at 0.5 printed 2.61 GiB; equal starts differ by up to 0.12."""
    result = on_cpu("total_gib=8", "dtype=float32", "gpu_memory_utilization=0.5", "enforce_eager=true")

    assert result.memory.kv_cache_bytes / (1 << 30) == pytest.approx(2.61, abs=0.12)


def test_a_container_without_room_for_a_compiler_is_warned_of() -> None:
    """352 MiB for a Python with torch and then g++, while all else is resident."""
    flags = ("dtype=float32", "enforce_eager=true", "max_num_seqs=32", "max_model_len=2048")
    result = on_cpu("total_gib=3", *flags, f"kv_cache_memory_bytes={600 << 20}")

    assert result.fits
    assert "has a kernel compiled" in result.warnings[0]


def test_a_space_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="whole GiB"):
        on_cpu("total_gib=4", env={"VLLM_CPU_KVCACHE_SPACE": "1.5"})


def test_points_of_speed_carry_what_bounds_them() -> None:
    """A long prompt is bound by compute, one sequence's step by memory; the card's ridge is FLOP/s over bytes/s."""
    speed = estimated(LLAMA_8B, prefill=(8192,), decode=((1, 2048),)).speed

    assert speed is not None
    assert (speed["prefill"][0]["tokens"], speed["prefill"][0]["regime"]) == (8192, "compute-bound")
    assert (speed["decode"][0]["batch"], speed["decode"][0]["regime"]) == (1, "memory-bound")
    assert speed["ridge_point_flops_per_byte"] == pytest.approx(989.4e12 / 4.8e12)


def test_a_load_that_grows_waits_longer() -> None:
    def at(rate: float) -> Any:
        speed = estimated(LLAMA_8B, "max_model_len=8192", arrival=arrival(rate, 1000, 200)).speed
        return speed["open_loop"] if speed else None

    calm, busy = at(1.0), at(20.0)

    assert calm["ttft_p95_seconds"] < busy["ttft_p95_seconds"]
    assert not calm["saturated"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prefill": (9000,)}, "longer than max_model_len"),
        ({"decode": ((2000, 100),)}, "above max_num_seqs"),
        ({"decode": ((1000, 8000),)}, "some would wait"),
        ({"arrival": arrival(1.0, 8000, 1000)}, "no open loop is played"),
    ],
)
def test_points_that_the_engine_would_never_run_are_said(changes: dict[str, Any], said: str) -> None:
    assert any(said in each for each in estimated(LLAMA_8B, "max_model_len=8192", **changes).warnings)


def test_a_prompt_beyond_the_graphs_that_a_flag_names_is_launched_kernel_by_kernel() -> None:
    """As prompts above 512 tokens are by default: 16 ms at 512, 41 at 1,024 (Llama-3.1-8B, two H200)."""
    usual, few = (
        estimated(LLAMA_8B, *flags, prefill=(256,)).speed
        for flags in ((), ("max_cudagraph_capture_size=128",))
    )

    assert usual is not None
    assert few is not None
    assert few["prefill"][0]["ttft_seconds"] > 1.5 * usual["prefill"][0]["ttft_seconds"]


def test_speed_needs_a_card_whose_rates_are_known() -> None:
    with pytest.raises(InvalidInputError, match="bandwidth"):
        estimated(LLAMA_8B, "total_gib=80", card=None, prefill=(512,))


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
