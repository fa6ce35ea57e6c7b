"""What a model is made of, as far as memory is concerned: weights, caches and how they shard."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

DTYPE_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
"""Bytes of one element by the names that configs and vLLM's --dtype use."""

VOCAB_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this (layers/vocab_parallel_embedding.py)."""


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


_UNITS = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj",
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz", "in_proj_b": "in_proj_ba", "in_proj_a": "in_proj_ba",
    "q_a_proj": "fused_qkv_a_proj", "kv_a_proj_with_mqa": "fused_qkv_a_proj",
}  # fmt: skip


class Shard(Enum):
    """How vLLM spreads a weight over tensor-parallel ranks."""

    TENSOR = "tensor"
    """Column- or row-parallel: an equal share on each rank."""
    HEADS = "heads"
    """By KV heads; a head is replicated when there are fewer heads than ranks (layers/linear.py)."""
    VOCABULARY = "vocabulary"
    """By rows of the padded vocabulary."""
    REPLICATED = "replicated"
    """Whole on each rank: norms, routers, MLA's down-projections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight matrix, or as many of one shape as there are experts."""

    module: str
    """Name within the language model, such as `layers.3.self_attn.q_proj`: quantisation excludes by name."""
    rows: int
    """Output features."""
    columns: int
    """Input features; 1 for a vector."""
    shard: Shard
    copies: int = 1
    """How many of this shape: experts."""
    heads: int = 1
    """KV heads that the rows are made of, for Shard.HEADS."""
    linear: bool = True
    """Whether a quantisation method for linear layers applies at all (not to norms, embeddings, routers)."""
    expert: bool = False
    """Whether it is a routed expert's: some formats quantise nothing else."""
    in_checkpoint: bool = True
    """False for what the engine makes by itself: tables of angles, copies."""
    element_bytes: int | None = None
    """Where it isn't the model's dtype."""

    @property
    def unit(self) -> str:
        """The one tensor that the engine makes of this weight and its neighbours (`packed_modules_mapping`)."""
        prefix, _, name = self.module.rpartition(".")
        return f"{prefix}.{_UNITS.get(name, name)}"

    def elements(self, tensor_parallel_size: int) -> int:
        """Elements on one rank."""
        whole = self.rows * self.columns * self.copies
        match self.shard:
            case Shard.REPLICATED:
                return whole
            case Shard.TENSOR:
                return ceil_div(whole, tensor_parallel_size)
            case Shard.HEADS:
                return whole * max(1, self.heads // tensor_parallel_size) // self.heads
            case Shard.VOCABULARY:
                padded = ceil_div(self.rows, VOCAB_PADDING) * VOCAB_PADDING
                return ceil_div(padded, tensor_parallel_size) * self.columns


def _grouped(weights: tuple[Weight, ...]) -> tuple[tuple[Weight, ...], ...]:
    found: dict[str, list[Weight]] = {}
    for each in weights:
        found.setdefault(each.unit, []).append(each)
    return tuple(tuple(each) for each in found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCache:
    """What one attention layer keeps per token."""

    kind: Literal["full", "sliding", "chunked", "latent"]
    kv_heads: int
    key_size: int
    """Elements of one key head; for `latent` the latent and the rotary part together."""
    value_size: int
    """Elements of one value head; 0 for `latent`."""
    window: int = 0
    """Tokens that stay visible, for `sliding` and `chunked`."""
    token_bytes: int = 0
    """Bytes of a token whatever the cache's dtype (an indexer's keys and scales); 0: by dtype."""
    packed_fp8_bytes: int = 0
    """Bytes of a token in the packed FP8 format that the layer's kernels want; 0: they take plain FP8."""
    compress_ratio: int = 1
    """Tokens that share one entry; `token_bytes` are the entry's."""
    block_tokens: int = 0
    """Tokens of a block, where the layer has its own size whatever the engine's; 0: the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCache:
    """What one linear-attention or Mamba layer keeps per request, whatever its length."""

    conv_elements: int
    state_elements: int
    state_dtype: str
    """`float32`, ...; empty: the model's."""


LayerCache = AttentionCache | StateCache


@dataclass(frozen=True, kw_only=True)
class VisionTower:
    """The encoder of a multimodal model."""

    hidden_size: int
    intermediate_size: int
    merged_patches: int
    """Patches that become one token of the language model."""
    weights: tuple[Weight, ...]
    patch_elements: int = 588
    """Values of a patch: colours x pixels x frames."""
    output_levels: int = 1
    """How many times the language model's width one token of the encoder's output has (deep stack)."""
    takes_videos: bool = False
    """Its patches reach over several frames."""

    @cached_property
    def units(self) -> tuple[tuple[Weight, ...], ...]:
        """The weights by the tensors that the engine makes of them."""
        return _grouped(self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Routed experts."""

    experts: int
    experts_per_token: int
    intermediate_size: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Shapes of one model, read from its config.json."""

    name: str
    """`architectures[0]`, for messages; no size depends on it."""
    kind: str
    """In words: `dense`, `mixture of experts`, ..."""
    hidden_size: int
    intermediate_size: int
    """The largest dense feed-forward of a layer (shared experts count); 0 where there is none."""
    gated: bool
    """Whether the feed-forward has a gate beside its up-projection."""
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_model_len: int
    """The longest context that the config allows, RoPE scaling included."""
    dtype: str
    caches: tuple[LayerCache, ...]
    """One entry for each layer that keeps something."""
    weights: tuple[Weight, ...]
    mixture: Mixture | None
    vision: VisionTower | None
    num_mtp_layers: int
    """Multi-token-prediction layers: in the checkpoint, not loaded unless speculation asks for them."""

    @cached_property
    def units(self) -> tuple[tuple[Weight, ...], ...]:
        """The weights by the tensors that the engine makes of them, the encoder's apart."""
        return _grouped(self.weights)

    @cached_property
    def weight_kinds(self) -> Mapping[str, Weight]:
        """The first weight of each name, without the layer's number: `self_attn.o_proj`, `lm_head`."""
        found: dict[str, Weight] = {}
        for each in self.weights:
            prefix, _, rest = each.module.partition(".")
            name = rest.partition(".")[2] if prefix == "layers" else each.module
            found.setdefault(name, each)
        return found

    @property
    def has_state(self) -> bool:
        """Whether some layer keeps a state per request (linear attention, Mamba)."""
        return any(isinstance(cache, StateCache) for cache in self.caches)
