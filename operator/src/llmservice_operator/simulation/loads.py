"""Loads: arrivals with lengths, made from stages, from counts per window, or from recorded requests. Seeded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from llmservice_operator.simulation.records import Floats, Integers

STAGE_PAUSE_SECONDS = 2.0
"""Between the last answer of a stage that is waited for and the next stage: a second of pause, one to fill the queue of
requests (kubernetes-sigs/inference-perf inference_perf/loadgen/load_generator.py)."""


class Stage(NamedTuple):
    """A constant rate for a while."""

    rate_per_second: float
    seconds: float


class Wait(NamedTuple):
    """Requests from this one on are sent only when all before it are answered."""

    request: int
    begin_seconds: float
    """Of its stage, had nothing been waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests in order of arrival."""

    name: str
    arrival_seconds: Floats
    prompt_tokens: Integers
    answer_tokens: Integers
    cached_tokens: Integers
    """Of each prompt, found in the prefix cache wherever it is sent."""
    seconds: float
    """How long requests come, if nothing is waited for."""
    waits: tuple[Wait, ...] = ()
    """In order; `arrival_seconds` are as if nothing were waited for."""

    def __len__(self) -> int:
        return len(self.arrival_seconds)


class Pair(NamedTuple):
    """Tokens of one recorded request."""

    prompt: int
    answer: int


def staged_arrivals(stages: Sequence[Stage], *, seed: int) -> Floats:
    """A Poisson process whose rate is one stage's after the other."""
    generator = np.random.default_rng(seed)
    begin, parts = 0.0, []
    for stage in stages:
        count = generator.poisson(stage.rate_per_second * stage.seconds)
        parts.append(begin + np.sort(generator.uniform(0.0, stage.seconds, count)))
        begin += stage.seconds
    return np.concatenate(parts)


def stretched_arrivals(stages: Sequence[Stage], *, seed: int) -> Floats:
    """Rate x seconds requests a stage; gaps are exponential, stretched to end with the stage.

    What inference-perf calls a constant load (inference_perf/loadgen/load_timer.py).
    """
    generator = np.random.default_rng(seed)
    begin, parts = 0.0, []
    for stage in stages:
        gaps = generator.exponential(1.0, int(stage.rate_per_second * stage.seconds))
        parts.append(begin + np.cumsum(gaps) * (stage.seconds / gaps.sum()))
        begin += stage.seconds
    return np.concatenate(parts)


def counted_arrivals(counts: Sequence[int], window_seconds: float, *, share: float, seed: int) -> Floats:
    """Arrivals from counts per window, uniform within each; `share` of the requests, each kept by chance."""
    generator = np.random.default_rng(seed)
    kept = (
        generator.binomial(np.asarray(counts), share)
        if share <= 1.0
        else generator.poisson(np.asarray(counts) * share)
    )
    begins = np.repeat(np.arange(len(kept)) * window_seconds, kept)
    return np.sort(begins + generator.uniform(0.0, window_seconds, begins.size))


def normal_lengths(
    count: int, *, mean: float, deviation: float, least: int, most: int, seed: int
) -> Integers:
    """Lengths that are normal, kept within bounds (inference-perf's `random` data)."""
    drawn = np.random.default_rng(seed).normal(mean, deviation, count)
    return np.clip(np.rint(drawn), least, most).astype(np.int64)


def make_load(
    name: str,
    arrivals: Floats,
    prompt: Integers,
    answer: Integers,
    *,
    seconds: float,
    cached_share: float = 0.0,
) -> Load:
    """A load with this share of every prompt in the prefix cache."""
    return Load(
        name=name,
        arrival_seconds=arrivals,
        prompt_tokens=prompt,
        answer_tokens=np.maximum(1, answer),
        cached_tokens=(prompt * cached_share).astype(np.int64),
        seconds=seconds,
    )


def drawn_load(
    name: str,
    arrivals: Floats,
    pairs: Sequence[Pair],
    *,
    seconds: float,
    seed: int,
    cached_share: float = 0.0,
) -> Load:
    """Each request's lengths are those of a recorded one, drawn anew."""
    table = np.asarray(pairs, dtype=np.int64)
    drawn = table[np.random.default_rng(seed).integers(0, len(table), len(arrivals))]
    return make_load(name, arrivals, drawn[:, 0], drawn[:, 1], seconds=seconds, cached_share=cached_share)


LLMD_RAMP = tuple(
    Stage(rate, seconds)
    for rate, seconds in ((2, 330), (4, 360), (6, 360), (8, 360), (10, 360), (4, 360), (1, 300))
)
"""github.com/llm-d/llm-d, guides/workload-autoscaling/slo-aware/benchmark-templates/scored-config.yml."""


def llmd_ramp(*, seed: int, waits: bool = True) -> Load:
    """The staged ramp that llm-d scored its SLO-aware autoscaler on."""
    return llmd_stages("llm-d ramp", LLMD_RAMP, seed=seed, waits=waits)


def llmd_stages(name: str, stages: Sequence[Stage], *, seed: int, waits: bool = True) -> Load:
    """Stages as llm-d's generator plays them, with the ramp's lengths as published: 4,000 tokens in, 1,000 out.

    It begins a stage only when the one before is answered, so that each begins with idle engines; without `waits` a
    stage follows the last at once.
    """
    arrivals = stretched_arrivals(stages, seed=seed)
    count = len(arrivals)
    load = make_load(
        name,
        arrivals,
        normal_lengths(count, mean=4000, deviation=300, least=3500, most=4500, seed=2 * seed),
        normal_lengths(count, mean=1000, deviation=80, least=900, most=1100, seed=2 * seed + 1),
        seconds=sum(stage.seconds for stage in stages),
    )
    return replace(load, waits=_waits(stages)) if waits else load


def _waits(stages: Sequence[Stage]) -> tuple[Wait, ...]:
    """Before each stage but the first."""
    found, request, begin = [], 0, 0.0
    for stage in stages[:-1]:
        request += int(stage.rate_per_second * stage.seconds)
        begin += stage.seconds
        found.append(Wait(request, begin))
    return tuple(found)
