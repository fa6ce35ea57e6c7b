"""Times of the parts of a step on one rank: the roofline, applied to counts of work.

A part that reads bytes and multiplies takes (memory^p + compute^p)^(1/p): close to the larger of the two far from the
ridge point, more than either near it, since a kernel overlaps its loads and its products only in part.
Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES
from llmservice_operator.perfmodel.speed_constants import (
    EXPERT_FLOPS_SHARE,
    MIXED_CACHE_SHARE,
    SpeedConstants,
)
from llmservice_operator.perfmodel.work import AttentionWork, Products, Work

FLOPS_PER_ELEMENT = 2.0
"""A multiply and an add for each weight and token."""
FLOAT32_RATE_SHARE = 1.0 / 16
"""Of the tensor units' 16-bit rate, without them: datasheets of A100 and H100. The CPU row's rate is float32's."""
RANKS_LATENCY_GROWTH = 0.3
"""More latency of a sum for each doubling of ranks: 3.7, 4.8, 5.9 us for 2, 4, 8 H100 (sgl-project/sglang#2904)."""
STATE_FLOPS_PER_ELEMENT = 6.0
"""Of a recurrent state and a token: decay, outer product, and the query's product (Gated DeltaNet, Mamba-2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Seconds of memory and of compute that overlap by the roofline's law, and seconds that overlap with nothing."""

    memory_seconds: float = 0.0
    compute_seconds: float = 0.0
    overhead_seconds: float = 0.0
    busy_seconds: float = 0.0
    """Memory and compute together."""

    def __add__(self, other: "Part") -> "Part":
        return Part(
            memory_seconds=self.memory_seconds + other.memory_seconds,
            compute_seconds=self.compute_seconds + other.compute_seconds,
            overhead_seconds=self.overhead_seconds + other.overhead_seconds,
            busy_seconds=self.busy_seconds + other.busy_seconds,
        )

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.busy_seconds + self.overhead_seconds


def together(parts: Iterable[Part], *, overhead_seconds: float = 0.0) -> Part:
    """The sum, with so much more that overlaps with nothing."""
    memory = compute = overhead = busy = 0.0
    for part in parts:
        memory += part.memory_seconds
        compute += part.compute_seconds
        overhead += part.overhead_seconds
        busy += part.busy_seconds
    return Part(
        memory_seconds=memory,
        compute_seconds=compute,
        overhead_seconds=overhead + overhead_seconds,
        busy_seconds=busy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a rank reaches of its datasheet."""

    weight_bytes_per_second: float
    cache_bytes_per_second: float
    wide_flops_per_second: float
    narrow_flops_per_second: float
    attention_flops_per_second: float
    link_bytes_per_second: float
    softness: float


def rates(row: AcceleratorRow, constants: SpeedConstants, *, dtype: str) -> Rates:
    """The rates of one card of this row for a model that runs in this dtype."""
    device = constants.device
    wide = row.bf16_flops_per_second
    if DTYPE_BYTES[dtype] > 2 and not row.is_cpu:
        wide *= FLOAT32_RATE_SHARE
    narrow = row.fp8_flops_per_second or wide
    return Rates(
        weight_bytes_per_second=row.memory_bandwidth_bytes_per_second * device.weight_bandwidth_share,
        cache_bytes_per_second=row.memory_bandwidth_bytes_per_second * device.cache_bandwidth_share,
        wide_flops_per_second=wide * device.product_flops_share,
        narrow_flops_per_second=narrow * device.product_flops_share,
        attention_flops_per_second=wide * device.attention_flops_share,
        link_bytes_per_second=row.interconnect_bandwidth_bytes_per_second * device.interconnect_share,
        softness=constants.softness,
    )


def overlapped(memory_seconds: float, compute_seconds: float, softness: float) -> Part:
    """One kernel's memory and compute, by the roofline with a rounded corner."""
    small, large = (
        (memory_seconds, compute_seconds)
        if memory_seconds < compute_seconds
        else (compute_seconds, memory_seconds)
    )
    busy = large * (1.0 + (small / large) ** softness) ** (1.0 / softness) if large > 0 else 0.0
    return Part(memory_seconds=memory_seconds, compute_seconds=compute_seconds, busy_seconds=busy)


def product_part(products: Products, tokens: float, rate: Rates) -> Part:
    """Matrix products of `tokens` rows with all of these weights."""
    compute = (
        FLOPS_PER_ELEMENT
        * tokens
        * (
            products.wide_elements / rate.wide_flops_per_second
            + products.narrow_elements / rate.narrow_flops_per_second
        )
    )
    return overlapped(products.bytes_read / rate.weight_bytes_per_second, compute, rate.softness)


def expert_part(work: Work, tokens: int, padded_tokens: int, rate: Rates) -> Part:
    """Routed experts: those that some token reaches are read, each row is multiplied with its own few.

    Rows that pad a batch to a graph's size are all alike: they reach no more experts than one token does.
    """
    if work.mixture is None:
        return Part()
    read = work.expected_experts(min(tokens + 1, padded_tokens))
    share = work.mixture.experts_per_token / work.mixture.experts
    whole = work.experts
    reached = Products(
        bytes_read=whole.bytes_read * read,
        wide_elements=whole.wide_elements * share / EXPERT_FLOPS_SHARE,
        narrow_elements=whole.narrow_elements * share / EXPERT_FLOPS_SHARE,
    )
    return product_part(reached, padded_tokens, rate)


def attention_prefill_part(attention: AttentionWork, tokens: int, cached: int, rate: Rates) -> Part:
    """A chunk of a prompt: compute over visible pairs; the cache before it is read once."""
    pairs = attention.visible_pairs(tokens, cached)
    compute = attention.layers * attention.prefill_flops_per_pair * pairs / rate.attention_flops_per_second
    read = attention.layers * attention.bytes_per_token * (attention.visible(cached) + tokens)
    return overlapped(read / rate.cache_bytes_per_second, compute, rate.softness)


def attention_decode_part(
    attention: AttentionWork, batch: float, context: float, rate: Rates, *, beside_prompts: bool
) -> Part:
    """One new token for each of `batch` sequences of this mean context."""
    bandwidth = rate.cache_bytes_per_second * (MIXED_CACHE_SHARE if beside_prompts else 1.0)
    visible = batch * attention.visible(context)
    compute = attention.layers * attention.decode_flops_per_pair * visible / rate.attention_flops_per_second
    read = attention.layers * attention.bytes_per_token * visible
    return overlapped(read / bandwidth, compute, rate.softness)


def state_part(work: Work, sequences: float, tokens: float, rate: Rates) -> Part:
    """Linear attention and Mamba: each sequence's state is read and written, each token is folded into it."""
    if not work.state_bytes:
        return Part()
    compute = STATE_FLOPS_PER_ELEMENT * work.state_elements * tokens / rate.attention_flops_per_second
    return overlapped(
        2.0 * work.state_bytes * sequences / rate.cache_bytes_per_second, compute, rate.softness
    )


def collective_part(work: Work, tokens: float, ranks: int, constants: SpeedConstants, rate: Rates) -> Part:
    """Sums over ranks: a latency that grows with their number, and a ring's bytes, 2 (n - 1) / n of each vector."""
    if not work.all_reduces:
        return Part()
    latency = constants.device.all_reduce_seconds * (1.0 + RANKS_LATENCY_GROWTH * math.log2(ranks / 2))
    sent = 2.0 * (ranks - 1) / ranks * work.all_reduce_bytes_per_token * tokens
    return Part(overhead_seconds=work.all_reduces * (latency + sent / rate.link_bytes_per_second))
