"""Attention over compressed keys beside a sliding window (DeepSeek-V4): what a layer weighs and what it keeps.

Each layer keeps one latent per token for a window. A layer with a compression ratio keeps one entry for so many tokens
as well, and the state of the entry that is being made; at a ratio of 4 an indexer with keys and states of its own picks
entries. Read in vLLM 0.22 and 0.28 (models/deepseek_v4: attention.py, compressor.py, nvidia/model.py).
"""

from dataclasses import dataclass

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import AttentionCache, LayerCache, Shard, Weight

PREFIX = "compressed_"
"""Layer types are this and the ratio; 0: a window alone."""
INDEXED_RATIO = 4
"""Entries overlap at this ratio, and an indexer picks some of them."""
_STATE_BLOCKS = {INDEXED_RATIO: 4, 128: 8}
"""Ratio → tokens of a block of states."""
_WINDOW_BLOCK = 64
_SCALED_ELEMENTS, _INDEX_SCALED_ELEMENTS = 64, 128
_FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Sizes of all layers."""

    heads: int
    head_size: int
    rotary_size: int
    query_rank: int
    output_rank: int
    output_groups: int
    index_heads: int
    index_size: int
    window: int
    streams: int
    """Copies of the residual that layers mix (hyper-connections)."""


def compressed_types(text: ConfigReader, num_layers: int) -> list[str]:
    """Each layer's type. Entries beyond the layers are those of multi-token prediction."""
    ratios = text.sequence("compress_ratios")
    known = {0, 1, *_STATE_BLOCKS}
    if len(ratios) < num_layers or any(isinstance(each, bool) or each not in known for each in ratios):
        raise text.error("compress_ratios", f"0, 1, 4 or 128 for each of the {num_layers} layers is expected")
    return [f"{PREFIX}{0 if each == 1 else each}" for each in ratios[:num_layers]]


def read_compressed(text: ConfigReader) -> CompressedAttention:
    """The sizes, by the fields of DeepSeek-V4."""
    found = CompressedAttention(
        heads=text.integer("num_attention_heads"),
        head_size=text.integer("head_dim"),
        rotary_size=text.integer("qk_rope_head_dim"),
        query_rank=text.integer("q_lora_rank"),
        output_rank=text.integer("o_lora_rank"),
        output_groups=text.integer("o_groups"),
        index_heads=text.integer("index_n_heads"),
        index_size=text.integer("index_head_dim"),
        window=text.integer("sliding_window"),
        streams=text.integer("hc_mult", default=1),
    )
    if found.heads % found.output_groups:
        raise text.error("o_groups", f"a divisor of the {found.heads} attention heads is expected")
    if found.rotary_size > found.head_size:
        raise text.error("qk_rope_head_dim", f"at most the {found.head_size} of head_dim is expected")
    return found


def compressed_weights(
    layer: str, ratio: int, shape: CompressedAttention, *, hidden_size: int
) -> list[Weight]:
    """One layer's attention, and what mixes its residuals."""
    prefix = f"{layer}.self_attn"

    def projection(
        name: str, rows: int, columns: int, shard: Shard = Shard.REPLICATED, *, linear: bool = True
    ) -> Weight:
        return Weight(module=f"{prefix}.{name}", rows=rows, columns=columns, shard=shard, linear=linear)

    width = shape.heads * shape.head_size
    low = shape.output_groups * shape.output_rank
    weights = [
        projection("q_a_proj", shape.query_rank, hidden_size),
        projection("kv_a_proj_with_mqa", shape.head_size, hidden_size),
        projection("q_b_proj", width, shape.query_rank, Shard.TENSOR),
        projection("o_a_proj", low, width // shape.output_groups, Shard.TENSOR),
        projection("o_b_proj", hidden_size, low, Shard.TENSOR),
    ]
    if ratio:
        weights += _compressor(f"{prefix}.compressor", ratio, shape.head_size, hidden_size)
    if ratio == INDEXED_RATIO:
        weights += [
            projection("indexer.wq_b", shape.index_heads * shape.index_size, shape.query_rank),
            projection("indexer.weights_proj", shape.index_heads, hidden_size, linear=False),
            *_compressor(f"{prefix}.indexer.compressor", ratio, shape.index_size, hidden_size),
        ]
    if shape.streams > 1:
        mixes = (2 + shape.streams) * shape.streams
        weights += [
            _float32(f"{layer}.{name}", mixes, shape.streams * hidden_size)
            for name in ("hc_attn_fn", "hc_ffn_fn")
        ]
    return weights


def _compressor(prefix: str, ratio: int, size: int, hidden_size: int) -> list[Weight]:
    """Keys' and gates' projections in the model's dtype, and the positions' biases."""
    width = _overlap(ratio) * size
    return [
        Weight(
            module=f"{prefix}.wkv_wgate", rows=2 * width, columns=hidden_size, shard=Shard.REPLICATED, linear=False
        ),
        _float32(f"{prefix}.ape", ratio, width),
    ]  # fmt: skip


def _float32(module: str, rows: int, columns: int) -> Weight:
    return Weight(
        module=module, rows=rows, columns=columns, shard=Shard.REPLICATED, linear=False, element_bytes=_FLOAT32
    )  # fmt: skip


def _overlap(ratio: int) -> int:
    return 2 if ratio == INDEXED_RATIO else 1


def compressed_caches(ratio: int, shape: CompressedAttention) -> list[LayerCache]:
    """What one layer keeps: the window's latents, and with a ratio entries and states.

    A latent is FP8 with 16 bits for the rotary part and a byte for each 64 elements and one more: 584 B of 512 with 64
    rotated ones. A state is a float32 for each key and gate.
    """
    size = shape.head_size
    plain = size - shape.rotary_size
    entry = plain + 2 * shape.rotary_size + plain // _SCALED_ELEMENTS + 1
    caches: list[LayerCache] = [_windowed(size, entry, shape.window, _WINDOW_BLOCK)]
    if not ratio:
        return caches
    overlap = _overlap(ratio)

    def states(width: int) -> AttentionCache:
        return _windowed(width, 2 * overlap * width * _FLOAT32, overlap * ratio, _STATE_BLOCKS[ratio])

    caches += [_entries(size, entry, ratio), states(size)]
    if ratio == INDEXED_RATIO:
        index = shape.index_size
        scales = max(1, index // _INDEX_SCALED_ELEMENTS) * _FLOAT32
        caches += [_entries(index, index + scales, ratio), states(index)]
    return caches


def _entries(size: int, entry_bytes: int, ratio: int) -> AttentionCache:
    return AttentionCache(
        kind="latent", kv_heads=1, key_size=size, value_size=0, token_bytes=entry_bytes, compress_ratio=ratio
    )  # fmt: skip


def _windowed(size: int, token_bytes: int, window: int, block: int) -> AttentionCache:
    return AttentionCache(
        kind="sliding", kv_heads=1, key_size=size, value_size=0, window=window, token_bytes=token_bytes,
        block_tokens=block,
    )  # fmt: skip


def hashed_weights(text: ConfigReader, *, vocab_size: int) -> list[Weight]:
    """The first layers route by a table of tokens instead of a router's scores."""
    layers = text.integer("num_hash_layers", default=0, minimum=0)
    chosen = text.integer("num_experts_per_tok", default=1)
    return [_float32(f"layers.{index}.mlp.tid2eid", vocab_size, chosen) for index in range(layers)]
