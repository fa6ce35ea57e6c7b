"""vLLM's environment variables that an account of memory follows."""

import difflib
from collections.abc import Iterable, Iterator

COUNTED = frozenset(
    {
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        "VLLM_PP_LAYER_PARTITION",
        "VLLM_USE_FLASHINFER_SAMPLER",
        "VLLM_USE_V2_MODEL_RUNNER",
    }
)
_MAY_MOVE_MEMORY = frozenset(
    {
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_BATCH_INVARIANT",
        "VLLM_DEEPEP_BUFFER_SIZE_MB",
        "VLLM_ENABLE_STARTUP_PLAN",
        "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
        "VLLM_FUSED_MOE_CHUNK_SIZE",
        "VLLM_KV_CACHE_LAYOUT",
        "VLLM_MLA_DISABLE",
        "VLLM_REPLICATE_EMBED",
        "VLLM_USE_DEEP_GEMM",
        "VLLM_USE_V1",
    }
)
"""What takes or leaves memory in ways that aren't modelled (`vllm/envs.py`)."""


def environment_notes(names: Iterable[str]) -> Iterator[str]:
    """What is to be said of variables that are set and not followed; those that aren't vLLM's are nobody's concern."""
    for name in names:
        if name in COUNTED:
            continue
        if name in _MAY_MOVE_MEMORY:
            yield f"{name} may move memory in a way that isn't counted here"
        elif name.startswith("VLLM_"):
            close = difflib.get_close_matches(name, COUNTED | _MAY_MOVE_MEMORY, n=1, cutoff=0.9)
            yield f"{name} isn't counted" + (f"; did you mean {close[0]}?" if close else "")
