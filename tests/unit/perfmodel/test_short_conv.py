"""Short convolutions beside attention."""

from typing import Any

import pytest

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.kv_cache import CacheSettings, cache_layout
from llmservice_operator.perfmodel.shapes import AttentionCache, StateCache
from unit.perfmodel.test_families import FAMILIES

SMALL: dict[str, Any] = FAMILIES["known"]["lfm2-1.2b"]["config"]


def test_layers_without_attention_keep_what_the_kernel_sees() -> None:
    caches = read_architecture(SMALL).caches

    assert sum(isinstance(each, AttentionCache) for each in caches) == 6
    assert {each.conv_elements for each in caches if isinstance(each, StateCache)} == {2 * 2048}


def test_a_state_fits_a_page_of_attention() -> None:
    """Two tokens of 2,048 channels in 16 bits, where 16 tokens of attention take 32 KiB: blocks stay as they are."""
    settings = CacheSettings(
        kv_cache_dtype="auto",
        model_dtype="bfloat16",
        tensor_parallel_size=1,
        block_size=16,
        max_num_batched_tokens=8192,
        prefix_caching=False,
    )

    assert cache_layout(read_architecture(SMALL), settings).block_size == 16


def test_the_feed_forward_is_two_thirds_of_what_is_said() -> None:
    assert read_architecture(SMALL).intermediate_size == 8192


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"conv_L_cache": 0}, "conv_L_cache"),
        ({"conv_L_cache": None}, "conv_L_cache"),
        ({"full_attn_idxs": [99]}, "full_attn_idxs"),
        ({"block_ffn_dim_multiplier": 1e300}, "block_ffn_dim_multiplier"),
        ({"block_ffn_dim_multiplier": -1}, "block_ffn_dim_multiplier"),
        ({"block_multiple_of": 0}, "block_multiple_of"),
        ({"tie_embedding": "yes"}, "tie_embedding"),
    ],
)
def test_a_strange_shape_is_refused_with_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: .*{field}"):
        read_architecture({**SMALL, **change})
