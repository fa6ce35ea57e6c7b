"""What of a GPU's make sizes buffers: multiprocessors, L2 cache, cuBLAS's workspace."""

from dataclasses import dataclass

MIB = 1 << 20

_H200_FROM_BYTES = 100 << 30
"""Among cards of compute capability 9.0, those with more memory are H200s (60 MiB of L2; an H100 has 50)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShape:
    """Figures of `cudaGetDeviceProperties` that a memory account depends on."""

    compute_capability: str
    multiprocessors: int
    l2_cache_bytes: int

    @property
    def matmul_workspace_bytes(self) -> int:
        """CuBLAS's workspace, one per handle and stream, from torch's allocator.

        32 MiB from Hopper on, 8 MiB and 128 KiB before (aten/src/ATen/cuda/CublasHandlePool.cpp,
        getChosenWorkspaceSize; torch 2.10 and 2.11).
        """
        major = int(self.compute_capability.partition(".")[0] or 0)
        return 32 * MIB if major >= 9 else 8 * MIB + 128 * 1024

    @property
    def data_center_blackwell(self) -> bool:
        """Whether FlashInfer's kernels for SM100 run here: they need no workspaces of the engine's."""
        return self.compute_capability.startswith("10.")


_SHAPES = {
    "7.0": (80, 6), "7.5": (40, 4), "8.0": (108, 40), "8.6": (84, 6), "8.7": (16, 4), "8.9": (142, 72),
    "9.0": (132, 50), "10.0": (148, 126), "10.3": (148, 126), "12.0": (188, 128), "12.1": (48, 24),
}  # fmt: skip
"""Compute capability → multiprocessors and MiB of L2 cache (NVIDIA's data sheets; the largest card of its kind)."""

HOPPER = DeviceShape(compute_capability="9.0", multiprocessors=132, l2_cache_bytes=50 * MIB)


def device_shape(compute_capability: str | None, memory_bytes: int) -> DeviceShape:
    """The shape of a card; an H100's where the capability isn't known."""
    if compute_capability not in _SHAPES:
        return HOPPER
    multiprocessors, l2_mib = _SHAPES[compute_capability]
    if compute_capability == "9.0" and memory_bytes > _H200_FROM_BYTES:
        l2_mib = 60
    return DeviceShape(
        compute_capability=compute_capability, multiprocessors=multiprocessors, l2_cache_bytes=l2_mib * MIB
    )
