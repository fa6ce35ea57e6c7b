"""The account of one accelerator at given settings, and every reason why the start would fail there."""

from dataclasses import dataclass
from typing import Any

from llmservice_operator.engines.versions import wants_a_state_for_each_sequence
from llmservice_operator.perfmodel.formats import why_it_cannot_run
from llmservice_operator.perfmodel.kv_cache import bytes_per_token
from llmservice_operator.perfmodel.memory import GIB, context_bytes, outside_bytes, outside_start_bytes
from llmservice_operator.perfmodel.quantization import UNQUANTIZED
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache
from llmservice_operator.perfmodel.sharding import why_it_does_not_split
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.estimate_field import field_warnings
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_trial import Trial, cache_settings, make_trial
from llmservice_operator.planning.estimate_types import Outcome
from llmservice_operator.planning.estimate_words import explain_gpu
from llmservice_operator.planning.words import gib, tokens

GROWTH_SLACK_BYTES = GIB // 4
"""What serving takes is an upper figure: less than this beyond what is left is no reason to warn (an L4 at 0.92
served)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why the start fails, and how many bytes are missing; 0: it isn't memory."""

    text: str
    shortfall_bytes: int = 0


def estimate_gpu(model: Architecture, settings: Settings, *, free_bytes: int | None) -> Outcome:
    """The account of one rank, and whether the start survives."""
    trial = make_trial(model, settings, free_bytes=free_bytes)
    problems = [each for check in CHECKS if (each := check(trial)) is not None]
    return Outcome(
        memory=_memory(trial),
        kv_cache=_kv_cache(trial),
        max_model_len=trial.length,
        problems=tuple(each.text for each in problems),
        shortfall_bytes=max((each.shortfall_bytes for each in problems), default=0),
        warnings=tuple(_warnings(trial)),
        explain=explain_gpu(trial),
    )


def _memory(trial: Trial) -> dict[str, int]:
    held = trial.account
    return {
        "total_bytes": held.total,
        "requested_bytes": held.requested,
        "weights_bytes": held.weights + held.extras,
        "activation_bytes": held.activation,
        "non_torch_bytes": held.non_torch,
        "cuda_graph_bytes": held.graphs,
        "cuda_graph_charged_bytes": held.graphs_charged,
        "kv_cache_bytes": max(0, trial.pool_bytes),
        "outside_budget_bytes": held.outside,
    }


def _kv_cache(trial: Trial) -> dict[str, Any]:
    length = trial.length or 1
    concurrency = trial.layout.concurrency(trial.blocks, trial.rank_tokens(length))
    return {
        "tokens": int(concurrency * length),
        "blocks": trial.blocks,
        "block_size": trial.layout.block_size,
        "bytes_per_token": bytes_per_token(trial.model, cache_settings(trial.settings)),
        "max_concurrency": concurrency,
    }


def _cannot_run(trial: Trial) -> Problem | None:
    """A format that the card can't compute in."""
    settings = trial.settings
    why = why_it_cannot_run(
        settings.card,
        dtype=settings.dtype,
        kv_cache_dtype=settings.kv_cache_dtype,
        quantization=settings.quantization,
        engine_version=settings.version,
    )
    if why is None:
        return None
    words = {"spec.engine.args.dtype": "dtype", "spec.engine.kvCacheDtype": "kv_cache_dtype"}
    for said, flag in words.items():
        why = why.replace(said, flag)
    return Problem(text=why)


def _does_not_split(trial: Trial) -> Problem | None:
    """Ranks that the model can't be split over, or tokens that they can't share out (config/model.py)."""
    settings = trial.settings
    tensor, shared = settings.parallel.tensor, settings.parallel.context
    why = why_it_does_not_split(
        trial.whole, settings.quantization, tensor, expert_parallel=settings.parallel.experts
    )
    if why is not None:
        return Problem(text=f"tensor_parallel_size {tensor}: {why}")
    latent = any(isinstance(each, AttentionCache) and each.kind == "latent" for each in trial.whole.caches)
    copies = tensor // trial.whole.num_kv_heads
    if shared > 1 and (tensor % shared or (not latent and shared > copies)):
        return Problem(
            text=f"decode_context_parallel_size {shared}: it shares out what {tensor} ranks keep alike, and "
            f"{'they' if latent else f'each of the {trial.whole.num_kv_heads} KV heads'} can't be shared by {shared}"
        )
    return None


def _not_free(trial: Trial) -> Problem | None:
    """`Free memory on device ... is less than desired GPU memory utilization` (v1/worker/utils.py)."""
    if trial.free_bytes is None:
        return None
    free = trial.free_bytes - context_bytes(trial.batch)
    missing = trial.account.requested - free
    if missing <= 0:
        return None
    highest = max(0.0, free / trial.account.total)
    return Problem(
        text=f"free memory of {gib(free)} is less than the requested {gib(trial.account.requested)}; "
        f"gpu_memory_utilization of {int(highest * 100) / 100:g} would pass",
        shortfall_bytes=missing,
    )


def _loading_peak(trial: Trial) -> Problem | None:
    """A checkpoint that is quantised while loading is on the card in 16 bits first."""
    if not trial.settings.quantization.online:
        return None
    whole = rank_weight_bytes(
        trial.model,
        UNQUANTIZED,
        dtype=trial.settings.dtype,
        tensor_parallel_size=trial.settings.parallel.tensor,
    )
    missing = whole - trial.settings.cpu_offload_bytes - trial.account.total + context_bytes(trial.batch)
    if missing <= 0:
        return None
    return Problem(
        text=f"the weights of {gib(whole)} are loaded in 16 bits before they are quantised: {gib(missing)} short; "
        "take a quantised checkpoint",
        shortfall_bytes=missing,
    )


def _weights_too_large(trial: Trial) -> Problem | None:
    """The weights alone exceed the card: the load dies."""
    held = trial.account
    missing = held.weights + held.extras + context_bytes(trial.batch) - held.total
    if missing <= 0:
        return None
    return Problem(
        text=f"the weights of {gib(held.weights + held.extras)} exceed the card of {gib(held.total)}: "
        f"{gib(missing)} short; take more ranks, a larger card or quantised weights",
        shortfall_bytes=missing,
    )


def _no_room_outside(trial: Trial) -> Problem | None:
    """Context, graphs, workspace and the sampler's warm-up find no room beside the budget."""
    needed = outside_start_bytes(trial.model, trial.batch, trial.rules)
    left = trial.left_outside_bytes
    if needed <= left:
        return None
    text = (
        f"{_set_by(trial)} leaves {gib(max(0, left))} outside of the engine's budget, and the start needs "
        f"{gib(needed)} there (context, graphs, workspace, sampler): it dies in its warm-up"
    )
    if trial.given_pool_bytes is None:
        limit = max(0.0, 1 - (needed + trial.taken_by_others_bytes) / trial.account.total)
        text += f"; at most {int(limit * 100) / 100:g} can start"
    return Problem(text=text, shortfall_bytes=needed - left)


def _set_by(trial: Trial) -> str:
    """The flag that decides how much of the card the engine takes."""
    if trial.settings.blocks_override is not None:
        return f"num_gpu_blocks_override {trial.settings.blocks_override:,}"
    if trial.settings.kv_cache_bytes is not None:
        return f"kv_cache_memory_bytes of {gib(trial.settings.kv_cache_bytes)}"
    return f"gpu_memory_utilization {trial.settings.utilization:g}"


def _pool_too_small(trial: Trial) -> Problem | None:
    """`No available memory for the cache blocks`, or not enough for one request (kv_cache_planning.py)."""
    length = trial.settings.max_model_len or 1
    needed, available = trial.needed_bytes(length), trial.pool_bytes
    if needed <= available:
        return None
    if available <= 0:
        rest = "weights, activation and the rest take the whole budget"
        return Problem(
            text=f"no memory for the KV cache: {rest}; one request of {tokens(length)} needs {gib(needed)}, "
            f"{gib(needed - available)} short",
            shortfall_bytes=needed - available,
        )
    longest = trial.longest_request(length)
    return Problem(
        text=f"one request of {tokens(length)} needs {gib(needed)} of KV cache and {gib(available)} are left: "
        f"{gib(needed - available)} short; "
        + (f"max_model_len of {longest:,} fits" if longest > 0 else "not one block of tokens fits"),
        shortfall_bytes=needed - available,
    )


def _too_few_states(trial: Trial) -> Problem | None:
    """`max_num_seqs exceeds available Mamba cache blocks` (config/compilation.py): graphs want a state a sequence."""
    if not (trial.model.has_state and trial.settings.captures.full):
        return None
    if not wants_a_state_for_each_sequence(trial.settings.version):
        return None
    if trial.available <= 0 or trial.settings.max_num_seqs <= trial.blocks:
        return None
    return Problem(
        text=f"max_num_seqs {trial.settings.max_num_seqs} exceeds the {trial.blocks} blocks of states: graphs can't be "
        f"captured; lower max_num_seqs to at most {trial.blocks}",
        shortfall_bytes=(trial.settings.max_num_seqs - trial.blocks) * trial.layout.bytes_per_block,
    )


CHECKS = (
    _cannot_run,
    _does_not_split,
    _weights_too_large,
    _loading_peak,
    _not_free,
    _pool_too_small,
    _too_few_states,
    _no_room_outside,
)
"""In the order in which the engine would find out."""


def _warnings(trial: Trial) -> list[str]:
    found = []
    left = trial.left_outside_bytes
    needed = outside_bytes(trial.model, trial.batch, trial.rules)
    if needed > left + GROWTH_SLACK_BYTES:
        found.append(
            f"serving may need {gib(needed)} outside of the budget (context, graphs, workspace, growth), and "
            f"{_set_by(trial)} leaves {gib(max(0, left))} of {gib(trial.account.total)}"
        )
    found += field_warnings(trial)
    if trial.settings.speculation.has_weights:
        found.append("speculative decoding: the draft's own config isn't read; its memory is an estimate")
    if trial.settings.blocks_override is not None and (
        trial.settings.blocks_override * trial.layout.bytes_per_block > max(0, trial.available)
    ):
        found.append("num_gpu_blocks_override asks for more blocks than the budget has")
    return found
