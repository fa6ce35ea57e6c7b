"""Attention layers: grouped-query, sliding and chunked windows, multi-head latent attention."""

from dataclasses import dataclass, replace
from typing import Literal

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import AttentionCache, Shard, Weight, ceil_div

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Head counts and sizes of one kind of layer."""

    query: int
    kv: int
    size: int
    value_size: int
    gated_output: bool
    """The query projection has a second half that gates the output."""
    value_is_key: bool
    """The checkpoint has no value projection: keys serve as values (and are still cached twice)."""


def read_heads(config: ConfigReader, *, hidden_size: int) -> Heads:
    """The heads of an ordinary layer; the head size is the hidden size over the heads unless it is given."""
    query = config.integer("num_attention_heads", "n_head", "n_heads", "num_heads")
    default_kv = 1 if config.boolean("multi_query", default=False) else query
    kv = config.integer(
        "num_key_value_heads",
        "multi_query_group_num",
        "num_kv_heads",
        "n_head_kv",
        "num_query_groups",
        "num_attention_groups",
        default=default_kv,
    )
    if query % kv:
        raise config.error("num_key_value_heads", f"a divisor of the {query} attention heads is expected")
    size = config.integer("head_dim", "attention_head_dim", "kv_channels", default=0, minimum=0)
    if not size and config.has("kv_lora_rank"):
        size = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    if not size:
        if hidden_size % query:
            raise config.error("num_attention_heads", f"a divisor of hidden_size {hidden_size} is expected")
        size = hidden_size // query
    gated = config.boolean("attn_output_gate", default=False)
    value_size = config.integer("v_head_dim", default=size)
    return Heads(query=query, kv=kv, size=size, value_size=value_size, gated_output=gated, value_is_key=False)


def read_sliding_heads(config: ConfigReader, heads: Heads) -> Heads:
    """The heads of windowed layers, where a config gives them others than the full layers have."""
    other = config.nested("attention_other_setting")
    if other is not None and other.text("attention_type") == SLIDING:
        size = other.integer("head_dim", default=heads.size)
        return replace(
            heads,
            query=other.integer("num_attention_heads", default=heads.query),
            kv=other.integer("num_attention_groups", default=heads.kv),
            size=size,
            value_size=size,
        )
    size = config.integer("swa_head_dim", default=heads.size)
    return replace(
        heads,
        query=config.integer("swa_num_attention_heads", default=heads.query),
        kv=config.integer("swa_num_key_value_heads", default=heads.kv),
        size=size,
        value_size=config.integer(
            "swa_v_head_dim", default=size if config.has("swa_head_dim") else heads.value_size
        ),
    )


def read_full_heads(config: ConfigReader, heads: Heads) -> Heads:
    """The heads of full-attention layers where a config gives them other ones than the sliding layers have."""
    size = config.integer("global_head_dim", default=heads.size)
    return replace(
        heads,
        kv=config.integer("num_global_key_value_heads", default=heads.kv),
        size=size,
        value_size=size if config.has("global_head_dim") else heads.value_size,
        value_is_key=config.boolean("attention_k_eq_v", default=False),
    )


def attention_weights(prefix: str, heads: Heads, *, hidden_size: int) -> list[Weight]:
    """Projections of one grouped-query layer. Biases and norms of heads are left out: below 0.01 %."""
    query_rows = heads.query * heads.size * (2 if heads.gated_output else 1)

    def projection(name: str, rows: int, columns: int, shard: Shard) -> Weight:
        return Weight(
            module=f"{prefix}.{name}",
            rows=rows,
            columns=columns,
            shard=shard,
            heads=heads.kv if shard is Shard.HEADS else 1,
        )

    value = projection("v_proj", heads.kv * heads.value_size, hidden_size, Shard.HEADS)
    return [
        projection("q_proj", query_rows, hidden_size, Shard.TENSOR),
        projection("k_proj", heads.kv * heads.size, hidden_size, Shard.HEADS),
        # Where keys are values, the keys' projection is loaded into both slots (models/gemma4.py).
        replace(value, in_checkpoint=not heads.value_is_key),
        projection("o_proj", hidden_size, heads.query * heads.value_size, Shard.TENSOR),
    ]


def attention_cache(heads: Heads, layer_type: str, window: int) -> AttentionCache:
    """What one grouped-query layer keeps."""
    kinds: dict[str, Literal["full", "sliding", "chunked"]] = {SLIDING: "sliding", CHUNKED: "chunked"}
    kind = kinds.get(layer_type, "full") if window else "full"
    return AttentionCache(
        kind=kind,
        kv_heads=heads.kv,
        key_size=heads.size,
        value_size=heads.value_size,
        window=window if kind != "full" else 0,
    )


def read_windows(config: ConfigReader, num_layers: int) -> tuple[list[str], int]:
    """Each layer's type and the window of the sliding or chunked ones.

    A config says it in one of five ways: `layer_types`; a period (`sliding_window_pattern`, every n-th layer is full)
    or letters (L local, G global, again and again); a chunk size with `no_rope_layers`; or `sliding_window` alone,
    which holds for all layers, or for every other one where logits are soft-capped (the one family that alternates
    without saying so).
    """
    window = config.integer("sliding_window", default=0, minimum=0)
    if not config.boolean("use_sliding_window", default=True):
        window = 0
    chunk = config.integer("attention_chunk_size", default=0, minimum=0)
    types = [str(each) for each in config.sequence("layer_types")]
    if types:
        if len(types) != num_layers:
            raise config.error("layer_types", f"one entry for each of the {num_layers} layers is expected")
        return types, chunk if CHUNKED in types else window
    if chunk:
        flags = config.sequence("no_rope_layers")
        local = [
            bool(flags[index]) if index < len(flags) else (index + 1) % 4 != 0 for index in range(num_layers)
        ]
        return [CHUNKED if each else FULL for each in local], chunk
    if not window:
        return [FULL] * num_layers, 0
    letters = config.values.get("sliding_window_pattern")
    if isinstance(letters, str) and letters and not set(letters) - {"L", "G"}:
        return [
            FULL if letters[index % len(letters)] == "G" else SLIDING for index in range(num_layers)
        ], window
    period = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=0, minimum=0)
    if not period and config.has("attn_logit_softcapping"):
        period = 2
    if not period:
        return [SLIDING] * num_layers, window
    return [FULL if (index + 1) % period == 0 else SLIDING for index in range(num_layers)], window


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2 and its descendants)."""

    query: int
    query_rank: int
    """0: queries are projected directly."""
    kv_rank: int
    rotary_size: int
    plain_size: int
    value_size: int
    index_size: int
    """Size of the sparse indexer's one head; 0 where there is none."""
    index_heads: int


def read_latent(config: ConfigReader) -> Latent:
    """The sizes of latent attention."""
    return Latent(
        query=config.integer("num_attention_heads"),
        query_rank=config.integer("q_lora_rank", default=0, minimum=0),
        kv_rank=config.integer("kv_lora_rank"),
        rotary_size=config.integer("qk_rope_head_dim"),
        plain_size=config.integer("qk_nope_head_dim"),
        value_size=config.integer("v_head_dim"),
        index_size=config.integer("index_head_dim", default=0, minimum=0),
        index_heads=config.integer("index_n_heads", default=0, minimum=0),
    )


def latent_weights(prefix: str, latent: Latent, *, hidden_size: int) -> list[Weight]:
    """Projections of one latent layer: the down-projections are whole on every rank (mla_attention.py)."""

    def projection(name: str, rows: int, columns: int, shard: Shard) -> Weight:
        return Weight(module=f"{prefix}.{name}", rows=rows, columns=columns, shard=shard)

    query_rows = latent.query * (latent.plain_size + latent.rotary_size)
    up_rows = latent.query * (latent.plain_size + latent.value_size)
    weights = [
        projection("kv_a_proj_with_mqa", latent.kv_rank + latent.rotary_size, hidden_size, Shard.REPLICATED),
        projection("kv_b_proj", up_rows, latent.kv_rank, Shard.TENSOR),
        # vLLM keeps the up-projection once more, split for the absorbed decode path, in the model's dtype.
        Weight(
            module=f"{prefix}.kv_b_absorbed",
            rows=up_rows,
            columns=latent.kv_rank,
            shard=Shard.TENSOR,
            linear=False,
            in_checkpoint=False,
        ),
        projection("o_proj", hidden_size, latent.query * latent.value_size, Shard.TENSOR),
    ]
    if latent.query_rank:
        weights += [
            projection("q_a_proj", latent.query_rank, hidden_size, Shard.REPLICATED),
            projection("q_b_proj", query_rows, latent.query_rank, Shard.TENSOR),
        ]
    else:
        weights.append(projection("q_proj", query_rows, hidden_size, Shard.TENSOR))
    if latent.index_size:
        index_rows = latent.index_heads * latent.index_size
        weights += [
            projection("indexer.wq_b", index_rows, latent.query_rank or hidden_size, Shard.REPLICATED),
            projection("indexer.wk", latent.index_size, hidden_size, Shard.REPLICATED),
        ]
    return weights


_SCALED_ELEMENTS = 128
"""Elements of a latent or of an indexer's key that share a float32 scale."""


def latent_caches(latent: Latent) -> list[AttentionCache]:
    """What one latent layer keeps: the latent and the rotary part once for all heads, and the indexer's keys.

    An indexer's keys are FP8 with a scale for each 128. Beside one, an FP8 latent is packed with its scales and a
    16-bit rotary part: 656 B of 512 and 64 (deepseek_v2.py, mla_attention.py of 0.26).
    """
    packed = latent.kv_rank + latent.kv_rank // _SCALED_ELEMENTS * 4 + 2 * latent.rotary_size
    caches = [
        AttentionCache(
            kind="latent",
            kv_heads=1,
            key_size=latent.kv_rank + latent.rotary_size,
            value_size=0,
            packed_fp8_bytes=packed if latent.index_size else 0,
        ),
    ]
    if latent.index_size:
        size = latent.index_size
        caches.append(
            AttentionCache(
                kind="latent",
                kv_heads=1,
                key_size=size,
                value_size=0,
                token_bytes=size + ceil_div(size, _SCALED_ELEMENTS) * 4,
            )
        )
    return caches
