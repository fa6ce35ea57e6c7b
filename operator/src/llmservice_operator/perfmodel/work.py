"""What one step of a model asks of one rank: weights read, multiply-adds, cache read, kernels, collectives.

Counts only, from shapes: no accelerator and no time. Elements are matrix entries; a token costs two floating-point
operations for each (one multiply, one add).
"""

from collections import Counter
from dataclasses import dataclass

from llmservice_operator.perfmodel.kv_cache import element_bytes
from llmservice_operator.perfmodel.memo import remembered
from llmservice_operator.perfmodel.quantization import Quantization, weight_bytes
from llmservice_operator.perfmodel.shapes import (
    DTYPE_BYTES,
    Architecture,
    AttentionCache,
    Mixture,
    StateCache,
    Weight,
    ceil_div,
)

_NARROW_FORMATS = frozenset({"FP8", "INT8", "MXFP8"})
"""Weights whose matrix products run on 8-bit units; narrower ones are widened to 16 bits first (weight-only)."""

# Kernels of one block as torch.compile leaves them, norms fused with the residual (counted in vLLM's model code).
ATTENTION_KERNELS = 6
"""Norm, QKV product, rotary and head norms, cache write, attention, output product."""
LATENT_KERNELS = 10
"""The same with two-step projections and the absorbed products around the kernel."""
STATE_KERNELS = 9
"""Norm, two input products, convolution, gates, recurrence (two), gated norm, output product."""
DENSE_KERNELS = 4
"""Norm, gate and up product, activation, down product."""
EXPERT_KERNELS = 9
"""Norm, router, top-k, two to sort rows by expert, product, activation, product, weighted sum."""
MXFP4_ROUTING_KERNELS = 6
"""More for MXFP4 experts, whose kernels want the routing as bit matrices, histograms and offsets."""
SHARED_KERNELS = 3
"""Product, activation, product of the shared expert."""
SCALING_KERNELS_PER_PRODUCT = 1
"""Products with a scale for each block of weights scale and round their input first, in groups. With one scale for a
matrix that is fused into the kernel before (vLLM's compilation passes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Matrix products that every token passes (or, for experts, a share of them)."""

    bytes_read: float = 0.0
    wide_elements: float = 0.0
    """Multiplied at the rate of 16-bit units."""
    narrow_elements: float = 0.0
    """Multiplied at the rate of 8-bit units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """Layers of one kind of attention, on one rank."""

    layers: int
    window: int
    """Tokens that stay visible; 0: all."""
    prefill_flops_per_pair: float
    """Of one layer, for each (query token, visible token)."""
    decode_flops_per_pair: float
    """The same where a latent is multiplied as it lies in the cache."""
    bytes_per_token: float
    """Of one layer's cache."""

    def visible_pairs(self, tokens: int, cached: int) -> float:
        """(query, visible token) pairs of a causal chunk that follows `cached` tokens."""
        if not self.window or cached + tokens <= self.window:
            return tokens * cached + tokens * (tokens + 1) / 2
        growing = min(tokens, max(0, self.window - cached))
        return growing * cached + growing * (growing + 1) / 2 + (tokens - growing) * self.window

    def visible(self, context: float) -> float:
        """Tokens that one more token sees after a context of this length."""
        return min(context, self.window) if self.window else context


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All of it for one rank."""

    dense: Products
    experts: Products
    """Of all experts; see `expected_experts`."""
    mixture: Mixture | None
    head: Products
    """The output head: rows of tokens that are sampled only."""
    attention: tuple[AttentionWork, ...]
    state_bytes: float
    """Of one sequence over all linear-attention and Mamba layers."""
    state_elements: float
    kernels: int
    """Launched one by one where no CUDA graph holds them."""
    pieces: int
    """Stretches between attention-like operators: a piecewise graph is replayed for each."""
    all_reduces: int
    """Sums over ranks of one step; 0 for one rank."""
    all_reduce_bytes_per_token: int
    vocab_size: int

    def expected_experts(self, tokens: int) -> float:
        """Share of the experts that some token of a batch is routed to: 1 - (1 - k/E)^tokens.

        Routing is taken as uniform and independent; skewed routing reads fewer.
        """
        if self.mixture is None:
            return 0.0
        return 1.0 - (1.0 - self.mixture.experts_per_token / self.mixture.experts) ** tokens


@remembered
def work_of(
    model: Architecture,
    quantization: Quantization,
    *,
    dtype: str,
    kv_cache_dtype: str,
    tensor_parallel_size: int,
) -> Work:
    """The work of one step of this model on one of its ranks."""
    dense: list[Weight] = []
    experts: list[Weight] = []
    for weight in model.weights:
        if weight.expert:
            experts.append(weight)
        elif weight.module.startswith("layers.") and _is_product(weight):
            dense.append(weight)
    head = [each for each in model.weights if each.module == "lm_head"] or [
        each for each in model.weights if each.module == "embed_tokens"
    ]

    def products(weights: list[Weight]) -> Products:
        return _products(weights, quantization, dtype, tensor_parallel_size)

    states = [each for each in model.caches if isinstance(each, StateCache)]
    blocks = _Blocks.of(dense, experts, quantization)
    return Work(
        dense=products(dense),
        experts=products(experts),
        mixture=model.mixture if experts else None,
        head=products(head),
        attention=_attention(model, kv_cache_dtype, dtype, tensor_parallel_size),
        state_bytes=sum(_state_bytes(each, dtype, tensor_parallel_size) for each in states),
        state_elements=sum(ceil_div(each.state_elements, tensor_parallel_size) for each in states),
        kernels=blocks.kernels,
        pieces=blocks.mixers + 1,
        # One for each row-parallel product, and one for the embedding's rows.
        all_reduces=blocks.row_parallel + 1 if tensor_parallel_size > 1 else 0,
        all_reduce_bytes_per_token=model.hidden_size * DTYPE_BYTES[dtype],
        vocab_size=model.vocab_size,
    )


def _is_product(weight: Weight) -> bool:
    """Linear layers and routers; not norms, convolutions, and the latent projection's second copy."""
    return weight.linear or weight.module.endswith(".gate")


def _products(weights: list[Weight], quantization: Quantization, dtype: str, ranks: int) -> Products:
    total_bytes = wide = narrow = 0.0
    for weight in weights:
        fmt = quantization.format_of(weight)
        elements = weight.elements(ranks)
        total_bytes += weight_bytes(weight, quantization, dtype=dtype, tensor_parallel_size=ranks)
        if fmt is not None and fmt.name in _NARROW_FORMATS:
            narrow += elements
        else:
            wide += elements
    return Products(bytes_read=total_bytes, wide_elements=wide, narrow_elements=narrow)


def _state_bytes(cache: StateCache, dtype: str, ranks: int) -> float:
    conv = ceil_div(cache.conv_elements, ranks) * DTYPE_BYTES[dtype]
    return conv + ceil_div(cache.state_elements, ranks) * DTYPE_BYTES.get(cache.state_dtype or dtype, 4)


def _attention(model: Architecture, kv_cache_dtype: str, dtype: str, ranks: int) -> tuple[AttentionWork, ...]:
    """Attention layers by kind, in the order in which they first occur."""
    columns = [
        each.columns for each in model.weights if each.module.endswith((".self_attn.o_proj", ".mixer.o_proj"))
    ]
    caches = [each for each in model.caches if isinstance(each, AttentionCache)]
    if not columns or not caches:
        return ()
    # A sparse indexer keeps its keys beside each layer's latent: more bytes, no layer of its own.
    per_layer = max(1, len(caches) // len(columns))
    kinds = Counter(
        (tuple(caches[index * per_layer : (index + 1) * per_layer]), width)
        for index, width in enumerate(columns)
        if index * per_layer < len(caches)
    )
    query_rows = max(
        (each.rows for each in model.weights if each.module.endswith((".q_b_proj", ".q_proj"))), default=0
    )
    return tuple(
        _attention_kind(
            model,
            kind,
            output_width=width,
            layers=layers,
            query_rows=query_rows,
            cache_element_bytes=element_bytes(kv_cache_dtype, dtype),
            ranks=ranks,
        )
        for (kind, width), layers in kinds.items()
    )


def _attention_kind(
    model: Architecture,
    caches: tuple[AttentionCache, ...],
    *,
    output_width: int,
    layers: int,
    query_rows: int,
    cache_element_bytes: float,
    ranks: int,
) -> AttentionWork:
    """Scores cost two operations for each element of a key, sums two for each of a value."""
    first = caches[0]
    width = output_width / ranks
    prefill = decode = 4.0 * width
    if first.kind == "latent":
        # Prefill expands the latent to full heads; decode multiplies it whole, as key and as value.
        prefill = 2.0 * (query_rows / ranks + width)
        heads = model.num_attention_heads / ranks
        decode = 4.0 * heads * first.key_size
    bytes_per_token = sum(
        (each.kv_heads if each.kind == "latent" else max(1, each.kv_heads // ranks))
        * (each.key_size + each.value_size)
        * cache_element_bytes
        for each in caches
    )
    return AttentionWork(
        layers=layers,
        window=first.window,
        prefill_flops_per_pair=prefill,
        decode_flops_per_pair=decode,
        bytes_per_token=bytes_per_token,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """Blocks of a model, told by the weights that they have."""

    kernels: int
    mixers: int
    """Attention, linear attention, Mamba: what graphs are split at."""
    row_parallel: int
    """Blocks whose output is summed over ranks."""

    @classmethod
    def of(cls, dense: list[Weight], experts: list[Weight], quantization: Quantization) -> "_Blocks":
        names = {each.module for each in dense}
        outputs = [name for name in names if name.endswith((".o_proj", ".out_proj"))]
        latent = sum(name.endswith(".kv_a_proj_with_mqa") for name in names)
        attention = sum(name.endswith(".o_proj") for name in names) - latent
        states = len(outputs) - latent - attention
        downs = [name for name in names if name.endswith(".down_proj")]
        shared = sum(name.endswith("shared_expert.down_proj") for name in downs)
        routed = [each for each in experts if each.module.endswith("down_proj")]
        mixtures = len(routed)
        mxfp4 = sum(getattr(quantization.format_of(each), "name", "") == "MXFP4" for each in routed)
        plain = len(downs) - shared
        # Gate and up, and query, key and value, are one product each.
        scaled = sum(
            _is_narrow(each, quantization) and not _joins_another(each.module) for each in dense + experts
        )
        return cls(
            kernels=latent * LATENT_KERNELS
            + attention * ATTENTION_KERNELS
            + states * STATE_KERNELS
            + plain * DENSE_KERNELS
            + mixtures * EXPERT_KERNELS
            + mxfp4 * MXFP4_ROUTING_KERNELS
            + shared * SHARED_KERNELS
            + (scaled * SCALING_KERNELS_PER_PRODUCT if quantization.block_size else 0),
            mixers=len(outputs),
            row_parallel=len(outputs) + plain + mixtures,
        )


def _is_narrow(weight: Weight, quantization: Quantization) -> bool:
    fmt = quantization.format_of(weight)
    return fmt is not None and fmt.name in _NARROW_FORMATS


def _joins_another(module: str) -> bool:
    return module.endswith((".up_proj", ".k_proj", ".v_proj"))
