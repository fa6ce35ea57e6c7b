"""DCGM's page of one GPU, MADE from the fields that dcgm-exporter documents; no recorded page was at hand.

Fields and help texts: NVIDIA/dcgm-exporter, etc/default-counters.csv and etc/dcp-metrics-included.csv; labels as its
README shows them with the mapping of pods turned on.
"""

from collections.abc import Iterator

from observability.stage.samples import Sample

DRAM_PER_COUNTED = 0.86
"""DCGM shows less than the engine's analytic count, which has every byte moved once from memory."""


def page(
    *, namespace: str, pod: str, gpu: int, bandwidth_use: float, prompt_share: float, busy: bool
) -> Iterator[Sample]:
    """One GPU that is held by this pod. Shares from 0 to 1."""
    labels = (
        ("gpu", str(gpu)),
        ("UUID", f"GPU-{gpu:08d}-0000-4000-8000-000000000000"),
        ("device", f"nvidia{gpu}"),
        ("modelName", "NVIDIA H200"),
        ("Hostname", "node-1"),
        ("container", "engine"),
        ("namespace", namespace),
        ("pod", pod),
    )
    values = {
        "DCGM_FI_PROF_DRAM_ACTIVE": bandwidth_use * DRAM_PER_COUNTED,
        "DCGM_FI_PROF_SM_ACTIVE": min(1.0, 0.35 * busy + 0.5 * bandwidth_use),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": min(1.0, 0.05 * busy + 0.4 * prompt_share),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": float(busy),
        "DCGM_FI_DEV_FB_USED": 128_000.0,
        "DCGM_FI_DEV_POWER_USAGE": 120.0 + 480.0 * bandwidth_use,
    }
    for name, value in values.items():
        yield Sample(name, labels, value)
