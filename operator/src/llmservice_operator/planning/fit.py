"""Does a case fit on a candidate, and at which settings."""

import math
from dataclasses import dataclass, replace

from llmservice_operator.engines.versions import (
    caches_prefixes_of_hybrids,
    gpu_block_size,
    wants_a_state_for_each_sequence,
)
from llmservice_operator.perfmodel.calibration import Correction, calibrated
from llmservice_operator.perfmodel.drafting import drafting_layers, with_drafting_layers
from llmservice_operator.perfmodel.kv_cache import CacheLayout, cache_layout
from llmservice_operator.perfmodel.memory import (
    GIB,
    Account,
    Batch,
    EngineMemoryRules,
    account,
    context_bytes,
    margin_bytes,
    outside_bytes,
    safe_utilization,
    start_limit,
)
from llmservice_operator.perfmodel.quantization import UNQUANTIZED
from llmservice_operator.perfmodel.shapes import AttentionCache, StateCache
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.batches import USUAL_BUDGET, batches, frugal_budgets
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.checked_weights import larger_share
from llmservice_operator.planning.corrected import cache_limit, corrected_weights, lowered, sized
from llmservice_operator.planning.formats import cannot_compute
from llmservice_operator.planning.learnt import learnt
from llmservice_operator.planning.words import gib

CONTEXT_STEP = 256
"""A reduced context is rounded down to a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Settings at which a case fits on a candidate."""

    candidate: Candidate
    batch: Batch
    utilization: float
    context: int
    length: int
    """Tokens of the requests that concurrency is about: p95 of the workload, or the whole context."""
    account: Account
    layout: CacheLayout
    rank_weights_bytes: int
    notes: tuple[str, ...] = ()
    calibration_key: str = ""
    calibration: Correction | None = None
    """What earlier starts with these knobs changed in the account."""

    @property
    def concurrency(self) -> float:
        """Requests of the whole context that fit at once."""
        return self.layout.max_concurrency(self.account.available, self.context)

    @property
    def requests(self) -> float:
        """Requests of the workload's p95 length that fit at once."""
        return self.layout.max_concurrency(self.account.available, self.length)


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """How far a case is from fitting on a candidate."""

    candidate: Candidate
    shortfall_bytes: int
    longest: int
    """The longest context that would be served there at the asked concurrency; 0: none."""
    account: Account | None
    needed_bytes: int
    """KV cache that the floor needs."""
    why: str = ""
    """Where it isn't memory: what cannot run."""
    note: str = ""
    """What takes the memory, where it isn't the account."""


def fit(case: Case, candidate: Candidate) -> Fit | Misfit:
    """The first batch knobs, from generous to frugal, at which the wanted context fits; else those that hold most.

    Raises nothing: what cannot run is a Misfit.
    """
    candidate = sized(case, candidate)
    if (why := cannot_compute(case, candidate.row)) is not None:
        return Misfit(
            candidate=candidate, shortfall_bytes=0, longest=0, account=None, needed_bytes=0, why=why
        )
    if (excess := _loading_excess(case, candidate)) > 0:
        return Misfit(
            candidate=candidate,
            shortfall_bytes=excess,
            longest=0,
            account=None,
            needed_bytes=0,
            note="the weights are loaded in 16 bits before they are quantised; a quantised checkpoint needs half",
        )
    rules = case.rules
    weights = rank_weights(
        case,
        dtype=case.gpu_dtype,
        tensor_parallel_size=candidate.tensor_parallel_size,
        capability=candidate.row.capability,
    )
    best: Fit | Misfit | None = None
    tried = list(batches(case, candidate))
    if weights >= candidate.row.memory_bytes:
        tried = tried[-1:]  # no batch helps; the most frugal one tells the shortfall
    for batch in tried:
        if isinstance(best, Fit) and batch.max_num_seqs < FEWEST_FOR_LENGTH:
            break
        result = _fit_batch(case, candidate, batch, rules, weights)
        if isinstance(result, Fit) and result.context >= case.wish.context:
            return _spare_windows(case, result, rules)
        best = _better(best, result)
    if best is None:
        raise AssertionError("batches() yields at least one")
    return best


def fit_at(case: Case, candidate: Candidate, batch: Batch) -> Fit | Misfit:
    """Whether a case fits on a candidate that can run it, at these batch knobs."""
    weights = rank_weights(
        case,
        dtype=batch.dtype,
        tensor_parallel_size=candidate.tensor_parallel_size,
        capability=candidate.row.capability,
    )
    return _fit_batch(case, candidate, batch, case.rules, weights)


WORTH_A_SMALLER_BUDGET = 1.1
"""So many times the requests must fit before a smaller token budget is taken for them: prompts take longer by it."""


def _spare_windows(case: Case, found: Fit, rules: EngineMemoryRules) -> Fit:
    """A smaller token budget where that makes room for more requests.

    A layer with a window keeps the tokens of the batches in flight for each request, beside the window itself
    (v1/kv_cache_interface.py), so the budget may take more of the cache than the requests do.
    """
    best = found
    if found.requests >= found.batch.max_num_seqs or not windows(found.layout):
        return found
    for tokens in frugal_budgets(case, found.batch, least=USUAL_BUDGET):
        batch = replace(found.batch, max_num_batched_tokens=tokens)
        result = _fit_batch(case, found.candidate, batch, rules, found.rank_weights_bytes)
        if not isinstance(result, Fit) or _more_requests(best, result) < WORTH_A_SMALLER_BUDGET:
            continue
        note = (
            f"max_num_batched_tokens: {tokens:,}, since a request's windows hold the batches in flight: the KV cache "
            f"holds {result.concurrency:.2f} requests of {result.context:,} tokens; with "
            f"{found.batch.max_num_batched_tokens:,} it would hold {found.concurrency:.2f}"
        )
        best = replace(result, notes=(*result.notes, note))
    return best


def _more_requests(before: Fit, after: Fit) -> float:
    """How many times the requests fit, of the whole context or of the workload's length, whichever gains more."""
    return max(after.concurrency / before.concurrency, after.requests / before.requests)


def windows(layout: CacheLayout) -> bool:
    """Whether some layer sees a window of the context only."""
    samples = (group.sample for group in layout.groups)
    return any(isinstance(each, AttentionCache) and each.window > 0 for each in samples)


def _loading_excess(case: Case, candidate: Candidate) -> int:
    """Bytes by which a checkpoint that is quantised while loading exceeds the card in its own format."""
    if not case.quantization.online:
        return 0
    ranks = candidate.tensor_parallel_size
    whole = rank_weight_bytes(case.model, UNQUANTIZED, dtype=case.gpu_dtype, tensor_parallel_size=ranks)
    batch = case.batch(seqs=1, tokens=1, tensor_parallel_size=ranks, dtype=case.gpu_dtype)
    room = candidate.row.memory_bytes - context_bytes(batch) - margin_bytes(candidate.row.memory_bytes)
    return whole - case.switches.cpu_offload_bytes - room


WORTH_A_SMALLER_BATCH = 1.25
"""So many times longer must the context be for fewer sequences: what memory they spare is little, and they are most
of the throughput."""
FEWEST_FOR_LENGTH = 64
"""No fewer sequences are taken for a longer context alone; fewer are tried where nothing fits otherwise."""


def _better(best: Fit | Misfit | None, result: Fit | Misfit) -> Fit | Misfit:
    if best is None:
        return result
    if isinstance(result, Fit):
        longer = isinstance(best, Misfit) or result.context > best.context * WORTH_A_SMALLER_BATCH
        return result if longer else best
    if isinstance(best, Fit):
        return best
    return result if result.shortfall_bytes < best.shortfall_bytes else best


def rank_weights(
    case: Case, *, dtype: str, tensor_parallel_size: int, capability: tuple[int, int] | None = None
) -> int:
    """Weights on one rank, less what is kept in host memory; as a failed start corrected them."""
    derived = rank_weight_bytes(
        case.model,
        case.quantization,
        dtype=dtype,
        tensor_parallel_size=tensor_parallel_size,
        with_vision=case.switches.multimodal,
        capability=capability,
        engine_version=case.version,
    )
    if (share := larger_share(case, dtype)) > 1:
        derived = int(derived * share)
    derived = corrected_weights(case, derived, tensor_parallel_size)
    return max(0, derived - case.switches.cpu_offload_bytes)


def _utilization(
    case: Case, candidate: Candidate, batch: Batch, rules: EngineMemoryRules
) -> tuple[float, str | None, str]:
    """Utilisation, why it can't run, and what a pin costs."""
    total = candidate.row.memory_bytes
    safe = safe_utilization(total_bytes=total, model=case.model, batch=batch, rules=rules)
    safe = max(0.0, math.floor(100 * (safe - lowered(case, candidate)) + 1e-6) / 100)
    pinned = case.spec.engine.pin.gpu_memory_utilization
    if pinned is None:
        return safe, None, ""
    value = float(pinned)
    limit = start_limit(total_bytes=total, model=case.model, batch=batch, rules=rules)
    pinned_at = f"gpu_memory_utilization is pinned at {value:g}"
    if value > limit:
        blocked = (
            f"spec.engine.pin.gpuMemoryUtilization is {value:g}: it leaves {total * (1 - value) / GIB:.2f} GiB of "
            f"{candidate.row.name} outside of the engine's budget, and the start needs more there at max_num_seqs "
            f"{batch.max_num_seqs} (context, graphs, workspace, sampler); at most "
            f"{math.floor(limit * 100) / 100:g} can start, {safe:g} is safe"
        )
        return value, blocked, ""
    if value > safe:
        need = outside_bytes(case.model, batch, rules) / GIB
        return (
            value,
            None,
            f"{pinned_at}, above {safe:g}: serving may need {need:.2f} GiB outside of the budget",
        )
    if value == safe:
        return value, None, ""
    return (
        value,
        None,
        f"{pinned_at}, below {safe:g}: it costs {(safe - value) * total / GIB:.2f} GiB of KV cache",
    )


def _fit_batch(
    case: Case, candidate: Candidate, batch: Batch, rules: EngineMemoryRules, weights: int
) -> Fit | Misfit:
    known = learnt(case, candidate, batch, rules, weights)
    candidate = known.sized(candidate)
    utilization, blocked, note = _utilization(case, candidate, batch, rules)
    result = account(
        total_bytes=candidate.row.memory_bytes,
        utilization=utilization,
        weights_bytes=weights,
        model=case.model,
        batch=batch,
        rules=rules,
    )
    if known.correction is not None:
        result = calibrated(result, known.correction)
    layout = _layout(case, candidate, batch)
    result, margin_note = _margin(case, result)
    available = _available(case, candidate, result)
    if available < result.available:
        # What a failed start did not have is in no figure of the plan.
        result = replace(result, margin=result.margin + result.available - available)
    blocked = blocked or _states_pinned_away(case, layout, available)
    longest = longest_context(case, layout, available)
    needed = needed_bytes(case, layout, case.wish.floor)
    if blocked is not None or longest < case.wish.floor:
        return Misfit(
            candidate=candidate,
            shortfall_bytes=0 if blocked else max(1, needed - available),
            longest=longest,
            account=result,
            needed_bytes=needed,
            why=blocked or "",
        )
    seqs = _seqs_for_states(case, layout, available, batch)
    if seqs < batch.max_num_seqs:
        # Fewer sequences leave more for the cache, so at least as many are allowed then.
        return _fit_batch(case, candidate, replace(batch, max_num_seqs=seqs), rules, weights)
    return Fit(
        candidate=candidate,
        batch=batch,
        utilization=utilization,
        context=_rounded(longest, case),
        length=case.wish.concurrency_tokens(_rounded(longest, case)),
        account=result,
        layout=layout,
        rank_weights_bytes=weights,
        notes=tuple(each for each in (note, margin_note) if each),
        calibration_key=known.key,
        calibration=known.correction,
    )


def _layout(case: Case, candidate: Candidate, batch: Batch) -> CacheLayout:
    """Groups and blocks of the KV cache there."""
    return cache_layout(
        with_drafting_layers(case.model, drafting_layers(case.model, case.switches.draft_method)),
        case.cache_settings(
            batch,
            block_size=gpu_block_size(case.version, case.model, candidate.row.compute_capability),
            hybrid_prefixes=caches_prefixes_of_hybrids(case.version),
        ),
    )


def _margin(case: Case, result: Account) -> tuple[Account, str]:
    """Who pins both length and utilisation has measured: the margin isn't held against that, but it is said."""
    pin = case.spec.engine.pin
    if pin.max_model_len is None or pin.gpu_memory_utilization is None:
        return result, ""
    note = (
        f"max_model_len and gpu_memory_utilization are pinned: the margin of {gib(result.margin)} is given up"
    )
    return replace(result, margin=0), note


def _available(case: Case, candidate: Candidate, result: Account) -> int:
    """KV memory; never more than a failed start had on the same cards."""
    seen = cache_limit(case, candidate)
    return result.available if seen is None else min(result.available, seen)


def needed_bytes(case: Case, layout: CacheLayout, context: int) -> int:
    """KV memory for one request of this context, and for the asked concurrency."""
    wish = case.wish
    blocks = wish.concurrency * layout.blocks_per_request(wish.concurrency_tokens(context))
    return max(layout.needed_bytes(context), (blocks + 1) * layout.bytes_per_block)


def longest_context(case: Case, layout: CacheLayout, available_bytes: int) -> int:
    """The longest context, at most the wanted one, that the pool holds with the asked concurrency."""
    low, high = 0, case.wish.context
    while low < high:
        middle = (low + high + 1) // 2
        if needed_bytes(case, layout, middle) <= available_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _rounded(longest: int, case: Case) -> int:
    """A reduced context is a round number, unless the floor is above it."""
    if longest >= case.wish.context:
        return case.wish.context
    return max(case.wish.floor, longest // CONTEXT_STEP * CONTEXT_STEP)


def _seqs_for_states(case: Case, layout: CacheLayout, available: int, batch: Batch) -> int:
    """At most one sequence for each state block, or graph capture refuses (config/compilation.py)."""
    states = sum(1 for group in layout.groups if isinstance(group.sample, StateCache))
    if not states or case.spec.engine.pin.max_num_seqs:
        return batch.max_num_seqs
    return max(1, min(batch.max_num_seqs, layout.blocks(available) // layout.blocks_per_request(1)))


def _states_pinned_away(case: Case, layout: CacheLayout, available: int) -> str | None:
    """Why a pinned max_num_seqs can't run: graphs of a model with states want a block for each sequence."""
    pinned, args = case.spec.engine.pin.max_num_seqs, case.spec.engine.args
    blocks = layout.blocks(max(0, available))
    captured = not case.switches.enforce_eager and not any("compilation" in name for name in args)
    if not pinned or not case.model.has_state or not captured:
        return None
    if not wants_a_state_for_each_sequence(case.version):
        return None
    if not 0 < blocks < pinned:  # no block at all is a matter of memory
        return None
    return (
        f"spec.engine.pin.maxNumSeqs is {pinned:,}: it exceeds the {blocks:,} blocks of states that the KV cache has, "
        f"and graphs can't be captured; at most {blocks:,}"
    )
