"""Batch knobs that keep the objectives of spec.slo, and by how much an objective is missed where none do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from llmservice_operator.api.durations import parse_duration_seconds
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.planning.batches import frugal_budgets, with_sequences
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.fit import Fit, fit_at
from llmservice_operator.planning.prediction import (
    TPOT_TAIL,
    Load,
    load_of,
    predict,
    speed_model,
    tpot_seconds,
)
from llmservice_operator.planning.types import PlannedSpeed
from llmservice_operator.planning.words import gib, seconds

CAPTURE_STEP = 8
"""Batches are captured at multiples of this, so a batch between two runs as the larger (config/vllm.py)."""


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """What clients are promised; None: nothing."""

    ttft_p95_seconds: float | None
    tpot_p95_seconds: float | None

    def excess(self, speed: PlannedSpeed) -> float:
        """The larger of predicted over promised; at most 1 where all is kept."""
        pairs = (
            (speed.ttft_p95_seconds, self.ttft_p95_seconds),
            (speed.tpot_p95_seconds, self.tpot_p95_seconds),
        )
        return max((expected / wanted for expected, wanted in pairs if wanted), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A fit with the speed that is expected of it."""

    fit: Fit
    speed: PlannedSpeed
    excess: float = 0.0
    """The larger of predicted over promised; above 1 an objective is missed."""
    notes: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether all objectives are kept."""
        return self.excess <= 1.0


def objectives_of(spec: LLMServiceSpec) -> Objectives | None:
    """The objectives of spec.slo in seconds; None where there are none."""
    ttft, tpot = spec.slo.ttft.p95, spec.slo.tpot.p95
    if ttft is None and tpot is None:
        return None
    return Objectives(
        ttft_p95_seconds=None if ttft is None else parse_duration_seconds(ttft, field="spec.slo.ttft.p95"),
        tpot_p95_seconds=None if tpot is None else parse_duration_seconds(tpot, field="spec.slo.tpot.p95"),
    )


def expected(case: Case, fit: Fit) -> Choice:
    """The fit as it is, with its speed."""
    return _measured(fit, load_of(case, fit.context), _model(case, fit))


def tune(case: Case, fit: Fit, objectives: Objectives) -> Choice:
    """The first batch knobs that keep the objectives, from this fit's to more frugal ones; else the closest.

    Fewer sequences make each token faster, and others wait longer to be let in. A smaller token budget makes the
    steps shorter that carry a prompt, and the prompt takes more of them.
    """
    load = load_of(case, fit.context)
    best: Choice | None = None
    for base in _budgets(case, fit):
        choice = _with_pace(case, base, load, objectives)
        if choice.keeps:
            return choice
        best = choice if best is None or choice.excess < best.excess else best
        if objectives.tpot_p95_seconds and _alone(case, base, load) > objectives.tpot_p95_seconds:
            break  # no budget makes a single request faster
    if best is None:
        raise AssertionError("_budgets() yields the fit itself")
    return best


def _budgets(case: Case, fit: Fit) -> Iterator[Fit]:
    yield fit
    for tokens in frugal_budgets(case, fit.batch):
        found = fit_at(case, fit.candidate, replace(fit.batch, max_num_batched_tokens=tokens))
        if isinstance(found, Fit) and found.context >= fit.context:
            yield found


def _model(case: Case, fit: Fit) -> SpeedModel:
    return speed_model(
        case,
        fit.candidate,
        dtype=fit.batch.dtype,
        seqs=fit.batch.max_num_seqs,
        tokens=fit.batch.max_num_batched_tokens,
        context=fit.context,
    )


def _alone(case: Case, fit: Fit, load: Load) -> float:
    return tpot_seconds(_model(case, fit), load, 1) * TPOT_TAIL


def held_requests(fit: Fit, load: Load) -> int:
    """Requests of mean length that the KV cache holds while they run."""
    layout = fit.layout
    length = min(fit.context, max(1, round(load.context)))
    return max(1, int(layout.blocks(fit.account.available) / layout.blocks_per_request(length)))


def _with_pace(case: Case, base: Fit, load: Load, objectives: Objectives) -> Choice:
    """As many sequences as the objective for TPOT allows, never fewer than the workload asks for."""
    model = _model(case, base)
    limit = objectives.tpot_p95_seconds
    found, note = base, ""
    if limit is not None and case.spec.engine.pin.max_num_seqs is None:
        allowed = largest_batch(
            lambda batch: tpot_seconds(model, load, batch) * TPOT_TAIL, limit, base.batch.max_num_seqs
        )
        seqs = max(_captured(allowed), case.wish.concurrency, 1)
        if seqs < base.batch.max_num_seqs:
            fewer = fit_at(case, base.candidate, with_sequences(base.batch, seqs))
            if isinstance(fewer, Fit) and fewer.context >= base.context:
                found, note = fewer, _slower(model, load, seqs, limit)
                model = _model(case, found)
    choice = _measured(found, load, model)
    return replace(choice, excess=objectives.excess(choice.speed), notes=(note,) if note else ())


def _slower(model: SpeedModel, load: Load, seqs: int, limit: float) -> str:
    """What one more step of sequences would have cost."""
    more = seqs + CAPTURE_STEP
    kept, worse = (seconds(tpot_seconds(model, load, each) * TPOT_TAIL) for each in (seqs, more))
    return (
        f"max_num_seqs: {seqs}, the largest batch within spec.slo.tpot.p95 of {seconds(limit)} (expected {kept}); "
        f"{more} would take {worse}"
    )


def _captured(batch: int) -> int:
    return batch if batch < CAPTURE_STEP else batch // CAPTURE_STEP * CAPTURE_STEP


def largest_batch(pace: Callable[[int], float], limit_seconds: float, most: int) -> int:
    """The largest batch, at most `most`, whose pace is within the limit; 0: not even one request."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if pace(middle) <= limit_seconds:
            low = middle
        else:
            high = middle - 1
    return low


def _measured(fit: Fit, load: Load, model: SpeedModel) -> Choice:
    held, seqs = held_requests(fit, load), fit.batch.max_num_seqs
    speed = predict(model, load, batch=max(1, min(held, seqs)), held=held, wanted=seqs)
    return Choice(fit=fit, speed=speed)


def missed(case: Case, choice: Choice, objectives: Objectives, nearest: Choice) -> tuple[str, ...]:
    """Each objective that the choice doesn't keep: by how much, and what it is bound by."""
    speed, where = choice.speed, choice.fit.candidate
    closest = ""
    if nearest.excess < choice.excess / 1.05:
        tpot, ttft = seconds(nearest.speed.tpot_p95_seconds), seconds(nearest.speed.ttft_p95_seconds)
        closest = f"; {nearest.fit.candidate} comes closest of what is allowed: TPOT {tpot}, TTFT {ttft}"
    texts = []
    limit = objectives.tpot_p95_seconds
    if limit is not None and speed.tpot_p95_seconds > limit:
        at_once = f"{speed.batch} request{'' if speed.batch == 1 else 's'} at once"
        texts.append(
            f"spec.slo.tpot.p95 of {seconds(limit)} is missed: {seconds(speed.tpot_p95_seconds)} a token expected on "
            f"{where} with {at_once}, {speed.tpot_p95_seconds / limit:.1f} times as long; {_bound(case, choice)}"
            f"{closest}"
        )
    limit = objectives.ttft_p95_seconds
    if limit is not None and speed.ttft_p95_seconds > limit:
        texts.append(
            f"spec.slo.ttft.p95 of {seconds(limit)} is missed: {seconds(speed.ttft_p95_seconds)} expected on {where} "
            f"for a prompt of {speed.input_p95_tokens:,} tokens, {speed.ttft_p95_seconds / limit:.1f} times as long; "
            f"prompts are {speed.prefill_regime} there{closest}"
        )
    return tuple(texts)


def _bound(case: Case, choice: Choice) -> str:
    """What no setting can beat: each step reads the weights (of a mixture, those of the experts that are asked)."""
    found, regime = choice.fit, choice.speed.decode_regime
    if case.model.mixture is not None:
        return f"steps are {regime} there"
    bandwidth = found.candidate.row.memory_bandwidth_bytes_per_second
    least = found.rank_weights_bytes / bandwidth
    return (
        f"steps are {regime} there: reading {gib(found.rank_weights_bytes)} of weights at {bandwidth / 1e9:,.0f} GB/s "
        f"alone takes {seconds(least)}"
    )
