"""The catalogue of accelerators: what a row says."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AcceleratorRow:
    """One kind of accelerator."""

    name: str
    """`nvidia-h200`, ...; `cpu` is the processor itself."""
    memory_bytes: int
    """Memory as the engine's runtime reports it (CUDA total), not the datasheet's; 0 on the CPU row (the container's limit rules)."""
    memory_bandwidth_bytes_per_second: float
    bf16_flops_per_second: float
    fp8_flops_per_second: float | None
    compute_capability: str | None
    resource_name: str
    """`nvidia.com/gpu`, `amd.com/gpu`; empty on the CPU row."""
    node_labels: tuple[tuple[str, tuple[str, ...]], ...]
    """(label key, values): a node with any of these labels at one of the values has this accelerator."""
    device_name_contains: tuple[str, ...]
    """Parts of the device's own name (nvidia-smi) that must all be in it."""
    cost_per_hour: float
    """Relative price, for choosing the cheapest that fits."""
    sources: Mapping[str, str]
    """Where each figure is from."""
    evidence: str
    """`measured` or `datasheet`."""
