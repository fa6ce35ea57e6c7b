"""How the kernels for MXFP4 experts lay their weights out: what is padded, and what is kept twice.

Read in vLLM 0.10.2 to 0.28: `mxfp4_round_up_hidden_size_and_intermediate_size` and the choice of a backend
(layers/quantization/mxfp4.py, later layers/fused_moe/oracle/mxfp4.py), and the layouts of the Triton kernels that vLLM
brings along from 0.12 on (third_party/triton_kernels/tensor_details/layout_details).
"""

from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.shapes import ceil_div

Version = tuple[int, int, int]
Capability = tuple[int, int]

SCALED_ELEMENTS = 32
"""Elements that share a scale of one byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKernel:
    """What a kernel rounds the sides of an expert's matrices up to."""

    name: str
    hidden: int = 1
    intermediate: int = 1
    """Of a rank's share."""
    value_rows: int = 1
    value_column_bytes: int = 1
    """The layout of the values: rows and packed columns (two elements a byte)."""
    scale_rows: int = 1
    scale_columns: int = 1
    keeps_scales: bool = False
    """Whether the checkpoint's scales stay beside the kernel's own."""
    bias_bytes: int | None = None
    """Of an element of the biases, where it isn't the model's dtype."""


MARLIN = ExpertKernel(name="Marlin", hidden=256, intermediate=128)
TRITON_HOPPER = ExpertKernel(
    name="Triton on Hopper", intermediate=64, value_rows=16, value_column_bytes=32, scale_rows=256, scale_columns=2,
    bias_bytes=4,
)  # fmt: skip
_PADS_64_FROM, _PADS_64_UNTIL = (0, 17, 0), (0, 21, 0)
"""Both sides of the values to 64: in 0.17.1 to 0.20.2, not in 0.16 and 0.22.1."""
_DROPS_SCALES_FROM = (0, 26, 0)
"""The checkpoint's scales are deleted: in 0.26, not in 0.24."""
TRTLLM_256 = ExpertKernel(name="TensorRT-LLM", hidden=256, intermediate=256)
TRTLLM = ExpertKernel(name="TensorRT-LLM", hidden=256, intermediate=128)
"""From 0.20 on."""


def mxfp4_kernel(capability: Capability | None, engine_version: Version) -> ExpertKernel:
    """The kernel that this version takes on this card where no flag says otherwise."""
    if capability is None or not (9, 0) <= capability < (11, 0) or engine_version < (0, 12, 0):
        return MARLIN
    if capability >= (10, 0):
        return TRTLLM_256 if engine_version < (0, 20, 0) else TRTLLM
    kernel = replace(TRITON_HOPPER, keeps_scales=engine_version < _DROPS_SCALES_FROM)
    if _PADS_64_FROM <= engine_version < _PADS_64_UNTIL:
        return replace(kernel, value_rows=64, value_column_bytes=64)
    return kernel


def expert_tensors(
    kernel: ExpertKernel, *, experts: int, hidden: int, intermediate: int, matrices: int, down: bool
) -> list[int]:
    """Bytes of the tensors of one layer's experts on one rank: values, scales, and scales that are kept.

    `matrices`: 2 where gate and up are one tensor, else 1. `intermediate` is the rank's share.
    """
    size, inner = _up(hidden, kernel.hidden), _up(intermediate, kernel.intermediate)
    rows, columns = (size, inner) if down else (matrices * inner, size)
    values = _up(rows, kernel.value_rows) * _up(ceil_div(columns, 2), kernel.value_column_bytes)
    scale_columns = ceil_div(columns, SCALED_ELEMENTS)
    scales = _up(rows, kernel.scale_rows) * _up(scale_columns, kernel.scale_columns)
    kept = [rows * scale_columns] if kernel.keeps_scales else []
    return [experts * each for each in (values, scales, *kept)]


def _up(value: int, step: int) -> int:
    return ceil_div(value, step) * step
