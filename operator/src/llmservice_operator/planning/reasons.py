"""Why a plan is what it is: one line for each choice, with the alternative that was passed over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.kv_cache import CacheLayout, cache_layout
from llmservice_operator.perfmodel.memory import outside_margin_bytes
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.fit import Fit, Misfit
from llmservice_operator.planning.formats import cannot_compute
from llmservice_operator.planning.learnt import told
from llmservice_operator.planning.objectives import Choice
from llmservice_operator.planning.prediction import KV_CAPACITY
from llmservice_operator.planning.types import PlannedSpeed
from llmservice_operator.planning.words import gib, seconds, tokens

MOST_PASSED = 3
"""Candidates that were passed over and are told of."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """A candidate that was looked at and not taken."""

    candidate: Candidate
    why: str


def passed_over(misfit: Misfit) -> Passed:
    """A candidate that doesn't fit or can't run."""
    return Passed(candidate=misfit.candidate, why=misfit.why or f"{gib(misfit.shortfall_bytes)} short")


def too_slow(choice: Choice) -> Passed:
    """A candidate that misses an objective."""
    speed = choice.speed
    pace = f"TPOT {seconds(speed.tpot_p95_seconds)} and TTFT {seconds(speed.ttft_p95_seconds)} at p95 are expected"
    return Passed(
        candidate=choice.fit.candidate, why=f"{pace}, {choice.excess:.1f} times what spec.slo allows"
    )


def reasons(case: Case, choice: Choice, passed: Sequence[Passed]) -> Iterator[str]:
    """All lines, the accelerator first."""
    found = choice.fit
    yield from _accelerator(case, found, passed)
    yield _length(case, found)
    if case.spec.engine.pin.gpu_memory_utilization is None:
        yield (
            f"gpu_memory_utilization: {found.utilization:g}, the highest that leaves {gib(found.account.outside)} of "
            f"{found.candidate.row.name} for the context, graphs and growth outside of the budget, and "
            f"{gib(outside_margin_bytes(found.account.total))} for what that may be wrong by"
        )
    yield from found.notes
    if found.calibration is not None:
        yield told(found.calibration, found.account)
    yield from choice.notes
    yield (
        f"max_num_seqs {found.batch.max_num_seqs}, max_num_batched_tokens {found.batch.max_num_batched_tokens}: "
        f"the KV cache holds {found.concurrency:.2f} requests of {tokens(found.context)}"
    )
    yield from _cache_format(case, choice)
    yield speed_in_words(choice.speed)


def _accelerator(case: Case, found: Fit, passed: Sequence[Passed]) -> Iterator[str]:
    taken = found.candidate
    kept = taken.row.name == case.inputs.current_accelerator
    why = "as the service runs on it" if kept else "the cheapest that fits"
    yield f"accelerator: {taken}, {why}" + ("" if taken.seen else " (no node with it is visible yet)")
    worth = [each for each in passed if each.candidate.cost < taken.cost or not each.candidate.seen]
    for each in worth[:MOST_PASSED]:
        yield f"not {each.candidate}: {each.why}"


def _cache_format(case: Case, choice: Choice) -> Iterator[str]:
    """Whose word the format is; and what FP8 would hold, where the cache is what there is too little of."""
    found = choice.fit
    if case.kv_cache_dtype != case.kv_cache_flag:
        yield f"kv_cache_dtype: the checkpoint asks for {case.kv_cache_dtype}, which the engine takes for auto"
        return
    scarce = found.context < case.wish.context or choice.speed.bottleneck == KV_CAPACITY
    if case.kv_cache_flag != "auto" or not scarce:
        return
    narrow = case.with_engine(kv_cache_dtype="fp8")
    if cannot_compute(narrow, found.candidate.row) is None:
        more = (
            _layout(narrow, found).max_concurrency(found.account.available, found.context) / found.concurrency
        )
        if more > 1:
            yield (
                f"kv_cache_dtype: auto; fp8 would hold {more:.2f} times the requests, and isn't taken unasked "
                "(spec.engine.kvCacheDtype)"
            )


def _layout(case: Case, found: Fit) -> CacheLayout:
    """The same blocks in another format of the cache."""
    settings = replace(found.layout.settings, kv_cache_dtype=case.kv_cache_dtype)
    return cache_layout(case.model, settings)


def _length(case: Case, found: Fit) -> str:
    if found.context < case.wish.context:
        return (
            f"max_model_len: {tokens(found.context)} of {case.wish.context:,} wanted, as much as "
            f"{gib(found.account.available)} of KV cache hold"
        )
    said = case.spec.workload.context.max
    capped = (
        f"; {said:,} were asked for, the model has {case.model.max_model_len:,}"
        if said and said > found.context
        else ""
    )
    return f"max_model_len: {tokens(found.context)}{capped}"


def speed_in_words(speed: PlannedSpeed) -> str:
    """The prediction in one sentence."""
    lengths = f"{speed.input_tokens:,} tokens in and {speed.output_tokens:,} out"
    assumed = " (assumed: the workload says none)" if speed.assumed else ""
    at_once = f"{speed.batch} request{'' if speed.batch == 1 else 's'} at once"
    return (
        f"expected at {at_once} of {lengths}{assumed}: TTFT {seconds(speed.ttft_seconds)}, TPOT "
        f"{seconds(speed.tpot_seconds)}, {speed.tokens_per_second:,.0f} tokens/s, {speed.requests_per_second:.2f} "
        f"requests/s; bound by {speed.bottleneck}"
    )
