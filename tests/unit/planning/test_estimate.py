"""The engine with exactly these arguments: its account, its defaults, and whether it starts."""

from typing import Any

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.estimate import Arrival, Estimate
from unit.perfmodel.samples import generating_models
from unit.planning.estimates import GIB, GPT_OSS_20B, LLAMA_8B, estimated


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
