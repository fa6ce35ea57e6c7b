"""Bytes of weights: of the whole model and of one rank, as the engine lays them out and as PyTorch gives them."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmservice_operator.perfmodel.allocator import given_bytes
from llmservice_operator.perfmodel.expert_kernels import expert_tensors, mxfp4_kernel
from llmservice_operator.perfmodel.memo import remembered
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture, Shard, Weight, ceil_div

ASSUMED_VERSION = (0, 26, 0)
"""Whose rules are used where no version is said."""
_KERNEL_BY_CARD = frozenset({"mxfp4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a model's weights go: how many ranks, which card, which engine."""

    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    """Ranks that have attention whole and share the experts (fused_moe/config.py)."""
    expert_parallel: bool = False
    """Experts are spread whole over all ranks instead of being cut (`--enable-expert-parallel`)."""
    capability: tuple[int, int] | None = None
    """CUDA compute capability; None: unknown."""
    engine_version: tuple[int, int, int] = ASSUMED_VERSION

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the experts."""
        return self.tensor_parallel_size * self.data_parallel_size


@remembered
def rank_weight_bytes(
    architecture: Architecture,
    quantization: Quantization,
    *,
    dtype: str,
    tensor_parallel_size: int,
    with_vision: bool = True,
    data_parallel_size: int = 1,
    expert_parallel: bool = False,
    capability: tuple[int, int] | None = None,
    engine_version: tuple[int, int, int] = ASSUMED_VERSION,
) -> int:
    """Bytes of weights on one rank, as `Model loading took` reports them."""
    placement = Placement(
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        expert_parallel=expert_parallel,
        capability=capability,
        engine_version=engine_version,
    )
    units = architecture.units
    if architecture.vision is not None and with_vision:
        units += architecture.vision.units
    sizes: dict[int, int] = {}
    for unit in units:
        for size in tensor_bytes(unit, quantization, dtype=dtype, placement=placement):
            sizes[size] = sizes.get(size, 0) + 1
    return sum(count * given_bytes(size, engine_version=engine_version) for size, count in sizes.items())


def tensor_bytes(
    unit: tuple[Weight, ...], quantization: Quantization, *, dtype: str, placement: Placement
) -> Iterator[int]:
    """Bytes of the tensors that one unit becomes on one rank: values and scales; apart where formats differ."""
    first = quantization.format_of(unit[0])
    if any(quantization.format_of(each) != first for each in unit[1:]):
        for each in unit:
            yield from tensor_bytes((each,), quantization, dtype=dtype, placement=placement)
        return
    if first is not None and first.name == "MXFP4" and unit[0].expert:
        # Only gpt-oss's routing runs in the kernels that are chosen by card; others take Marlin below SM100, whose
        # padding no size of theirs needs above it either (oracle/mxfp4.py, `_get_priority_backends`).
        card = placement.capability if quantization.method in _KERNEL_BY_CARD else None
        yield from _padded_experts(unit, placement, card)
        return
    elements = sum(rank_elements(each, placement) for each in unit)
    if first is None:
        yield elements * (_own_width(unit[0], quantization, placement) or DTYPE_BYTES[dtype])
        return
    yield int(elements * (first.bits - first.scale_bits) / 8)
    if first.scale_bits:
        yield int(elements * first.scale_bits / 8)


def _own_width(weight: Weight, quantization: Quantization, placement: Placement) -> int | None:
    """Bytes of an element that isn't in the model's dtype; None: it is."""
    if weight.module.endswith("_bias") and quantization.method == "mxfp4":
        return mxfp4_kernel(placement.capability, placement.engine_version).bias_bytes
    return weight.element_bytes


def rank_elements(weight: Weight, placement: Placement) -> int:
    """Elements on one rank; experts are cut over all ranks, or spread whole under expert parallelism."""
    if not weight.expert:
        return weight.elements(placement.tensor_parallel_size)
    if placement.expert_parallel:
        return ceil_div(weight.copies, placement.expert_ranks) * weight.rows * weight.columns
    return weight.elements(placement.expert_ranks)


def _padded_experts(
    unit: tuple[Weight, ...], placement: Placement, capability: tuple[int, int] | None
) -> list[int]:
    """Experts whose kernel pads them; the intermediate side is the one that is cut."""
    weight = unit[0]
    down = weight.module.endswith("down_proj")
    hidden, intermediate = (weight.rows, weight.columns) if down else (weight.columns, weight.rows)
    experts = weight.copies
    if placement.expert_parallel:
        experts = ceil_div(experts, placement.expert_ranks)
    else:
        intermediate = ceil_div(intermediate, placement.expert_ranks)
    return expert_tensors(
        mxfp4_kernel(capability, placement.engine_version),
        experts=experts,
        hidden=hidden,
        intermediate=intermediate,
        matrices=len(unit),
        down=down,
    )


@remembered
def quantized_share(architecture: Architecture, quantization: Quantization) -> float:
    """Share of the elements that are quantised, for the explanation."""
    total = sum(each.elements(1) for each in architecture.weights)
    quantized = sum(
        each.elements(1) for each in architecture.weights if quantization.format_of(each) is not None
    )
    return quantized / total


def parameter_count(architecture: Architecture) -> int:
    """Parameters of the language model in the checkpoint, without the engine's own tables and copies."""
    return sum(each.rows * each.columns * each.copies for each in architecture.weights if each.in_checkpoint)


__all__ = ["Placement", "Shard", "parameter_count", "quantized_share", "rank_weight_bytes", "tensor_bytes"]
