"""Engines whose metrics pages are made up: a test says what happened, the counters follow."""

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import Gauge, Histogram, MetricsPage

TTFT_BOUNDS = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, math.inf)
TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, math.inf)
TOKEN_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, math.inf)


class Buckets:
    """A histogram that can be added to."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0.0] * len(bounds)
        self.total = 0.0

    def add(self, value: float, times: float = 1.0) -> None:
        for index in range(bisect_left(self.bounds, value), len(self.bounds)):
            self.counts[index] += times
        self.total += value * times

    def read(self) -> Histogram:
        return Histogram(self.bounds, array("d", self.counts), self.total)


@dataclass
class FakeEngine:
    """One engine's counters."""

    started_at: float = 1_790_000_000.0
    running: float = 0.0
    waiting: float = 0.0
    kv_use: float = 0.0
    counters: dict[Series, float] = field(default_factory=dict)
    cpu_seconds: float = 10.0

    def __post_init__(self) -> None:
        self.counters = dict.fromkeys(
            (
                Series.PREEMPTIONS,
                Series.PROMPT_TOKENS,
                Series.GENERATION_TOKENS,
                Series.FINISHED,
                Series.REJECTED,
                Series.PREFIX_QUERIES,
                Series.PREFIX_HITS,
                Series.READ_BYTES,
                Series.WRITE_BYTES,
                Series.STEPS,
            ),
            0.0,
        )
        self.histograms = {
            Series.TTFT: Buckets(TTFT_BOUNDS),
            Series.ITL: Buckets(TPOT_BOUNDS),
            Series.TPOT: Buckets(TPOT_BOUNDS),
            Series.INPUT_LENGTH: Buckets(TOKEN_BOUNDS),
            Series.OUTPUT_LENGTH: Buckets(TOKEN_BOUNDS),
        }

    def serve(
        self,
        requests: float,
        *,
        ttft: float = 0.2,
        tpot: float = 0.02,
        inputs: float = 1000.0,
        outputs: float = 200.0,
    ) -> None:
        """So many requests came, got their answer and left."""
        self.counters[Series.FINISHED] += requests
        self.counters[Series.PROMPT_TOKENS] += requests * inputs
        self.counters[Series.GENERATION_TOKENS] += requests * outputs
        self.counters[Series.PREFIX_QUERIES] += requests * inputs
        self.counters[Series.STEPS] += requests * outputs / 8
        self.histograms[Series.TTFT].add(ttft, requests)
        self.histograms[Series.TPOT].add(tpot, requests)
        self.histograms[Series.ITL].add(tpot, requests * outputs)
        self.histograms[Series.INPUT_LENGTH].add(inputs, requests)
        self.histograms[Series.OUTPUT_LENGTH].add(outputs, requests)

    def page(
        self, *, invalid: frozenset[Series] = frozenset(), missing: frozenset[Series] = frozenset()
    ) -> MetricsPage:
        self.cpu_seconds += 0.01
        gone = invalid | missing
        gauges = {
            Series.RUNNING: Gauge(self.running, self.running, 1),
            Series.WAITING: Gauge(self.waiting, self.waiting, 1),
            Series.KV_USE: Gauge(self.kv_use, self.kv_use, 1),
            Series.START_TIME: Gauge(self.started_at, self.started_at, 1),
        }
        counters = {**self.counters, Series.CPU_SECONDS: self.cpu_seconds}
        return MetricsPage(
            gauges={series: value for series, value in gauges.items() if series not in gone},
            counters={series: value for series, value in counters.items() if series not in gone},
            histograms={
                series: value.read() for series, value in self.histograms.items() if series not in gone
            },
            invalid=invalid,
            missing=missing,
        )
