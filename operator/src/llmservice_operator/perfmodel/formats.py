"""Which number formats a card can run: dtype, weights and KV cache against its CUDA compute capability."""

from collections.abc import Mapping

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.quantization import FP8_WITH_FP4_EXPERTS, Quantization

Capability = tuple[int, int]

BFLOAT16_FROM: Capability = (8, 0)
"""Ampere (platforms/cuda.py, check_if_supports_dtype)."""
_FIRST = (0, 0, 0)
_WEIGHTS_FROM: Mapping[str, tuple[tuple[tuple[int, int, int], Capability], ...]] = {
    "fp8": ((_FIRST, (8, 0)), ((0, 14, 0), (7, 5))),
    "fbgemm_fp8": ((_FIRST, (8, 0)),),
    FP8_WITH_FP4_EXPERTS: ((_FIRST, (9, 0)),),
    "modelopt FP8": ((_FIRST, (8, 9)), ((0, 33, 0), (8, 0))),
    "modelopt NVFP4": ((_FIRST, (8, 0)), ((0, 14, 0), (7, 5))),
    "modelopt MXFP8": ((_FIRST, (10, 0)), ((0, 26, 0), (8, 0))),
    "modelopt_mixed": ((_FIRST, (8, 9)), ((0, 33, 0), (7, 5))),
    "mxfp4": ((_FIRST, (8, 0)),),
    "compressed-tensors": ((_FIRST, (7, 0)),),
    "awq": ((_FIRST, (7, 5)),),
    "gptq": ((_FIRST, (6, 0)),),
    "bitsandbytes": ((_FIRST, (7, 0)),),
    "gguf": ((_FIRST, (6, 0)),),
}
"""`get_min_capability` of each method in vLLM 0.10.2, 0.19, 0.26 and 0.33 (layers/quantization): the least capability
from a version on. Marlin runs on Turing from 0.14 on."""
_KV_CACHE_FROM: Mapping[str, Capability] = {"fp8": (8, 0), "int8": (8, 0), "int4": (8, 0), "nvfp4": (10, 0)}
"""By the beginning of the dtype's name. FP8: FlashInfer from 8.0 on, FlashAttention 3 on 9.0, Triton from 8.9; NVFP4:
FlashInfer's kernels for Blackwell (v1/attention/backends of 0.33)."""


_AUTO_FALLS_BACK = (0, 9, 0)
"""From here on `--dtype auto` takes float16 on a card without bfloat16 (config `_resolve_auto_dtype`)."""


def auto_dtype(row: AcceleratorRow, checkpoint_dtype: str, engine_version: tuple[int, int, int]) -> str:
    """What `--dtype auto` becomes on this card: 16 bits for a float32 checkpoint, float16 where there's no bfloat16."""
    has = row.capability
    wide = checkpoint_dtype in {"float32", "float"}
    if has is not None and has < BFLOAT16_FROM and engine_version >= _AUTO_FALLS_BACK:
        return "float16"
    if wide:
        return "bfloat16" if engine_version >= _AUTO_FALLS_BACK else "float16"
    return checkpoint_dtype


def why_it_cannot_run(
    row: AcceleratorRow,
    *,
    dtype: str,
    kv_cache_dtype: str,
    quantization: Quantization,
    engine_version: tuple[int, int, int],
) -> str | None:
    """What this card cannot compute or keep, with the mend; None if it runs all of it.

    `dtype` and `kv_cache_dtype` are resolved; of a card that isn't NVIDIA's nothing is said.
    """
    has = row.capability
    if has is None:
        return None
    card = f"{row.name} (compute capability {has[0]}.{has[1]})"
    if dtype == "bfloat16" and has < BFLOAT16_FROM:
        return f"{card} can't compute in bfloat16; set spec.engine.args.dtype to half"
    needed = _needed_for_weights(quantization, engine_version)
    if has < needed:
        return (
            f"{card} has no kernel for {quantization.method} weights, which need {needed[0]}.{needed[1]}; "
            "take a 16-bit or AWQ checkpoint, or a newer card"
        )
    for beginning, least in _KV_CACHE_FROM.items():
        if kv_cache_dtype.startswith(beginning) and has < least:
            return (
                f"{card} has no attention backend for a KV cache of {kv_cache_dtype}, which needs "
                f"{least[0]}.{least[1]}; set spec.engine.kvCacheDtype to auto"
            )
    return None


def _needed_for_weights(quantization: Quantization, engine_version: tuple[int, int, int]) -> Capability:
    method = quantization.method.removeprefix("online ").partition("_per_")[0]
    if method == "modelopt" and quantization.default is not None:
        method = f"modelopt {quantization.default.name}"
    reached = [least for since, least in _WEIGHTS_FROM.get(method, ()) if engine_version >= since]
    return reached[-1] if reached else (0, 0)
