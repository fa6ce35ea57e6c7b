"""Tables of cosines and sines, by the kinds of rotary embedding that configs tell of."""

from typing import Any

import pytest

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.rotary import rotary_weights

MROPE = {"rope_scaling": {"rope_type": "mrope", "mrope_section": [16, 24, 24]}}
TWO_KINDS = {
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default"},
    }
}


def tables(config: dict[str, Any], *, full: int = 128) -> dict[str, tuple[int, int]]:
    reader = ConfigReader(config)
    found = rotary_weights(reader, root=reader, positions=4096, head_size=128, full_head_size=full)
    return {each.module: (each.rows, each.columns) for each in found}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (4096, 128)),
        ({"partial_rotary_factor": 0.25}, (4096, 32)),
        ({"rotary_pct": 0.5}, (4096, 64)),
        ({"qk_rope_head_dim": 64}, (4096, 64)),
        (MROPE, (4 * 4096, 128)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, (8 * 4096, 128)),
        ({"vision_config": {"spatial_merge_size": 2, "temporal_patch_size": 2}}, (4 * 4096, 128)),
    ],
)
def test_positions_and_size_of_the_one_table(config: dict[str, Any], expected: tuple[int, int]) -> None:
    assert tables(config) == {"rotary_all": expected}


def test_full_and_sliding_layers_with_angles_of_their_own_have_two() -> None:
    assert tables(TWO_KINDS, full=512) == {"rotary_sliding": (4096, 128), "rotary_full": (4096, 512)}


def test_only_the_full_layers_table_is_stretched() -> None:
    config = {"rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}

    assert tables(config) == {"rotary_sliding": (4096, 128), "rotary_full": (8 * 4096, 128)}
