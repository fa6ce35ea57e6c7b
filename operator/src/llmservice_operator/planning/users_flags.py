"""The user's further flags that move memory, asked of the estimate: does the engine start with the plan's and theirs.

The plan itself reads the flags of `READ_BY_THE_PLAN` (case.py). Any other that memory depends on, such as the sizes of
CUDA graphs or expert parallelism, is put beside the plan's settings into `estimate`, which knows them all.
"""

from dataclasses import replace

from llmservice_operator.engines.flags import MEMORY_FLAGS
from llmservice_operator.engines.vllm import canonical_args
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.memory import MIB
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.estimate import EstimateInputs, estimate
from llmservice_operator.planning.fit import Fit, Misfit
from llmservice_operator.planning.words import gib

READ_BY_THE_PLAN = frozenset(
    {
        "dtype", "enforce_eager", "optimization_level", "language_model_only", "limit_mm_per_prompt", "enable_lora",
        "max_loras", "max_lora_rank", "speculative_config", "spec_method", "spec_model", "spec_tokens",
        "cpu_offload_gb", "mamba_ssm_cache_dtype",
    }
)  # fmt: skip
WORTH_A_WORD_BYTES, WORTH_A_WORD_SHARE = 64 * MIB, 0.98


def with_users_flags(case: Case, found: Fit) -> Fit | Misfit:
    """The fit, with what the user's other flags take from the KV cache; a misfit where the engine can't start."""
    args = canonical_args(case.spec.engine.args)
    moving = [name for name in args if _moves_memory(name)]
    if not moving or case.inputs.model is None:
        return found
    named = ", ".join(f"spec.engine.args.{name}" for name in moving)
    try:
        result = estimate(
            EstimateInputs(
                config=case.inputs.model.config,
                card=found.candidate.row,
                engine_version=case.inputs.engine_version,
                flags=(*_planned(case, found), *args.items()),
                env={each.name: each.value or "" for each in case.spec.engine.env},
            )
        )
    except InvalidInputError as error:
        return _misfit(found, str(error).replace("--set ", "spec.engine.args: "))
    if not result.fits:
        return _misfit(found, f"with {named} the engine doesn't start: {result.warnings[0]}")
    less = found.account.available - result.memory.kv_cache_bytes
    held = result.kv_cache.max_concurrency
    if less <= WORTH_A_WORD_BYTES and held >= found.concurrency * WORTH_A_WORD_SHARE:
        return found
    note = (
        f"{named}: the KV cache then has {gib(result.memory.kv_cache_bytes)} and holds {held:.2f} requests of "
        f"{found.context:,} tokens; told here are {gib(found.account.available)} and {found.concurrency:.2f}"
    )
    return replace(found, notes=(*found.notes, note))


def _moves_memory(name: str) -> bool:
    flag = name.partition(".")[0].replace("-", "_")
    return flag in MEMORY_FLAGS and flag not in READ_BY_THE_PLAN


def _planned(case: Case, found: Fit) -> tuple[tuple[str, str], ...]:
    values = {
        "max_model_len": found.context,
        "gpu_memory_utilization": found.utilization,
        "max_num_seqs": found.batch.max_num_seqs,
        "max_num_batched_tokens": found.batch.max_num_batched_tokens,
        "kv_cache_dtype": case.kv_cache_flag,
        "tensor_parallel_size": found.batch.tensor_parallel_size,
    }
    if case.spec.engine.quantization != "auto":
        values["quantization"] = case.spec.engine.quantization
    if case.spec.engine.pin.block_size is not None:
        values["block_size"] = case.spec.engine.pin.block_size
    return tuple((name, str(value)) for name, value in values.items())


def _misfit(found: Fit, why: str) -> Misfit:
    return Misfit(
        candidate=found.candidate, shortfall_bytes=0, longest=0, account=None, needed_bytes=0, why=why
    )
