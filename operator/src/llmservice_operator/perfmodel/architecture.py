"""config.json → shapes. Decided by fields alone, never by a model's name.

A config with a field that changes shapes in a way this module doesn't know is refused with that field; it is
better to say so than to plan nonsense.
"""

from collections.abc import Mapping
from typing import Any

from llmservice_operator.perfmodel.attention import read_full_heads, read_heads
from llmservice_operator.perfmodel.compressed_attention import hashed_weights
from llmservice_operator.perfmodel.config_reader import (
    LARGEST_DIMENSION,
    MAX_LAYERS,
    ConfigError,
    ConfigReader,
)
from llmservice_operator.perfmodel.feed_forward import (
    FeedForward,
    normalises_by_root,
    read_feed_forward,
    sparse_layers,
)
from llmservice_operator.perfmodel.layers import read_layers
from llmservice_operator.perfmodel.per_layer import per_layer_weights
from llmservice_operator.perfmodel.rotary import rotary_weights
from llmservice_operator.perfmodel.shapes import (
    DTYPE_BYTES,
    Architecture,
    LayerCache,
    Shard,
    StateCache,
    Weight,
)
from llmservice_operator.perfmodel.vision import read_vision

UNKNOWN_FIELDS = {
    "hc_mult": "hyper-connections are not known to the sizing model",
    "o_lora_rank": "low-rank output projections are not known to the sizing model",
    "attn_layer_period": "interleaved Mamba-1 layers are not known to the sizing model",
    "layers_block_type": "layers listed by block type are not known to the sizing model",
    "block_configs": "layers of different sizes are not known to the sizing model",
    "rwkv_version": "RWKV is not known to the sizing model",
    "ffn_config": "a feed-forward in an object of its own is not known to the sizing model",
    "laurel_rank": "low-rank residuals are not known to the sizing model",
    "altup_num_inputs": "alternating updates are not known to the sizing model",
    "zero_expert_num": "experts that compute nothing are not known to the sizing model",
}
"""Fields that change shapes in ways that aren't modelled."""
_BESIDE_COMPRESSION = frozenset({"hc_mult", "o_lora_rank"})
"""Those of them that are known where `compress_ratios` is."""


class UnsupportedModelError(ConfigError):
    """A model that generates no text: embeddings, classifiers, encoders, encoder-decoders."""


def read_architecture(config: Mapping[str, Any]) -> Architecture:
    """The shapes of the model of this config.json.

    Raises ConfigError with the strange field, UnsupportedModelError for a model that isn't a text generator.
    """
    root = ConfigReader(config)
    name = _check_generates(root)
    text = _text_part(root)
    hidden_size = text.integer("hidden_size", "n_embd", "d_model")
    num_layers = _count_layers(text)
    vocab_size = text.integer("vocab_size", "padded_vocab_size")
    block = read_feed_forward(text, hidden_size=hidden_size)
    layers = read_layers(text, block, hidden_size=hidden_size, num_layers=num_layers)
    weights, caches = layers.weights, layers.caches
    weights += _embeddings(hidden_size, vocab_size, num_layers, tied=_is_tied(root, text))
    weights += per_layer_weights(text, hidden_size=hidden_size, num_layers=num_layers, vocab_size=vocab_size)
    weights += hashed_weights(text, vocab_size=vocab_size) if text.has("compress_ratios") else []
    _refuse_unread_states(text, caches)
    heads = read_heads(text, hidden_size=hidden_size)
    max_model_len = read_max_model_len(text)
    if not text.has("hybrid_override_pattern"):
        weights += rotary_weights(
            text,
            root=root,
            positions=max_model_len,
            head_size=heads.size,
            full_head_size=read_full_heads(text, heads).size,
        )
    return Architecture(
        name=name,
        kind=layers.kind,
        hidden_size=hidden_size,
        intermediate_size=_largest_dense(text, block, num_layers),
        gated=block.gated,
        num_layers=num_layers,
        num_attention_heads=heads.query,
        num_kv_heads=heads.kv,
        head_size=heads.size,
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        dtype=_dtype(root, text),
        caches=tuple(caches),
        weights=tuple(weights),
        mixture=block.mixture,
        vision=read_vision(root, hidden_size=hidden_size)
        if text is not root or root.has("vision_config")
        else None,
        num_mtp_layers=_mtp_layers(text),
    )


def _text_part(root: ConfigReader) -> ConfigReader:
    """The part on the language model, with no field in it that changes shapes in an unknown way."""
    keys = ("text_config", "llm_config", "language_config")
    text = next((part for key in keys if (part := root.nested(key))), root)
    for field, problem in UNKNOWN_FIELDS.items():
        if text.has(field) and not (text.has("compress_ratios") and field in _BESIDE_COMPRESSION):
            raise text.error(field, problem)
    return text


def _is_tied(root: ConfigReader, text: ConfigReader) -> bool:
    """Whether the head is the embedding."""
    default = text.boolean("tie_embedding", default=_tied_by_default(text))
    default = root.boolean("tie_word_embeddings", default=default)
    return text.boolean("tie_word_embeddings", default=default)


_OF_STATES = (
    "mamba_num_heads", "mamba_n_heads", "mamba_d_state", "mamba_expand", "ssm_state_size", "conv_L_cache",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
)  # fmt: skip


def _refuse_unread_states(text: ConfigReader, caches: list[LayerCache]) -> None:
    """A field of layers with states where no layer is known to be one: their shapes would be nonsense."""
    if any(isinstance(each, StateCache) for each in caches):
        return
    for field in _OF_STATES:
        if text.has(field):
            raise text.error(
                field, "no layer is known to use it; `layer_types` with one type a layer is expected"
            )


def _check_generates(root: ConfigReader) -> str:
    """The first architecture's name, if it generates text."""
    names = [str(each) for each in root.sequence("architectures")]
    name = names[0] if names else ""
    if root.boolean("is_encoder_decoder", default=False):
        raise UnsupportedModelError(
            "is_encoder_decoder", value=True, expected="only decoders are served; encoder-decoders are not"
        )
    if name and not name.endswith(
        (
            "ForCausalLM",
            "ForConditionalGeneration",
            "LMHeadModel",
            "ForVision2Seq",
            "ChatModel",
            "ChatGLMModel",
        )
    ):
        raise UnsupportedModelError(
            "architectures",
            names,
            "a text generator (…ForCausalLM, …ForConditionalGeneration) is expected; embedding, rerank "
            "and classifier models are not served",
        )
    return name or root.text("model_type", default="unnamed")


def _count_layers(text: ConfigReader) -> int:
    layers = text.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if layers > MAX_LAYERS:
        raise text.error("num_hidden_layers", f"at most {MAX_LAYERS} layers is expected")
    return layers


def _tied_by_default(text: ConfigReader) -> bool:
    """What transformers assumes when a config doesn't say: true where embeddings are scaled or norms are LayerNorm."""
    return text.has("final_logit_softcapping", "query_pre_attn_scalar") or not normalises_by_root(text)


def _mtp_layers(text: ConfigReader) -> int:
    return text.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", default=0, minimum=0
    )


def _largest_dense(text: ConfigReader, block: FeedForward, num_layers: int) -> int:
    dense = block.dense_size if _has_dense(text, block, num_layers) else 0
    return max(dense, block.shared_size)


def _has_dense(text: ConfigReader, block: FeedForward, num_layers: int) -> bool:
    return block.mixture is None or block.dense_beside_experts or not all(sparse_layers(text, num_layers))


def _embeddings(hidden_size: int, vocab_size: int, num_layers: int, *, tied: bool) -> list[Weight]:
    names = ("embed_tokens",) if tied else ("embed_tokens", "lm_head")
    weights = [
        Weight(
            module=name,
            rows=vocab_size,
            columns=hidden_size,
            shard=Shard.VOCABULARY,
            linear=name == "lm_head",
        )
        for name in names
    ]
    norms = 2 * num_layers + 1
    weights.append(
        Weight(module="norms", rows=norms, columns=hidden_size, shard=Shard.REPLICATED, linear=False)
    )
    return weights


def read_max_model_len(text: ConfigReader) -> int:
    """The longest context that vLLM derives (config/model.py): YaRN multiplies the original length."""
    longest = text.integer(
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
        "model_max_length",
    )
    scaling = text.nested("rope_scaling") or text.nested("rope_parameters")
    if scaling is None or scaling.text("rope_type", "type") != "yarn":
        return longest
    original = scaling.integer("original_max_position_embeddings", default=longest)
    stretched = original * scaling.number("factor", 1.0)
    if stretched >= LARGEST_DIMENSION:
        raise scaling.error("factor", f"it makes a context of {stretched:.3g} tokens; below 2^31 is expected")
    return max(longest, int(stretched))


def _dtype(root: ConfigReader, text: ConfigReader) -> str:
    """The checkpoint's dtype. vLLM's `auto` runs float32 checkpoints in float16 or bfloat16 (config/model.py)."""
    dtype = text.text("torch_dtype", "dtype", default=root.text("torch_dtype", "dtype", default="bfloat16"))
    dtype = dtype.removeprefix("torch.")
    if dtype not in DTYPE_BYTES:
        raise text.error("torch_dtype", "one of " + ", ".join(sorted(DTYPE_BYTES)) + " is expected")
    return dtype
