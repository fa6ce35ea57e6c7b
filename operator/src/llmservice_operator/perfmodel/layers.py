"""The layers of a model: what mixes tokens in each of them, and the feed-forward that follows."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.attention import (
    CHUNKED,
    FULL,
    SLIDING,
    attention_cache,
    attention_weights,
    latent_caches,
    latent_weights,
    read_full_heads,
    read_heads,
    read_latent,
    read_sliding_heads,
    read_windows,
)
from llmservice_operator.perfmodel.compressed_attention import (
    PREFIX,
    compressed_caches,
    compressed_types,
    compressed_weights,
    read_compressed,
)
from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.feed_forward import (
    FeedForward,
    dense_weights,
    expert_weights,
    sparse_layers,
)
from llmservice_operator.perfmodel.linear_attention import (
    kimi_cache,
    kimi_weights,
    lightning_cache,
    lightning_weights,
    read_kimi_delta,
    read_lightning,
)
from llmservice_operator.perfmodel.shapes import LayerCache, Weight
from llmservice_operator.perfmodel.short_conv import conv_cache, conv_weights
from llmservice_operator.perfmodel.state_layers import (
    delta_cache,
    delta_weights,
    mamba_cache,
    mamba_weights,
    read_delta_network,
    read_mamba,
)

LINEAR, MAMBA, KIMI_DELTA, LIGHTNING, PARALLEL = (
    "linear_attention",
    "mamba",
    "kimi_delta",
    "lightning",
    "parallel",
)
_PLAIN, CONV = "attention", "conv"
_KNOWN = frozenset({FULL, SLIDING, CHUNKED, LINEAR, MAMBA, CONV, _PLAIN})
"""What `layer_types` may say; the other kinds are told by other fields."""
_WORDS = (
    (SLIDING, "sliding window"), (CHUNKED, "chunked attention"), (LINEAR, "linear attention"), (MAMBA, "Mamba"),
    (CONV, "short convolutions"), ("compressed_0", "sliding window alone"),
    ("compressed_4", "keys compressed to a quarter"),
    ("compressed_128", "keys compressed to a 128th"),
    (KIMI_DELTA, "linear attention"), (LIGHTNING, "lightning attention"), (PARALLEL, "Mamba beside attention"),
)  # fmt: skip
_LETTERS = {"M": "mamba", "E": "experts", "*": "attention", "-": "dense"}
_LISTS = frozenset(
    {
        "compress_ratios",
        "layer_types",
        "no_rope_layers",
        "moe_layer_freq",
        "hybrid_layer_pattern",
        "attn_type_list",
        "mlp_layer_types",
    }
)
"""Lists with one entry a layer that are read."""
_NO_SHAPES = re.compile(r"rope|rotary|theta|swiglu|scal|multiplier|dropout|norm|yarn|bias")

Mixer = Callable[[str], tuple[list[Weight], list[LayerCache]]]
"""Prefix of a layer → what its token mixer weighs and keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Weights and caches of all layers, and the kind of model in words."""

    weights: list[Weight]
    caches: list[LayerCache]
    kind: str


def read_layers(text: ConfigReader, block: FeedForward, *, hidden_size: int, num_layers: int) -> Layers:
    """All layers of this model. Raises ConfigError with the strange field."""
    if text.has("hybrid_override_pattern"):
        return _pattern_layers(text, block, hidden_size=hidden_size, num_layers=num_layers)
    _refuse_unread_lists(text, num_layers)
    types, window = layer_types(text, num_layers)
    mixers = {each: _mixer(each, text, window, hidden_size=hidden_size) for each in dict.fromkeys(types)}
    sparse = sparse_layers(text, num_layers) if block.mixture else [False] * num_layers
    # The last layers use the keys and values of earlier ones (models/gemma4.py).
    own = num_layers - text.integer("num_kv_shared_layers", default=0, minimum=0)
    if own < 1:
        raise text.error("num_kv_shared_layers", f"fewer than the {num_layers} layers is expected")
    doubled = replace(block, dense_size=2 * block.dense_size)
    wide = text.boolean("use_double_wide_mlp", default=False)
    weights: list[Weight] = []
    caches: list[LayerCache] = []
    for index, layer_type in enumerate(types):
        mixed, kept = mixers[layer_type](f"layers.{index}")
        weights += mixed
        caches += kept if index < own else []
        shape = doubled if wide and 0 < own <= index else block
        weights += _feed_forward(index, shape, sparse=sparse[index], hidden_size=hidden_size)
    return Layers(
        weights=weights, caches=caches, kind=_in_words(types, block, latent=text.has("kv_lora_rank"))
    )


def layer_types(text: ConfigReader, num_layers: int) -> tuple[list[str], int]:
    """Each layer's type, and the window of those that have one."""
    if text.has("compress_ratios"):
        return compressed_types(text, num_layers), 0
    if text.has("mamba_d_ssm"):
        return [PARALLEL] * num_layers, 0
    if (special := text.nested("linear_attn_config")) is not None:
        full = _indices(special, "full_attn_layers", num_layers, first=1)
        return [FULL if index in full else KIMI_DELTA for index in range(num_layers)], 0
    if text.has("full_attn_idxs") and not text.has("layer_types"):
        full = _indices(text, "full_attn_idxs", num_layers, first=0)
        return [FULL if index in full else CONV for index in range(num_layers)], 0
    if text.has("attn_layer_indices"):
        full = _indices(text, "attn_layer_indices", num_layers, first=0)
        return [FULL if index in full else MAMBA for index in range(num_layers)], 0
    if (flags := _flags(text, "attn_type_list", num_layers)) is not None:
        return [FULL if each else LIGHTNING for each in flags], 0
    if (flags := _flags(text, "hybrid_layer_pattern", num_layers)) is not None:
        return [SLIDING if each else FULL for each in flags], text.integer("sliding_window")
    interval = text.integer("full_attention_interval", default=0, minimum=0)
    if interval and not text.has("layer_types"):
        return [FULL if (index + 1) % interval == 0 else LINEAR for index in range(num_layers)], 0
    types, window = read_windows(text, num_layers)
    if unknown := set(types) - _KNOWN:
        raise text.error("layer_types", f"the layer type {min(unknown)!r} is not known to the sizing model")
    return types, window


def _indices(text: ConfigReader, field: str, num_layers: int, *, first: int) -> set[int]:
    """Layers that a list names, counted from 0."""
    found = {each - first for each in text.sequence(field) if isinstance(each, int)}
    if not found or not found <= set(range(num_layers)):
        raise text.error(field, f"numbers of some of the {num_layers} layers are expected")
    return found


def _flags(text: ConfigReader, field: str, num_layers: int) -> list[bool] | None:
    """One 0 or 1 for each layer; None where the field isn't there."""
    if not text.has(field):
        return None
    flags = text.sequence(field)
    if len(flags) != num_layers or any(each not in (0, 1) for each in flags):
        raise text.error(field, f"a 0 or 1 for each of the {num_layers} layers is expected")
    return [bool(each) for each in flags]


def _refuse_unread_lists(text: ConfigReader, num_layers: int) -> None:
    """A list with one entry a layer that nothing reads: layers differ in a way that isn't known."""
    for key, value in text.values.items():
        if not isinstance(value, list) or len(value) != num_layers or num_layers < 4 or key in _LISTS:
            continue
        plain = all(isinstance(each, int | str) for each in value)
        if plain and value.count(value[0]) != num_layers and not _NO_SHAPES.search(key):
            raise text.error(key, "layers that differ by this field are not known to the sizing model")


def _mixer(layer_type: str, text: ConfigReader, window: int, *, hidden_size: int) -> Mixer:
    """What layers of this type are made of."""
    if layer_type.startswith(PREFIX):
        shape, ratio = read_compressed(text), int(layer_type.removeprefix(PREFIX))
        return lambda prefix: (
            compressed_weights(prefix, ratio, shape, hidden_size=hidden_size),
            compressed_caches(ratio, shape),
        )
    if layer_type == LINEAR:
        delta = read_delta_network(text)
        return lambda prefix: (
            delta_weights(f"{prefix}.linear_attn", delta, hidden_size=hidden_size),
            [delta_cache(delta)],
        )
    if layer_type == KIMI_DELTA:
        kimi = read_kimi_delta(text)
        return lambda prefix: (
            kimi_weights(f"{prefix}.self_attn", kimi, hidden_size=hidden_size),
            [kimi_cache(kimi)],
        )
    if layer_type == LIGHTNING:
        lightning = read_lightning(text, hidden_size=hidden_size)
        return lambda prefix: (
            lightning_weights(f"{prefix}.self_attn", lightning, hidden_size=hidden_size),
            [lightning_cache(lightning)],
        )
    if layer_type == CONV:
        kernel = text.integer("conv_L_cache")
        return lambda prefix: (
            conv_weights(f"{prefix}.conv", kernel, hidden_size=hidden_size),
            [conv_cache(kernel, hidden_size=hidden_size)],
        )
    if layer_type == MAMBA:
        mamba = read_mamba(text)
        return lambda prefix: (
            mamba_weights(f"{prefix}.mamba", mamba, hidden_size=hidden_size),
            [mamba_cache(mamba)],
        )
    attention = _attention(layer_type, text, window, hidden_size=hidden_size)
    if layer_type != PARALLEL:
        return attention
    beside = _mixer(MAMBA, text, window, hidden_size=hidden_size)

    def both(prefix: str) -> tuple[list[Weight], list[LayerCache]]:
        weights, caches = attention(prefix)
        more, states = beside(prefix)
        return weights + more, caches + states

    return both


def _attention(layer_type: str, text: ConfigReader, window: int, *, hidden_size: int) -> Mixer:
    """Attention of some kind: latent where there is a latent, over a window where the type says so."""
    if text.has("kv_lora_rank"):
        latent = read_latent(text)
        return lambda prefix: (
            latent_weights(f"{prefix}.self_attn", latent, hidden_size=hidden_size),
            list(latent_caches(latent)),
        )
    plain = read_heads(text, hidden_size=hidden_size)
    windowed = layer_type in {SLIDING, CHUNKED}
    heads = read_sliding_heads(text, plain) if windowed else read_full_heads(text, plain)
    return lambda prefix: (
        attention_weights(f"{prefix}.self_attn", heads, hidden_size=hidden_size),
        [attention_cache(heads, layer_type, window)],
    )


def _feed_forward(index: int, block: FeedForward, *, sparse: bool, hidden_size: int) -> list[Weight]:
    prefix = f"layers.{index}.mlp"
    weights: list[Weight] = []
    if sparse:
        weights += expert_weights(prefix, block, hidden_size=hidden_size)
    if not sparse or block.dense_beside_experts:
        weights += dense_weights(prefix, block.dense_size, gated=block.gated, hidden_size=hidden_size)
    return weights


def _in_words(types: list[str], block: FeedForward, *, latent: bool) -> str:
    words = ["latent attention"] if latent else []
    words += ["mixture of experts"] if block.mixture else [] if latent else ["dense"]
    for layer_type, word in _WORDS:
        if layer_type in types:
            words.append(f"{word} in {types.count(layer_type)} of {len(types)} layers")
    return ", ".join(words)


def _pattern_layers(text: ConfigReader, block: FeedForward, *, hidden_size: int, num_layers: int) -> Layers:
    """Layers that are one thing each, by a string: M Mamba, * attention, E experts, - dense feed-forward."""
    pattern = text.text("hybrid_override_pattern")
    if len(pattern) != num_layers or set(pattern) - set(_LETTERS):
        raise text.error("hybrid_override_pattern", f"{num_layers} letters out of M, *, E and - are expected")
    mamba = read_mamba(text)
    heads = read_heads(text, hidden_size=hidden_size)
    weights: list[Weight] = []
    caches: list[LayerCache] = []
    for index, letter in enumerate(pattern):
        prefix = f"layers.{index}.mixer"
        if letter == "M":
            weights += mamba_weights(prefix, mamba, hidden_size=hidden_size)
            caches.append(mamba_cache(mamba))
        elif letter == "*":
            weights += attention_weights(prefix, heads, hidden_size=hidden_size)
            caches.append(attention_cache(heads, FULL, 0))
        elif letter == "E":
            weights += expert_weights(prefix, block, hidden_size=hidden_size)
        else:
            weights += dense_weights(prefix, block.dense_size, gated=block.gated, hidden_size=hidden_size)
    counted = (f"{_LETTERS[each]} in {pattern.count(each)} layers" for each in sorted(set(pattern)))
    return Layers(weights=weights, caches=caches, kind=", ".join(counted))
