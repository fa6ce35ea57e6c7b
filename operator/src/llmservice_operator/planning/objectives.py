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
    Load,
    load_of,
    predict,
    speed_model,
    tpot_p95_seconds,
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

    def ttft_excess(self, speed: PlannedSpeed) -> float:
        """Predicted over promised TTFT; 0 where nothing is promised."""
        return speed.ttft_p95_seconds / self.ttft_p95_seconds if self.ttft_p95_seconds else 0.0

    def tpot_excess(self, speed: PlannedSpeed) -> float:
        """Predicted over promised TPOT; 0 where nothing is promised."""
        return speed.tpot_p95_seconds / self.tpot_p95_seconds if self.tpot_p95_seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A fit with the speed that is expected of it."""

    fit: Fit
    speed: PlannedSpeed
    excess: float = 0.0
    """The larger of predicted over promised; above 1 an objective is missed."""
    alone: float | None = None
    """TPOT at p95 of one request alone in seconds, where even that misses the objective."""
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
        if choice.alone is not None:
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


def held_requests(fit: Fit, load: Load) -> int:
    """Requests of mean length that the KV cache holds while they run."""
    layout = fit.layout
    length = min(fit.context, max(1, round(load.context)))
    return max(1, int(layout.blocks(fit.account.available) / layout.blocks_per_request(length)))


def _with_pace(case: Case, base: Fit, load: Load, objectives: Objectives) -> Choice:
    """As many sequences as the objective for TPOT allows, never fewer than the workload asks for.

    Where not even one request keeps it, the batch is left as it is: fewer requests at once would help nobody.
    """
    model, limit = _model(case, base), objectives.tpot_p95_seconds
    if limit is None or case.spec.engine.pin.max_num_seqs is not None:
        return _judged(_measured(base, load, model), objectives)

    def pace(batch: int) -> float:
        return tpot_p95_seconds(model, load, batch)

    allowed = largest_batch(pace, limit, base.batch.max_num_seqs)
    if allowed == 0:
        choice = _judged(_measured(base, load, model), objectives)
        return replace(
            choice, alone=pace(1), excess=max(pace(1) / limit, objectives.ttft_excess(choice.speed))
        )
    seqs = max(_captured(allowed), case.wish.concurrency)
    if seqs >= base.batch.max_num_seqs:
        return _judged(_measured(base, load, model), objectives)
    fewer = fit_at(case, base.candidate, with_sequences(base.batch, seqs))
    if not isinstance(fewer, Fit) or fewer.context < base.context:
        return _judged(_measured(base, load, model), objectives)
    choice = _judged(_measured(fewer, load, _model(case, fewer)), objectives)
    return replace(choice, notes=(_slower(model, load, seqs, limit),))


def _judged(choice: Choice, objectives: Objectives) -> Choice:
    speed = choice.speed
    return replace(choice, excess=max(objectives.ttft_excess(speed), objectives.tpot_excess(speed)))


def _slower(model: SpeedModel, load: Load, seqs: int, limit: float) -> str:
    """What one more step of sequences would have cost."""
    more = seqs + CAPTURE_STEP
    here, worse = (tpot_p95_seconds(model, load, each) for each in (seqs, more))
    promised = f"spec.slo.tpot.p95 of {seconds(limit)}"
    if here > limit:
        return f"max_num_seqs: {seqs}, as spec.workload.concurrency.min asks; that is more than {promised} allows"
    return (
        f"max_num_seqs: {seqs}, the largest batch within {promised} (expected {seconds(here)}); {more} would take "
        f"{seconds(worse)}"
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
    speed, where = choice.speed, str(choice.fit.candidate)
    closest = ""
    if nearest.excess < choice.excess / 1.05:
        tpot = seconds(nearest.alone or nearest.speed.tpot_p95_seconds)
        ttft = seconds(nearest.speed.ttft_p95_seconds)
        closest = f"; {nearest.fit.candidate} comes closest of what is allowed: TPOT {tpot}, TTFT {ttft}"
    texts = []
    if objectives.tpot_excess(speed) > 1:
        texts.append(_missed_tpot(speed, where, objectives, choice.alone) + _bound(case, choice) + closest)
    if objectives.ttft_excess(speed) > 1:
        texts.append(_missed_ttft(speed, where, objectives) + closest)
    return tuple(texts)


def _missed_tpot(speed: PlannedSpeed, where: str, objectives: Objectives, alone: float | None) -> str:
    limit = objectives.tpot_p95_seconds or 1.0
    expected_seconds, load = speed.tpot_p95_seconds, f"{speed.batch} requests at once"
    if alone is not None or speed.batch == 1:
        expected_seconds, load = alone or expected_seconds, "a single request"
    return (
        f"spec.slo.tpot.p95 of {seconds(limit)} is missed: {seconds(expected_seconds)} a token expected on {where} "
        f"with {load}, {expected_seconds / limit:.1f} times as long; steps are {speed.decode_regime} there"
    )


def _missed_ttft(speed: PlannedSpeed, where: str, objectives: Objectives) -> str:
    """By how much the objective for TTFT is missed."""
    limit, took = objectives.ttft_p95_seconds or 1.0, speed.ttft_p95_seconds
    return (
        f"spec.slo.ttft.p95 of {seconds(limit)} is missed: {seconds(took)} expected on {where} for a prompt of "
        f"{speed.input_p95_tokens:,} tokens, {took / limit:.1f} times as long; prompts are {speed.prefill_regime} there"
    )


def _bound(case: Case, choice: Choice) -> str:
    """What no setting can beat: each step reads the weights. Of a mixture it reads those of the experts asked."""
    if case.model.mixture is not None:
        return ""
    found = choice.fit
    bandwidth = found.candidate.row.memory_bandwidth_bytes_per_second
    least = seconds(found.rank_weights_bytes / bandwidth)
    return f": reading {gib(found.rank_weights_bytes)} of weights at {bandwidth / 1e9:,.0f} GB/s alone takes {least}"


def missed_alone(speed: PlannedSpeed, where: str, objectives: Objectives) -> tuple[str, ...]:
    """The same where there is nothing to compare with: the CPU row."""
    texts = []
    if objectives.tpot_excess(speed) > 1:
        texts.append(_missed_tpot(speed, where, objectives, None))
    if objectives.ttft_excess(speed) > 1:
        texts.append(_missed_ttft(speed, where, objectives))
    return tuple(texts)
