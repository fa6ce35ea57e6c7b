"""Constants of speed: few, physical, of a kind of card or of the host's software; none is of a model.

Written from the fit of `python -m accuracy speed --fit` (tests/accuracy/speed_fit.py), which says what each rests on.
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


ROOFLINE_SOFTNESS = 1.5

_HOPPER = DeviceConstants(
    weight_bandwidth_share=0.88,
    cache_bandwidth_share=0.91,
    product_flops_share=0.64,
    attention_flops_share=0.57,
    kernel_seconds=4.0e-6,
    sequence_seconds=2.5e-6,
    all_reduce_seconds=6.0e-6,
    interconnect_share=0.45,
)

_DEVICES = {"9": _HOPPER}
_HOST = HostConstants(
    step_seconds=2.0e-3,
    step_sequence_seconds=5.0e-6,
    piece_seconds=0.30e-3,
    kernel_seconds=0.080e-3,
    request_seconds=4.0e-3,
    token_seconds=43e-6,
    overlaps=True,
)

_ASYNC_SCHEDULING_SINCE = (0, 14, 0)
"""vLLM schedules asynchronously by default from here on (config/vllm.py)."""


def speed_constants(row: AcceleratorRow, engine_version: tuple[int, int, int]) -> SpeedConstants:
    """The constants of this kind of card and this engine."""
    generation = (row.compute_capability or "").split(".")[0]
    return SpeedConstants(
        device=_DEVICES.get(generation, _HOPPER),
        host=replace(_HOST, overlaps=engine_version >= _ASYNC_SCHEDULING_SINCE),
        softness=ROOFLINE_SOFTNESS,
    )
