"""config.json → shapes: kinds of models, and refusals that name the strange field."""

from collections import Counter
from typing import Any

import pytest

from llmservice_operator.perfmodel.architecture import UnsupportedModelError, read_architecture
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.shapes import AttentionCache, StateCache
from llmservice_operator.perfmodel.weights import parameter_count
from unit.perfmodel.samples import SMOLLM2, generating_models, load_config


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # As the models' own pages state them; of the language model alone where there is a vision tower.
        ("meta-llama--Meta-Llama-3.1-8B", 8.03),
        ("meta-llama--Meta-Llama-3.1-70B", 70.6),
        ("Qwen--Qwen3-8B", 8.19),
        ("Qwen--Qwen3-32B", 32.8),
        ("Qwen--Qwen3-0.6B", 0.596),
        ("Qwen--Qwen3-30B-A3B", 30.5),
        ("mistralai--Mixtral-8x7B-v0.1", 46.7),
        ("openai--gpt-oss-20b", 20.9),
        ("openai--gpt-oss-120b", 116.8),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6),
        ("Qwen--Qwen3.5-27B", 26.9),
    ],
)
def test_parameters_are_those_the_models_page_states(name: str, billions: float) -> None:
    count = parameter_count(read_architecture(load_config(name)))

    assert count / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_hybrid_pattern_says_what_each_layer_is() -> None:
    model = read_architecture(load_config("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"))

    kinds = Counter(type(cache) for cache in model.caches)

    assert kinds == {StateCache: 23, AttentionCache: 6}


def test_latent_attention_keeps_one_latent_a_layer() -> None:
    model = read_architecture(load_config("deepseek-ai--DeepSeek-V2-Lite"))

    expected = AttentionCache(kind="latent", kv_heads=1, key_size=512 + 64, value_size=0)

    assert model.caches == (expected,) * 27


def test_a_models_full_layers_may_have_other_heads_than_its_sliding_ones() -> None:
    model = read_architecture(load_config("google--gemma-4-26B-A4B"))

    full = AttentionCache(kind="full", kv_heads=2, key_size=512, value_size=512)
    sliding = AttentionCache(kind="sliding", kv_heads=8, key_size=256, value_size=256, window=1024)

    assert Counter(model.caches) == {full: 5, sliding: 25}


def test_a_wrapper_is_read_through_its_text_config() -> None:
    model = read_architecture(load_config("Qwen--Qwen3.5-35B-A3B"))

    assert (model.num_layers, model.vision is not None, model.num_mtp_layers) == (40, True, 1)


def test_a_window_that_is_switched_off_counts_as_none() -> None:
    model = read_architecture(load_config("Qwen--Qwen2.5-7B-Instruct"))

    assert {cache.kind for cache in model.caches if isinstance(cache, AttentionCache)} == {"full"}


def test_a_bare_window_holds_for_all_layers() -> None:
    model = read_architecture({**SMOLLM2, "sliding_window": 4096})

    assert {cache.kind for cache in model.caches if isinstance(cache, AttentionCache)} == {"sliding"}


def test_yarn_multiplies_the_original_length() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

    model = read_architecture({**SMOLLM2, "max_position_embeddings": 32768, "rope_scaling": scaling})

    assert model.max_model_len == 131072


def test_tied_embeddings_are_there_once() -> None:
    untied = read_architecture({**SMOLLM2, "tie_word_embeddings": False})

    assert parameter_count(untied) - parameter_count(read_architecture(SMOLLM2)) == 49152 * 576


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "576"}, "hidden_size"),
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"num_attention_heads": -9}, "num_attention_heads"),
        ({"vocab_size": 1 << 40}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["mystery"] * 30}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e308}}, "rope_scaling.factor"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"compress_ratios": [0, 4]}, "compress_ratios"),
        ({"num_kv_shared_layers": 30}, "num_kv_shared_layers"),
        ({"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
    ],
)
def test_a_strange_config_is_refused_with_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: .*{field}"):
        read_architecture({**SMOLLM2, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"architectures": ["BertModel"]},
        {"architectures": ["XLMRobertaForSequenceClassification"]},
        {"is_encoder_decoder": True},
    ],
)
def test_what_generates_no_text_is_unsupported(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError):
        read_architecture({**SMOLLM2, **change})


@pytest.mark.parametrize("name", generating_models())
@pytest.mark.parametrize("size", [2, 4, 8])
def test_ranks_hold_at_least_their_share(name: str, size: int) -> None:
    model = read_architecture(load_config(name))
    if model.num_attention_heads % size:
        size = model.num_attention_heads

    whole = sum(weight.elements(1) for weight in model.weights)
    share = sum(weight.elements(size) for weight in model.weights)

    assert whole <= share * size <= 2.2 * whole
