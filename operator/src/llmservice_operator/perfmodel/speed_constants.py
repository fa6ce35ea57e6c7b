"""Constants of speed: few, physical, of a kind of card or of the host's software; none is of a model.

`python -m accuracy speed --fit` (tests/accuracy/speed.py) fits them anew and shows each beside the value here.
"""

from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.accelerators import AcceleratorRow


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstants:
    """How much of its datasheet a card gives, and what a kernel costs beside its work."""

    weight_bandwidth_share: float
    """Of the memory bandwidth, while weights are read."""
    cache_bandwidth_share: float
    """The same for attention over the KV cache."""
    product_flops_share: float
    """Of the dense 16-bit (or 8-bit) rate, in large matrix products."""
    attention_flops_share: float
    """The same for attention in a prefill."""
    kernel_seconds: float
    """Start, ramp and tail of one kernel within a graph."""
    sequence_seconds: float
    """Of each sampled sequence: logits, sampling, its own rows of metadata."""
    all_reduce_seconds: float
    """Of one sum over two ranks, beside its bytes."""
    interconnect_share: float
    """Of the interconnect's bandwidth, in large sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConstants:
    """What the engine's processes cost on the host; parts of it hide behind the card's work."""

    step_seconds: float
    """Prepare, launch and read back one step whose graph is whole (decode)."""
    step_sequence_seconds: float
    """More for each sequence of the step."""
    piece_seconds: float
    """Launch one piece of a piecewise graph and the attention operator after it."""
    kernel_seconds: float
    """Launch one kernel that no graph holds."""
    request_seconds: float
    """From a request's arrival to its first scheduling, and from its first token to the client."""
    token_seconds: float
    """Of each output token in the front end, which is one process."""
    overlaps: bool
    """Asynchronous scheduling: the next step is prepared while the card works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedConstants:
    """All that a speed model knows beside shapes and datasheets."""

    device: DeviceConstants
    host: HostConstants
    softness: float
    """Exponent p of the roofline's corner, (memory^p + compute^p)^(1/p): 1 adds both, infinity takes the larger."""


ROOFLINE_SOFTNESS = 1.69
"""Fitted with Hopper's constants; how loads and products overlap is a matter of kernels, not of one card."""

HOPPER = DeviceConstants(
    weight_bandwidth_share=0.863,
    cache_bandwidth_share=0.907,
    product_flops_share=0.65,
    attention_flops_share=0.534,
    kernel_seconds=4.04e-6,
    sequence_seconds=1.87e-6,
    all_reduce_seconds=6.3e-6,
    interconnect_share=0.71,
)
"""Fitted to vLLM 0.26.0 on one and two H200 (tests/truth/h200_speed.json)."""

AMPERE = DeviceConstants(
    weight_bandwidth_share=0.707,
    cache_bandwidth_share=0.764,
    product_flops_share=0.781,
    attention_flops_share=0.601,
    kernel_seconds=4.13e-6,
    sequence_seconds=1.19e-6,
    all_reduce_seconds=6.3e-6,
    interconnect_share=0.71,
)
"""Fitted to aiconfigurator's figures of an A100 SXM; collectives as on Hopper."""

ADA = DeviceConstants(
    weight_bandwidth_share=0.863,
    cache_bandwidth_share=0.907,
    product_flops_share=0.628,
    attention_flops_share=0.305,
    kernel_seconds=3.86e-6,
    sequence_seconds=1.66e-6,
    all_reduce_seconds=20e-6,
    interconnect_share=0.60,
)
"""Compute fitted to aiconfigurator's figures of an L40S; bandwidth as on Hopper, which a measured RTX 4090 confirms
(aiconfigurator says 0.82 and 0.78). Cards of this kind sum over PCIe, whose latency is assumed."""

HALF_RATE = replace(ADA, product_flops_share=0.90, attention_flops_share=0.60)
"""Cards that sum in float32 at half rate (GeForce): their datasheet's rate is no limit of power, and is reached. From
prompts on an RTX 4090 (2,048 tokens of an 8B in 0.2 s); attention's share is assumed."""
HALF_RATE_RIDGE_FLOPS_PER_BYTE = 200.0
"""Cards for graphics below this ridge point are taken as such: RTX 3090 and 4090 have 76 and 164, an L40S 419."""

CDNA = replace(HOPPER, weight_bandwidth_share=0.75, cache_bandwidth_share=0.70, product_flops_share=0.45)
"""Assumed: no record rests on it."""

PROCESSOR = DeviceConstants(
    weight_bandwidth_share=0.5,
    cache_bandwidth_share=0.5,
    product_flops_share=0.2,
    attention_flops_share=0.1,
    kernel_seconds=20e-6,
    sequence_seconds=100e-6,
    all_reduce_seconds=100e-6,
    interconnect_share=0.5,
)
"""Of the CPU row: an order of magnitude, as its datasheet figures are."""

_BY_CAPABILITY = (
    ("7.", AMPERE), ("8.0", AMPERE), ("8.", ADA), ("9.", HOPPER), ("10.", HOPPER), ("12.", HOPPER), ("gfx", CDNA),
)  # fmt: skip
"""Begin of the compute capability → constants; the first that fits. 10 and 12 are taken as 9 (12: as measured)."""
_GRAPHICS = ("8.6", "8.9", "12.0")
"""Compute capabilities that GeForce cards have."""

EXPERT_FLOPS_SHARE = 0.8
"""Of what dense products reach, in grouped products of experts: fitted to prompts of 128 to 8,192 tokens of
Mixtral-8x7B on H200 (tests/truth/h200/memory_plans.json)."""
MIXED_CACHE_SHARE = 0.67
"""Of the cache's bandwidth, for decoding sequences in a step that also has prompts: one attention kernel for both then
splits no context and packs no heads. From the saturated open load on one H200: its TPOT is 61.7 ms, 59.1 without."""

_HOST = HostConstants(
    step_seconds=1.8e-3,
    step_sequence_seconds=5e-6,
    piece_seconds=265e-6,
    kernel_seconds=81e-6,
    request_seconds=6.1e-3,
    token_seconds=45e-6,
    overlaps=True,
)
"""Fitted with Hopper's: one host. The first two are assumed; no step seen was short enough to tell them."""

_ASYNC_SCHEDULING_SINCE = (0, 14, 0)
"""vLLM schedules asynchronously by default from here on (config/vllm.py)."""


def speed_constants(row: AcceleratorRow, engine_version: tuple[int, int, int]) -> SpeedConstants:
    """The constants of this kind of card and this engine; those of Hopper for a kind that isn't known."""
    capability = row.compute_capability or ""
    device = next((each for begin, each in _BY_CAPABILITY if capability.startswith(begin)), HOPPER)
    ridge = row.bf16_flops_per_second / row.memory_bandwidth_bytes_per_second
    if capability in _GRAPHICS and ridge < HALF_RATE_RIDGE_FLOPS_PER_BYTE:
        device = HALF_RATE
    return SpeedConstants(
        device=PROCESSOR if row.is_cpu else device,
        host=replace(_HOST, overlaps=engine_version >= _ASYNC_SCHEDULING_SINCE and not row.is_cpu),
        softness=ROOFLINE_SOFTNESS,
    )
