"""DeepSeek-V4: parameters as they are published, and what one public start said it needed."""

from typing import Any

import pytest

from llmservice_operator.engines.versions import gpu_block_size
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.kv_cache import CacheLayout, CacheSettings, bytes_per_token, cache_layout
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.weights import parameter_count, rank_weight_bytes
from unit.perfmodel.samples import load_config

GIB = 1 << 30
FLASH = load_config("deepseek-ai--DeepSeek-V4-Flash")
MODEL = read_architecture(FLASH)


def layout(version: tuple[int, int, int], *, tokens: int = 16_384, batches: int = 1) -> CacheLayout:
    return cache_layout(
        MODEL,
        CacheSettings(
            kv_cache_dtype="fp8",
            model_dtype="bfloat16",
            tensor_parallel_size=2,
            block_size=256,
            max_num_batched_tokens=tokens,
            prefix_caching=True,
            batches_in_flight=batches,
            engine_version=version,
        ),
    )


def test_it_has_the_284_billion_parameters_that_are_published() -> None:
    assert round(parameter_count(MODEL) / 1e9) == 284


def test_experts_are_in_four_bits_and_the_rest_in_eight() -> None:
    quantization = read_quantization(FLASH)
    names = {
        each.module.removeprefix("layers.4."): found.name if (found := quantization.format_of(each)) else ""
        for each in MODEL.weights
        if each.module.startswith("layers.4.")
    }

    assert names["mlp.experts.down_proj"] == "MXFP4"
    assert {names["self_attn.q_b_proj"], names["mlp.shared_expert.up_proj"]} == {"FP8"}
    assert {names["self_attn.compressor.wkv_wgate"], names["hc_attn_fn"], names["mlp.gate"]} == {""}


def test_the_weights_are_no_larger_than_the_files() -> None:
    """The checkpoint's files take 148.66 GiB with a layer of multi-token prediction, which has 3.4 GiB in experts."""
    size = rank_weight_bytes(MODEL, read_quantization(FLASH), dtype="bfloat16", tensor_parallel_size=1)

    assert 144.5 < size / GIB < 146.0


def test_a_request_needs_what_the_engine_said() -> None:
    """VLLM 0.22 on two GH200, offline: 6.66 GiB for 30,000 tokens, and 13,528 in 5.44 GiB."""
    found = layout((0, 22, 0))

    assert round(found.needed_bytes(30_000) / GIB, 2) == 6.66
    assert found.longest_request(int(5.44 * GIB), 30_000) == pytest.approx(13_528, abs=20)


def test_later_versions_pack_blocks_closer() -> None:
    sizes = [layout(version).bytes_per_block for version in ((0, 22, 0), (0, 26, 0), (0, 28, 0))]

    assert sizes == [1_051_776, 1_039_680, 1_002_240]


def test_more_tokens_in_flight_need_more_states() -> None:
    assert layout((0, 28, 0), batches=2).needed_bytes(60_000) > layout((0, 28, 0)).needed_bytes(60_000)


def test_a_token_is_counted_by_its_share_of_entries() -> None:
    """21 layers at 4 with an indexer, 20 at 128: 584 and 132 B an entry."""
    settings = layout((0, 28, 0)).settings

    assert bytes_per_token(MODEL, settings) == int(21 * (584 + 132) / 4 + 20 * 584 / 128)


def test_its_backends_prefer_blocks_of_256() -> None:
    assert gpu_block_size((0, 22, 0), MODEL, "9.0") == 256


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"compress_ratios": [0, 4]}, "compress_ratios"),
        ({"compress_ratios": [3] * 44}, "compress_ratios"),
        ({"compress_ratios": [True] * 44}, "compress_ratios"),
        ({"compress_ratios": None}, "hc_mult"),
        ({"o_groups": 7}, "o_groups"),
        ({"o_groups": 0}, "o_groups"),
        ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim"),
        ({"hc_mult": -4}, "hc_mult"),
        ({"index_head_dim": "wide"}, "index_head_dim"),
        ({"num_hash_layers": -1}, "num_hash_layers"),
    ],
)
def test_a_strange_shape_is_refused_with_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: .*{field}"):
        read_architecture({**FLASH, **change})
