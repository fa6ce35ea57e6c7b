"""What a quantisation config makes of a weight's bytes."""

from typing import Any

import pytest

from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.quantization import online_quantization, read_quantization, weight_bytes
from llmservice_operator.perfmodel.shapes import Shard, Weight
from unit.perfmodel.samples import load_config


def linear(module: str, *, expert: bool = False) -> Weight:
    return Weight(module=module, rows=1024, columns=1024, shard=Shard.TENSOR, expert=expert)


def bits(config: dict[str, Any], module: str, *, expert: bool = False) -> float:
    scheme = read_quantization({"quantization_config": config})
    size = weight_bytes(linear(module, expert=expert), scheme, dtype="bfloat16", tensor_parallel_size=1)
    return size * 8 / (1024 * 1024)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
CT_INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128, "type": "int"}}},
    "ignore": ["lm_head", "re:.*layers\\.0\\.mlp.*"],
}


CT_FP8_BLOCKS = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "block_structure": [128, 128]},
        }
    },
}
CT_TWO_GROUPS = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 16, "type": "float"}},
    },
    "ignore": ["lm_head"],
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8"}, 8.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.0 + 32 / 16384),
        (AWQ, 4.0 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0),
        (CT_INT4, 4.0 + 16 / 128),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4.127),
        ({"quant_method": "gguf", "quant_type": "Q8_0"}, 8.5),
        (CT_FP8_BLOCKS, 8.0 + 32 / 16384),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quantization": {"quant_algo": "FP8"}}, 8.0),
    ],
)
def test_bits_of_a_weight_with_its_scales(config: dict[str, Any], expected: float) -> None:
    assert bits(config, "layers.3.self_attn.q_proj") == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "pattern", ["lm_head", "model.layers.0.self_attn", "re:.*self_attn.*", "model.layers.0*"]
)
def test_what_is_ignored_stays_as_it_was(pattern: str) -> None:
    module = "lm_head" if pattern == "lm_head" else "layers.0.self_attn.q_proj"

    assert bits({"quant_method": "fp8", "modules_to_not_convert": [pattern]}, module) == 16.0


def test_the_head_stays_as_it_was_unless_it_is_listed() -> None:
    assert bits(AWQ, "lm_head") == 16.0


def test_a_head_that_is_listed_is_quantised() -> None:
    config = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"lm_head": {"quant_algo": "W4A16_NVFP4"}},
    }

    assert bits(config, "lm_head") == 4.5


def test_mxfp4_holds_for_experts_only() -> None:
    assert bits({"quant_method": "mxfp4"}, "layers.0.self_attn.q_proj") == 16.0


def test_mixed_precision_goes_by_module() -> None:
    scheme = read_quantization(load_config("nvidia--Qwen3.6-35B-A3B-NVFP4"))

    attention = scheme.format_of(linear("layers.3.self_attn.q_proj"))
    experts = scheme.format_of(linear("layers.3.mlp.experts.up_proj", expert=True))

    assert attention is not None
    assert experts is not None
    assert (attention.name, experts.name) == ("FP8", "NVFP4")


@pytest.mark.parametrize(
    ("module", "expected"),
    [("layers.3.self_attn.q_proj", 8.0), ("layers.3.mlp.up_proj", 4.5), ("lm_head", 16.0)],
)
def test_compressed_tensors_may_have_a_format_for_each_target(module: str, expected: float) -> None:
    assert bits(CT_TWO_GROUPS, module) == expected


def test_a_gguf_file_must_tell_its_type() -> None:
    with pytest.raises(
        ConfigError, match=r"quantization_config\.quant_type is None; the type of the GGUF file"
    ):
        read_quantization({"quantization_config": {"quant_method": "gguf"}})


def test_a_checkpoint_may_ask_for_its_kv_caches_format() -> None:
    assert read_quantization(load_config("nvidia--Llama-3.1-70B-Instruct-FP8")).kv_cache_dtype == "fp8_e4m3"


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="quant_method is 'mystery'"):
        read_quantization({"quantization_config": {"quant_method": "mystery"}})


def test_an_unquantised_checkpoint_can_be_quantised_while_loading() -> None:
    scheme = online_quantization("fp8")

    assert scheme is not None
    assert weight_bytes(linear("a.b"), scheme, dtype="bfloat16", tensor_parallel_size=2) == 1024 * 1024 // 2
