"""Which number formats a candidate can run with this model, and what runs otherwise than its name says.

`perfmodel.formats` has the cards' limits; here are those that depend on the model's shapes and the user's words. Each
is one that the engine keeps at its start (vLLM 0.19.0, 0.26.0 and 0.33.0).
"""

from collections.abc import Callable, Iterator, Mapping

from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.formats import Capability, why_it_cannot_run
from llmservice_operator.perfmodel.shapes import AttentionCache
from llmservice_operator.planning.case import Case

NATIVE_FP8: Capability = (8, 9)
"""From here on tensor cores compute in FP8; below, Marlin's kernels widen FP8 weights to 16 bits as they are read."""
NATIVE_FP4: Capability = (10, 0)
FLASHINFER_HEAD_SIZES = frozenset({64, 128, 256, 512})
"""v1/attention/backends/flashinfer.py; below 8.9 it is the only backend with an FP8 cache."""

_BUILT_IN_UNTIL: Mapping[str, Version] = {"bitsandbytes": (0, 28, 0)}
"""Methods that the engine itself no longer has from this version on."""


def cannot_compute(case: Case, row: AcceleratorRow) -> str | None:
    """Why this card can't run the formats that are asked for, with what to do instead; None where it can."""
    removed = _BUILT_IN_UNTIL.get(case.quantization.method)
    if removed is not None and case.version >= removed:
        since = ".".join(map(str, removed))
        return (
            f"the checkpoint is quantised by {case.quantization.method}, which vLLM no longer has from {since} on; "
            "take another checkpoint, or an older image in spec.engine.image"
        )
    limit = why_it_cannot_run(
        row,
        dtype=case.gpu_dtype,
        kv_cache_dtype=case.kv_cache_dtype,
        quantization=case.quantization,
        engine_version=case.version,
    )
    capability = row.capability
    if limit is not None or capability is None:
        return limit
    checks: tuple[Callable[[Case, Capability], str], ...] = (_unlike_dtype, _e5m2_beside_fp8, _no_fp8_cache)
    why = next((found for check in checks if (found := check(case, capability))), None)
    if why is None:
        return None
    return (
        f"{row.name} (compute capability {row.compute_capability}) has no attention backend for a KV cache of "
        f"{case.kv_cache_dtype}: {why}; set spec.engine.kvCacheDtype to auto"
    )


def format_notes(case: Case, row: AcceleratorRow) -> Iterator[str]:
    """What runs otherwise on this card than its name says."""
    capability, method = row.capability, case.quantization.method
    if capability is None:
        return
    default = case.quantization.default
    name = default.name if default is not None else ""
    if name == "FP8" and capability < NATIVE_FP8:
        yield (
            f"{row.name} has no FP8 arithmetic: {method} weights take half the memory, and Marlin's kernels compute in "
            f"{case.gpu_dtype}"
        )
    if name in {"NVFP4", "MXFP4", "FP4"} and capability < NATIVE_FP4:
        yield (
            f"{row.name} has no FP4 arithmetic: {method} weights take a quarter of the memory, and are widened to "
            f"{case.gpu_dtype} as they are read"
        )
    if _is_fp8(case.kv_cache_dtype) and capability < NATIVE_FP8:
        yield f"{row.name} has no FP8 arithmetic: only FlashInfer's attention reads an FP8 KV cache there"


def _unlike_dtype(case: Case, _: Capability) -> str:
    """A 16-bit cache is of the model's own dtype (config/vllm.py)."""
    asked = case.kv_cache_dtype.replace("half", "float16")
    if asked in {"float16", "bfloat16"} and asked != case.gpu_dtype.replace("half", "float16"):
        return f"the model computes in {case.gpu_dtype}, and the two must be alike"
    return ""


def _e5m2_beside_fp8(case: Case, _: Capability) -> str:
    """Scales of an FP8 checkpoint are for e4m3 (model_executor/layers/attention/attention.py)."""
    default = case.quantization.default
    if case.kv_cache_dtype == "fp8_e5m2" and default is not None and default.name == "FP8":
        return "a checkpoint in FP8 takes fp8_e4m3"
    return ""


def _no_fp8_cache(case: Case, capability: Capability) -> str:
    """Why no backend below 8.9 reads an FP8 cache; empty where FlashInfer does."""
    if not _is_fp8(case.kv_cache_dtype) or capability >= NATIVE_FP8:
        return ""
    if case.kv_cache_dtype == "fp8_per_token_head":
        return "scales of each token are Triton's, which wants 8.9"
    if any(isinstance(cache, AttentionCache) and cache.kind == "latent" for cache in case.model.caches):
        return "latent attention wants 8.9 for it"
    if case.model.head_size not in FLASHINFER_HEAD_SIZES:
        return f"FlashInfer has no heads of {case.model.head_size}, and the others want 8.9"
    return ""


def _is_fp8(kv_cache_dtype: str) -> bool:
    return kv_cache_dtype.startswith("fp8")
