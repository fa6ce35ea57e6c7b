"""What a run was worth: attainment, cost, starts, reversals."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from llmservice_operator.simulation.answers import request_latencies
from llmservice_operator.simulation.fleet import Run
from llmservice_operator.simulation.records import Floats, Records

Booleans = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
LEAST_ANSWER_TOKENS = 32
"""Shorter answers are not held to the TPOT: one late token would decide."""
HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A request attains it if both hold."""

    ttft_seconds: float
    tpot_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Of one run."""

    requests: int
    attainment: float
    """Share of the requests that met both bounds; an aborted one met none."""
    attainment_of_all: float
    """The same with short answers held to the TPOT too, as an engine's histogram, and so the operator, holds them."""
    worst_hour: float
    ttft_p50_seconds: float
    ttft_p95_seconds: float
    ttft_p99_seconds: float
    tpot_p50_seconds: float
    tpot_p95_seconds: float
    aborted: int
    replica_hours: float
    """Starting and draining replicas included."""
    mean_replicas: float
    """Of the scale target, over the whole run."""
    starts: int
    reversals_per_hour: float
    """Scale-ups that follow a scale-down within ten minutes, or the other way round."""


REVERSAL_SECONDS = 600.0


def score(run: Run, objective: Objective) -> Score:
    """Judge a run."""
    requests = run.requests
    ttft, tpot = latencies(run)
    met = _met(requests, ttft, tpot, objective, least_tokens=LEAST_ANSWER_TOKENS)
    met_by_all = _met(requests, ttft, tpot, objective, least_tokens=2)
    long = requests["answer"] >= LEAST_ANSWER_TOKENS
    hours = (requests["ready"] / HOUR_SECONDS).astype(np.int64)
    count = np.bincount(hours)
    good = np.bincount(hours, weights=met)
    spoken = tpot[long & ~np.isnan(tpot)]
    heard = np.nan_to_num(ttft, nan=math.inf)
    return Score(
        requests=len(requests),
        attainment=float(met.mean()) if len(met) else 1.0,
        attainment_of_all=float(met_by_all.mean()) if len(met) else 1.0,
        worst_hour=float((good[count > 0] / count[count > 0]).min()) if len(met) else 1.0,
        ttft_p50_seconds=quantile(heard, 0.50),
        ttft_p95_seconds=quantile(heard, 0.95),
        ttft_p99_seconds=quantile(heard, 0.99),
        tpot_p50_seconds=quantile(spoken, 0.50),
        tpot_p95_seconds=quantile(spoken, 0.95),
        aborted=int(np.isnan(requests["end"]).sum()),
        replica_hours=run.replica_seconds / HOUR_SECONDS,
        mean_replicas=run.provisioned_seconds / run.end_seconds if run.end_seconds else 0.0,
        starts=run.starts,
        reversals_per_hour=_reversals(run) / (run.end_seconds / HOUR_SECONDS) if run.end_seconds else 0.0,
    )


def attained(run: Run, objective: Objective) -> Booleans:
    """Whether each request met both bounds."""
    return _met(run.requests, *latencies(run), objective, least_tokens=LEAST_ANSWER_TOKENS)


def _met(
    requests: Records, ttft: Floats, tpot: Floats, objective: Objective, *, least_tokens: int
) -> Booleans:
    """The TPOT counts for answers of at least so many tokens. Comparisons with NaN, of what never came, are false."""
    is_short = requests["answer"] < least_tokens
    met: Booleans = (ttft <= objective.ttft_seconds) & (is_short | (tpot <= objective.tpot_seconds))
    answered: Booleans = ~np.isnan(requests["end"])
    return met & answered


def latencies(run: Run) -> tuple[Floats, Floats]:
    """TTFT and mean time per further token of each request, in seconds; NaN where there was none."""
    return request_latencies(run.requests, run.half_request_seconds)


def quantile(values: Floats, share: float) -> float:
    """By index, as load generators do; NaN of nothing."""
    if not len(values):
        return math.nan
    ordered = np.sort(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _reversals(run: Run) -> int:
    changes = [
        (point.at_seconds, point.desired > point.provisioned)
        for point in run.points
        if point.desired != point.provisioned
    ]
    return sum(
        up != was_up and at - before <= REVERSAL_SECONDS
        for (before, was_up), (at, up) in itertools.pairwise(changes)
    )
