"""The CPU row: the container's memory is the card, and the KV cache is given in bytes."""

from dataclasses import dataclass
from decimal import Decimal

from llmservice_operator.api.quantities import parse_quantity
from llmservice_operator.api.spec import EnvVar
from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.kv_cache import CPU_BLOCK_SIZE, CacheLayout, cache_layout
from llmservice_operator.perfmodel.memory_cpu import MARGIN, CpuAccount, cpu_account
from llmservice_operator.perfmodel.memory_types import GIB, Batch
from llmservice_operator.perfmodel.shapes import ceil_div
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import DEFAULT_CPU_CONTEXT, Case
from llmservice_operator.planning.corrected import cpu_cache, cpu_needed
from llmservice_operator.planning.fit import Misfit, needed_bytes, rank_weights
from llmservice_operator.planning.objectives import missed_alone, objectives_of
from llmservice_operator.planning.prediction import load_of, predict, speed_model
from llmservice_operator.planning.reasons import speed_in_words
from llmservice_operator.planning.types import Knobs, MemoryTerm, Plan, PlannedSpeed
from llmservice_operator.planning.words import gib, tokens

CPU_SEQS, CPU_TOKENS = 32, 2048
DEFAULT_CPU_CONCURRENCY = 4
"""Requests of the whole context that are held where the user asks for no concurrency."""
MEMORY_STEP = 256 << 20
BYTES_SINCE: Version = (0, 26, 0)
"""From here on (sampled) the CPU engine takes --kv-cache-memory-bytes; before, whole GiB only (v1/worker/cpu_worker.py
of 0.19.0 and 0.26.0)."""
CACHE_FLAG = "kv-cache-memory-bytes"
SHM_BYTES = 1 << 30
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
NO_COMPILE = "TORCH_COMPILE_DISABLE"
"""Set where the model is run eagerly, unless the user says something: vLLM compiles some kernels of its samplers all
the same, at the first request that needs them, which takes half a minute and 0.34 GiB beside a full KV cache."""
THREADS_BIND = "VLLM_CPU_OMP_THREADS_BIND"
"""Unbound unless the user says so: a pod that doesn't own its cores must not hold its threads to some of them."""


def memory_limit(case: Case) -> int | None:
    """The container's memory limit that the user set, in bytes."""
    resources = case.spec.pod_template.resources
    if resources is None:
        return None
    value = (resources.get("limits") or {}).get("memory")
    if value is None:
        return None
    return int(parse_quantity(value, field="spec.podTemplate.resources.limits.memory") // Decimal(1))


def plan_cpu(case: Case, candidate: Candidate) -> Plan | Misfit:
    """The plan on the CPU row: the KV cache that the workload needs, or what the given limit leaves."""
    context = case.wish.context
    if case.spec.workload.context.max is None and case.spec.engine.pin.max_model_len is None:
        context = min(context, max(DEFAULT_CPU_CONTEXT, case.wish.floor))
    pin = case.spec.engine.pin
    seqs = pin.max_num_seqs or max(CPU_SEQS, case.wish.concurrency)
    batch = case.batch(
        seqs=seqs,
        tokens=pin.max_num_batched_tokens or max(CPU_TOKENS, seqs),
        tensor_parallel_size=1,
        dtype=case.cpu_dtype,
    )
    layout = cache_layout(
        case.model,
        case.cache_settings(batch, block_size=CPU_BLOCK_SIZE, hybrid_prefixes=False, asynchronous=False),
    )
    weights = rank_weights(case, dtype=batch.dtype, tensor_parallel_size=1)
    account = cpu_account(
        weights_bytes=weights, model=case.model, batch=batch, compiles=_compiles_while_serving(case)
    )
    room = _room(case, account)
    cache = ceil_div(_wanted_bytes(case, layout, context), GIB) * GIB
    limit = memory_limit(case)
    if limit is not None:
        cache = _within(case, layout, room, limit=limit, useful=_largest_useful(cache))
    while context > case.wish.floor and needed_bytes(case, layout, context) > cache:
        context = max(case.wish.floor, context - CPU_BLOCK_SIZE)
    needed = needed_bytes(case, layout, context)
    if needed > cache or (limit is not None and room.least + cache > limit):
        step = _step(case, layout, limited=limit is not None)
        return Misfit(
            candidate=candidate,
            shortfall_bytes=max(1, room.least + ceil_div(needed, step) * step - (limit or 0)),
            longest=layout.longest_request(cache, context),
            account=None,
            needed_bytes=needed,
        )
    return _plan(case, candidate, batch, layout, account=account, room=room, cache=cache, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What is left for all but the KV cache, in bytes."""

    least: int
    """Less may be a kill by the kernel."""
    wanted: int
    """With a margin, or file pages of a start from cold disks; more, after the container ran out of memory."""


def _room(case: Case, account: CpuAccount) -> _Room:
    checkpoint = rank_weights(case, dtype=case.model.dtype, tensor_parallel_size=1)
    cold = account.cold_bytes(checkpoint, image_too=memory_limit(case) is None)
    return _Room(least=account.least_bytes, wanted=max(cold, cpu_needed(case, account.fixed_bytes)))


def _within(case: Case, layout: CacheLayout, room: _Room, *, limit: int, useful: int) -> int:
    """The cache within a limit of the user's: what the wanted room leaves, but what the workload needs at the least.

    File pages may make the engine refuse a cold start, but never its second one: no service is refused for them.
    """
    step = _step(case, layout, limited=True)
    most = min(limit - room.least, useful) // step * step
    floor = ceil_div(needed_bytes(case, layout, case.wish.floor), step) * step
    cache = cpu_cache(case, min(limit - room.wanted, most)) // step * step
    return max(0, min(most, max(cache, floor)))


def _step(case: Case, layout: CacheLayout, *, limited: bool) -> int:
    """The cache within a limit is of whole blocks; without one, and for engines before `BYTES_SINCE`, of whole GiB."""
    return layout.bytes_per_block if limited and case.version >= BYTES_SINCE else GIB


def _wanted_bytes(case: Case, layout: CacheLayout, context: int) -> int:
    """KV memory for the asked concurrency, or for a few whole requests."""
    if case.spec.workload.concurrency.min is not None:
        return needed_bytes(case, layout, context)
    return (DEFAULT_CPU_CONCURRENCY * layout.blocks_per_request(context) + 1) * layout.bytes_per_block


def _largest_useful(cache_bytes: int) -> int:
    """A given limit is used, but not for a cache far beyond the workload: host memory has other uses."""
    return max(cache_bytes, 4 * GIB)


def _plan(
    case: Case, candidate: Candidate, batch: Batch, layout: CacheLayout,
    *, account: CpuAccount, room: _Room, cache: int, context: int,
) -> Plan:  # fmt: skip
    kv_bytes = cache
    total = memory_limit(case) or ceil_div(max(room.least, room.wanted) + kv_bytes, MEMORY_STEP) * MEMORY_STEP
    concurrency = layout.max_concurrency(kv_bytes, context)
    reasons = _reasons(case, batch, total=total, cache=cache, context=context, concurrency=concurrency)
    speed = _speed(case, candidate, batch, layout, kv_bytes=kv_bytes, context=context)
    objectives = objectives_of(case.spec)
    missed = () if objectives is None else missed_alone(speed, "the cpu row", objectives)
    return Plan(
        accelerator=candidate.row,
        accelerators_per_replica=0,
        resource_name="",
        knobs=Knobs(
            max_model_len=context,
            gpu_memory_utilization=None,
            max_num_seqs=batch.max_num_seqs,
            max_num_batched_tokens=batch.max_num_batched_tokens,
            kv_cache_dtype=case.kv_cache_flag,
            block_size=case.spec.engine.pin.block_size,
            tensor_parallel_size=1,
            kv_cache_bytes=kv_bytes,
        ),
        memory=_terms(case, batch, layout, account=account, kv_bytes=kv_bytes, total=total),
        total_bytes=total,
        requested_bytes=total,
        kv_cache_tokens=int(concurrency * context),
        max_concurrency=round(concurrency, 2),
        weights_bytes=account.weights_bytes,
        host_memory_bytes=total,
        host_memory_limited=True,
        host_cpu_cores=1,
        shm_bytes=SHM_BYTES,
        engine_version=case.inputs.engine_version,
        env={**_cache_space(kv_bytes), **_compile_switch(case), **_thread_binding(case)},
        engine_args=(*(() if case.dtype else (("dtype", batch.dtype),)), *_cache_flag(kv_bytes)),
        reasons=(*reasons, speed_in_words(speed)),
        warnings=(*missed, *case.warnings),
        speed=speed,
        headroom_bytes=kv_bytes - needed_bytes(case, layout, case.wish.floor),
        missed=missed,
    )


def _speed(
    case: Case, candidate: Candidate, batch: Batch, layout: CacheLayout, *, kv_bytes: int, context: int
) -> PlannedSpeed:
    """The prediction for the cores that the catalogue's row stands for: an order of magnitude."""
    load = load_of(case, context)
    model = speed_model(
        case,
        candidate,
        dtype=batch.dtype,
        seqs=batch.max_num_seqs,
        tokens=batch.max_num_batched_tokens,
        context=context,
    )
    length = min(context, max(1, round(load.context)))
    held = max(1, layout.blocks(kv_bytes) // layout.blocks_per_request(length))
    return predict(model, load, batch=min(held, batch.max_num_seqs), held=held, wanted=batch.max_num_seqs)


def _reasons(
    case: Case, batch: Batch, *, total: int, cache: int, context: int, concurrency: float
) -> tuple[str, ...]:
    source = "as limited by spec.podTemplate" if memory_limit(case) else "as the model and workload need"
    why = "" if case.dtype else "; 16-bit kernels die at the first request where the kernel doesn't grant AMX"
    shortened = f" of {case.wish.context:,} wanted" if context < case.wish.context else ""
    reasons = [
        f"accelerator: cpu, memory {source}: {gib(total)}",
        f"dtype: {batch.dtype}{why}",
        f"max_model_len: {tokens(context)}{shortened}",
        f"KV cache: {gib(cache)} holds {concurrency:.2f} requests of {tokens(context)}",
    ]
    if case.spec.engine.pin.gpu_memory_utilization is not None:
        reasons.append(
            "gpu_memory_utilization: pinned, and not used on the cpu row; the container's limit rules"
        )
    return tuple(reasons)


def _cache_space(cache_bytes: int) -> dict[str, str]:
    """Whole GiB by the variable that every version knows; it would override the flag."""
    return {KV_SPACE: str(cache_bytes // GIB)} if cache_bytes % GIB == 0 else {}


def _cache_flag(cache_bytes: int) -> tuple[tuple[str, str], ...]:
    return ((CACHE_FLAG, str(cache_bytes)),) if cache_bytes % GIB else ()


def _said(case: Case, name: str) -> EnvVar | None:
    """The user's own variable of this name."""
    return next((each for each in case.spec.engine.env if each.name == name), None)


def _compile_switch(case: Case) -> dict[str, str]:
    return {NO_COMPILE: "1"} if case.switches.enforce_eager and _said(case, NO_COMPILE) is None else {}


def _compiles_while_serving(case: Case) -> bool:
    said = _said(case, NO_COMPILE)
    return not case.switches.enforce_eager or (said is not None and said.value != "1")


def _thread_binding(case: Case) -> dict[str, str]:
    return {THREADS_BIND: "nobind"} if _said(case, THREADS_BIND) is None else {}


def _terms(
    case: Case, batch: Batch, layout: CacheLayout, *, account: CpuAccount, kv_bytes: int, total: int
) -> tuple[MemoryTerm, ...]:
    margin = total - account.resident_bytes - account.compiler_bytes - kv_bytes
    page = f"{layout.bytes_per_block:,} B a block of {layout.block_size} tokens"
    work = f"{batch.max_num_batched_tokens:,} batched tokens and logits of {batch.max_num_seqs} sequences"
    share = f"{MARGIN * 100:.0f} % of all but the KV cache and the compiler"
    rest = "rounding" if memory_limit(case) is None else "what else the limit leaves"
    terms = (
        (
            "process",
            account.process_bytes,
            "resident memory of the engine's processes (vLLM-CPU 0.32.0, measured)",
        ),
        (
            "weights",
            account.weights_bytes,
            f"{case.model.kind}, {batch.dtype}, from the shapes in config.json",
        ),
        ("packed", account.packed_bytes, "oneDNN's copies of the vocabulary's matrices"),
        ("activation", account.activation_bytes, work),
        ("compiler", account.compiler_bytes, "for a moment, at the first request that needs a new kernel"),
        ("kv_cache", kv_bytes, f"{layout.blocks(kv_bytes):,} blocks, {page}"),
        ("margin", margin, f"{share}, pages of the files that are read, and {rest}"),
    )
    return tuple(
        MemoryTerm(name=name, size_bytes=size, explanation=text)
        for name, size, text in terms
        if size or name != "compiler"
    )
