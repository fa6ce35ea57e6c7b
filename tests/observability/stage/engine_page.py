"""Recorded pages of real engines, played: names, labels and buckets are the engine's own, values are the simulation's.

What the simulation has no number of is as in the record, grown with the requests that ended.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llmservice_operator.simulation.records import (
    LENGTH_BOUNDS_TOKENS,
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
    Floats,
    Records,
)
from observability.stage.samples import Sample, read

TESTS = Path(__file__).resolve().parents[2]
H200 = TESTS / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"
PAGES = TESTS / "observability" / "pages"
CPU = PAGES / "vllm-0.32.0_cpu_smollm2.txt"
OLD = PAGES / "vllm-0.8.5_cpu_smollm2.txt"
"""Whose series have other names."""
FINISHED = "vllm:request_success_total"
_OPERATIONS_PER_TOKEN = 2 * 8.03e9
"""Of Llama-3.1-8B: two for each weight."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What an engine's page shows of one moment."""

    record: Records
    kv_use: float
    uptime_seconds: float
    started_at: float
    """Unix time."""
    peak_bytes_per_second: float
    served_name: str
    end_to_end: "EndToEnd"


REQUEST_BOUNDS_SECONDS = np.array([
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680
])  # fmt: skip
"""Upper bounds of vLLM's buckets of whole requests (v1/metrics/buckets.py)."""
_SPREAD = 0.75
"""Of the logarithm of a request's time: its p95 is 3.4 times its median, as of the recorded lengths."""


class EndToEnd:
    """Times of whole requests: the mean is the simulation's, their spread about it is made."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(REQUEST_BOUNDS_SECONDS) + 1)
        self.seconds = 0.0
        self._before: dict[str, float] = {}

    def see(self, record: Records) -> None:
        """Add what ended since the last look."""
        names = ("finished", "ttft_seconds", "tpot_seconds", "finished_output_tokens")
        now = {name: float(record[name]) for name in names}
        ended, ttft, tpot, tokens = (now[name] - self._before.get(name, 0.0) for name in names)
        self._before = now
        if ended <= 0:
            return
        mean = max(1e-3, (ttft + tpot * tokens / ended) / ended)
        self.seconds += mean * ended
        median = mean / math.exp(_SPREAD**2 / 2)
        below = [
            0.5 * (1 + math.erf(math.log(bound / median) / (_SPREAD * math.sqrt(2))))
            for bound in REQUEST_BOUNDS_SECONDS
        ]
        self.counts += ended * np.diff([0.0, *below, 1.0])


@cache
def template(path: Path) -> tuple[Sample, ...]:
    """A recorded page's samples."""
    return tuple(read(path.read_text()))


def _mean_of(page: Sequence[Sample]) -> float:
    return sum(sample.value for sample in page if sample.name == FINISHED)


def grown(page: Sequence[Sample], share: float, gauges: Mapping[str, float]) -> Iterator[Sample]:
    """The record with counters and histograms times `share`, and these gauges."""
    for sample in page:
        if sample.name in gauges:
            yield sample._replace(value=gauges[sample.name])
        elif sample.name.endswith(("_total", "_bucket", "_count", "_sum")):
            yield sample._replace(value=sample.value * share)
        else:
            yield sample


def played(page: Sequence[Sample], engine: Engine) -> Iterator[Sample]:
    """The record as this engine would show it now."""
    record = engine.record
    finished = float(record["finished"])
    engine.end_to_end.see(record)
    known = {**_values(engine), **_histograms(record), **_whole_requests(engine.end_to_end)}
    kinds = {"length": 0.08, "stop": 0.92}
    share = finished / _mean_of(page)
    for sample in grown(page, share, _gauges(engine)):
        labels = _renamed(sample.labels, engine.served_name)
        value = sample.value
        if sample.name == FINISHED:
            value = finished * kinds.get(dict(labels)["finished_reason"], 0.0)
        elif sample.name.endswith("_bucket") and sample.name in known:
            value = known[sample.name](float(dict(labels)["le"]))
        elif sample.name in known:
            value = known[sample.name](math.nan)
        yield Sample(sample.name, labels, value)


def _renamed(labels: tuple[tuple[str, str], ...], served: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, served if name == "model_name" else value) for name, value in labels)


def _gauges(engine: Engine) -> dict[str, float]:
    return {
        "vllm:num_requests_running": float(engine.record["running"]),
        "vllm:num_requests_waiting": float(engine.record["waiting"]),
        "vllm:kv_cache_usage_perc": engine.kv_use,
        "process_start_time_seconds": engine.started_at,
        "process_cpu_seconds_total": engine.uptime_seconds * 0.9,
    }


def _values(engine: Engine) -> dict[str, Callable[[float], float]]:
    record = engine.record
    moved = float(record["traffic_seconds"]) * engine.peak_bytes_per_second
    tokens = float(record["prompt_tokens"] + record["generated_tokens"])
    counters: dict[str, Any] = {
        "vllm:prompt_tokens_total": record["prompt_tokens"],
        "vllm:prompt_tokens_cached_total": record["cached_tokens"],
        "vllm:generation_tokens_total": record["generated_tokens"],
        "vllm:num_preemptions_total": record["preemptions"],
        "vllm:prefix_cache_queries_total": record["prompt_tokens"],
        "vllm:prefix_cache_hits_total": record["cached_tokens"],
        "vllm:estimated_read_bytes_per_gpu_total": moved * 0.95,
        "vllm:estimated_write_bytes_per_gpu_total": moved * 0.05,
        "vllm:estimated_flops_per_gpu_total": tokens * _OPERATIONS_PER_TOKEN,
        "vllm:iteration_tokens_total_count": record["steps"],
        "vllm:iteration_tokens_total_sum": tokens,
    }
    return {name: _always(float(value)) for name, value in counters.items()}


def _histograms(record: Records) -> dict[str, Callable[[float], float]]:
    shown = {
        "vllm:time_to_first_token_seconds": ("ttft", "ttft_seconds", TTFT_BOUNDS_SECONDS),
        "vllm:request_time_per_output_token_seconds": ("tpot", "tpot_seconds", TPOT_BOUNDS_SECONDS),
        "vllm:inter_token_latency_seconds": ("itl", "itl_seconds", TPOT_BOUNDS_SECONDS),
        "vllm:request_prompt_tokens": ("inputs", "finished_input_tokens", LENGTH_BOUNDS_TOKENS),
        "vllm:request_generation_tokens": ("outputs", "finished_output_tokens", LENGTH_BOUNDS_TOKENS),
    }
    known: dict[str, Callable[[float], float]] = {}
    for name, (counts, total, bounds) in shown.items():
        known[f"{name}_bucket"] = _cumulated(record[counts], bounds)
        known[f"{name}_count"] = _always(float(record[counts].sum()))
        known[f"{name}_sum"] = _always(float(record[total]))
    return known


def _whole_requests(seen: EndToEnd) -> dict[str, Callable[[float], float]]:
    name = "vllm:e2e_request_latency_seconds"
    return {
        f"{name}_bucket": _cumulated(seen.counts, REQUEST_BOUNDS_SECONDS),
        f"{name}_count": lambda _: float(seen.counts.sum()),
        f"{name}_sum": lambda _: seen.seconds,
    }


def _always(value: float) -> Callable[[float], float]:
    return lambda _: value


def _cumulated(counts: Records, bounds: Floats) -> Callable[[float], float]:
    """Observations up to a bound."""

    def up_to(bound: float) -> float:
        within = (
            counts.sum() if math.isinf(bound) else counts[: len(bounds)][bounds <= bound * (1 + 1e-9)].sum()
        )
        return float(within)

    return up_to
