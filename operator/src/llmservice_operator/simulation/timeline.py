"""A run over time, in stretches of equal length: what came, what was there, what clients saw. For charts."""

import math
from dataclasses import dataclass

import numpy as np

from llmservice_operator.simulation.fleet import Run
from llmservice_operator.simulation.records import Floats, Integers
from llmservice_operator.simulation.score import Objective, attained, latencies, quantile

TTFT_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Each array has one entry a stretch."""

    stretch_seconds: float
    requests_per_second: Floats
    desired: Floats
    """Replicas at the stretch's end, as the three that follow."""
    ready: Floats
    pending: Floats
    """Wanted, and not ready yet."""
    ttft_p95_seconds: Floats
    """Of the requests that came in it; NaN where none did, infinite where so many were aborted."""
    missed: Floats
    """Share of them that missed an objective; NaN where none came."""

    @property
    def begin_hours(self) -> Floats:
        """Of each stretch."""
        begins: Floats = np.arange(len(self.ready), dtype=np.float64) * (self.stretch_seconds / 3600.0)
        return begins


def timeline(run: Run, objective: Objective, stretches: int) -> Timeline:
    """The run's first to last request in so many stretches."""
    arrivals = run.requests["ready"] - run.half_request_seconds
    seconds = max(float(arrivals.max(initial=0.0)), run.load.seconds) * (1.0 + 1e-9)
    place = (arrivals / seconds * stretches).astype(np.int64)
    counts = np.bincount(place, minlength=stretches)
    good = np.bincount(place, weights=attained(run, objective), minlength=stretches)
    ends: Floats = np.arange(1, stretches + 1, dtype=np.float64) * (seconds / stretches)
    wanted, ready, desired = _replicas(run, ends)
    return Timeline(
        stretch_seconds=seconds / stretches,
        requests_per_second=counts.astype(np.float64) * (stretches / seconds),
        desired=desired,
        ready=ready,
        pending=np.maximum(0.0, wanted - ready),
        ttft_p95_seconds=_ttft(run, counts),
        missed=np.where(counts > 0, 1.0 - good / np.maximum(counts, 1), math.nan),
    )


def _replicas(run: Run, times: Floats) -> tuple[Floats, Floats, Floats]:
    """Those that are wanted, ready and desired at each time. Where nothing was decided they are those of the begin."""
    if not run.points:
        steady = np.full(len(times), run.provisioned_seconds / run.end_seconds if run.end_seconds else 0.0)
        return steady, steady, steady
    told = np.array([point.at_seconds for point in run.points])
    at = np.clip(np.searchsorted(told, times, side="right") - 1, 0, len(told) - 1)
    wanted, ready, desired = (
        np.array([getattr(point, name) for point in run.points], float)[at]
        for name in ("provisioned", "ready", "desired")
    )
    return wanted, ready, desired


def _ttft(run: Run, counts: Integers) -> Floats:
    """Requests are in order of arrival, and so each stretch's are neighbours."""
    heard = np.nan_to_num(latencies(run)[0], nan=math.inf)
    ends = np.cumsum(counts)
    parts = np.split(heard, ends[:-1])
    return np.array([quantile(part, TTFT_SHARE) for part in parts])
