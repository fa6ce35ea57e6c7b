"""The plan on accelerators: knobs, the account in words, host resources, reasons."""

import math
from collections.abc import Sequence

from llmservice_operator.engines.versions import counts_moved_bytes, parse_version
from llmservice_operator.engines.vllm import canonical_args
from llmservice_operator.perfmodel.memory import GIB, MIB, Account, margin_bytes
from llmservice_operator.perfmodel.quantization import online_quantization
from llmservice_operator.perfmodel.weights import parameter_count, quantized_share, rank_weight_bytes
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.checked_weights import exact_bytes, told_exact, weights_warnings
from llmservice_operator.planning.fit import Fit, needed_bytes
from llmservice_operator.planning.formats import format_notes
from llmservice_operator.planning.objectives import Choice
from llmservice_operator.planning.reasons import Passed, reasons
from llmservice_operator.planning.types import Knobs, MemoryTerm, Plan, SpeedFlags
from llmservice_operator.planning.words import gib

MFU_FLAG = "enable-mfu-metrics"
HOST_BASE_BYTES, HOST_RANK_BYTES, MM_CACHE_BYTES = 4 * GIB, 3 * GIB, 4 * GIB
"""Host memory of the API server and of each rank; vLLM's cache of processed images (mm-processor-cache-gb 4)."""


def plan_gpu(case: Case, choice: Choice, passed: Sequence[Passed], missed: tuple[str, ...] = ()) -> Plan:
    """The plan of this choice; `passed` are candidates that were looked at before, `missed` the objectives."""
    fit = choice.fit
    ranks = fit.batch.tensor_parallel_size
    shm = shm_bytes(ranks)
    return Plan(
        accelerator=fit.candidate.row,
        accelerators_per_replica=ranks,
        resource_name=fit.candidate.resource_name,
        knobs=Knobs(
            max_model_len=fit.context,
            gpu_memory_utilization=fit.utilization,
            max_num_seqs=fit.batch.max_num_seqs,
            max_num_batched_tokens=fit.batch.max_num_batched_tokens,
            kv_cache_dtype=case.kv_cache_flag,
            block_size=case.spec.engine.pin.block_size,
            tensor_parallel_size=ranks,
        ),
        memory=memory_terms(case, fit),
        total_bytes=fit.account.total,
        requested_bytes=fit.account.requested,
        kv_cache_tokens=int(fit.concurrency * fit.context),
        max_concurrency=round(fit.concurrency, 2),
        weights_bytes=whole_weights(case, fit),
        host_memory_bytes=host_memory_bytes(case, fit, shm),
        host_memory_limited=False,
        host_cpu_cores=2 + ranks,
        shm_bytes=shm,
        engine_version=case.inputs.engine_version,
        engine_args=measuring_args(case),
        reasons=tuple(reasons(case, choice, passed)),
        warnings=(*missed, *case.warnings, *_warnings(case, fit)),
        speed=choice.speed,
        headroom_bytes=fit.account.available - needed_bytes(case, fit.layout, case.wish.floor),
        missed=missed,
        calibration_key=fit.calibration_key,
        calibrated=() if fit.calibration is None else fit.calibration.changes,
        speed_flags=_speed_flags(case, fit),
    )


def _speed_flags(case: Case, fit: Fit) -> SpeedFlags:
    said = case.spec.engine.quantization
    return SpeedFlags(
        quantization=said if case.quantization == online_quantization(said) else "",
        dtype=fit.batch.dtype,
        enforce_eager=case.switches.enforce_eager,
    )


def measuring_args(case: Case) -> tuple[tuple[str, str], ...]:
    """Flags by which the engine counts the bytes that it moves, where its version is known to; the user's go first.

    The count is by formula, once a step. What a release has no formula for (an odd attention, a format of weights) it
    leaves out and starts all the same.
    """
    version = parse_version(case.inputs.engine_version)
    said = canonical_args(case.spec.engine.args)
    if version is None or not counts_moved_bytes(version) or MFU_FLAG in said:
        return ()
    return ((MFU_FLAG, "true"),)


def whole_weights(case: Case, fit: Fit) -> int:
    """Bytes of the whole model as loaded: the checkpoint's own figure where it is known."""
    return exact_bytes(case, fit.batch.dtype) or rank_weight_bytes(
        case.model,
        case.quantization,
        dtype=fit.batch.dtype,
        tensor_parallel_size=1,
        with_vision=case.switches.multimodal,
    )


def shm_bytes(ranks: int) -> int:
    """Shared memory: 184 MiB and 240 MiB a rank of ring buffers, and 1 GiB for NCCL; none for one rank.

    The buffers are those of v1/executor/multiproc_executor.py.
    """
    if ranks == 1:
        return 0
    return math.ceil((184 + 240 * ranks) * MIB / GIB) * GIB + GIB


def host_memory_bytes(case: Case, fit: Fit, shm: int) -> int:
    """Host memory to ask for: processes, shared memory, a tenth of the weights while loading, offloaded weights."""
    ranks = fit.batch.tensor_parallel_size
    size = HOST_BASE_BYTES + HOST_RANK_BYTES * ranks + shm + whole_weights(case, fit) // 10
    size += case.switches.cpu_offload_bytes * ranks
    if case.model.vision is not None and case.switches.multimodal:
        size += MM_CACHE_BYTES
    return math.ceil(size / GIB) * GIB


def memory_terms(case: Case, fit: Fit) -> tuple[MemoryTerm, ...]:
    """The account of one accelerator, each term with its arithmetic."""
    held, batch, layout = fit.account, fit.batch, fit.layout
    sizes = f"max_num_seqs {batch.max_num_seqs} x vocabulary {case.model.vocab_size:,}"
    charged = "charged to the budget" if held.graphs_charged else "outside of the budget in this version"
    cache = f"{layout.blocks(held.available):,} blocks of {layout.block_size} tokens in {len(layout.groups)} group(s)"
    outside = (
        f"(1 - {fit.utilization:g}) of the card; context, graphs that aren't charged and growth while serving"
    )
    terms = (
        ("weights", held.weights, _weights_in_words(case, fit)),
        (
            "activation",
            held.activation,
            f"largest of forward pass, sampler and encoder: {sizes}, {batch.max_num_batched_tokens:,} batched tokens",
        ),
        ("non_torch", held.non_torch, "memory outside of torch's allocator (measured on H100 and H200)"),
        (
            "cuda_graphs",
            held.graphs_charged,
            f"{gib(held.graphs)} over {case.model.num_layers} layers, {charged}",
        ),
        ("extras", held.extras, "LoRA slots and a draft model"),
        ("margin", held.margin, _margin_in_words(held)),
        ("kv_cache", held.available, f"{cache}, {layout.bytes_per_block:,} B a block"),
        ("outside_budget", held.total - held.requested, f"{outside} need {gib(held.outside)}"),
    )
    return tuple(
        MemoryTerm(name=name, size_bytes=size, explanation=text)
        for name, size, text in terms
        if size or name != "extras"
    )


def _margin_in_words(held: Account) -> str:
    failed = ", and what a failed start did not have" if held.margin > margin_bytes(held.total) else ""
    return f"what the account may be wrong by: half a GiB, 1 % of small cards{failed}"


def _weights_in_words(case: Case, fit: Fit) -> str:
    share = quantized_share(case.model, case.quantization)
    dtype = fit.batch.dtype
    stored = f"{case.quantization.method} for {share:.0%}, the rest {dtype}" if share else dtype
    ranks = fit.batch.tensor_parallel_size
    spread = f", a share of 1/{ranks}" if ranks > 1 else ""
    told = f"{parameter_count(case.model) / 1e9:.2f}e9 parameters ({case.model.kind}), {stored}{spread}"
    return told + told_exact(case, dtype)


def _warnings(case: Case, fit: Fit) -> list[str]:
    warnings = list(format_notes(case, fit.candidate.row))
    if not fit.candidate.seen and case.inputs.nodes is not None:
        warnings.append(f"no visible node has {fit.candidate}: pods wait until one joins")
    return [*warnings, *weights_warnings(case, fit.batch.dtype)]
