"""Every recorded page of a real engine tells every signal, with the figures that prometheus_client reads from it."""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.engines.metrics_page import parse_page
from llmservice_operator.engines.versions import Version, parse_version

TESTS = Path(__file__).resolve().parents[2]
PAGES = {
    path.stem.removeprefix("vllm-"): path
    for folder in ("data/metrics", "observability/pages")
    for path in (TESTS / folder).glob("vllm-*.txt")
}
"""By release, hardware and model."""
START = 1_790_000_000.0
SECONDS = 40.0
TTFT_SECONDS = 2.5
"""An objective that is a bucket's bound in every release, so that the share within is a count."""
PEAK_BYTES_PER_SECOND = 4.8e12
ELSEWHERE = {"dram_active", "sm_active"}
"""Told by DCGM."""
NOT_YET = {"uncached_tokens_waiting"}
"""In no release."""
MOVED_BYTES = {"bandwidth_use", "step_bytes"}
"""From 0.17 on."""
UNTOLD = {
    "0.8.5_cpu": {"prefix_hit_share"} | MOVED_BYTES,
    "0.9.2_cpu": MOVED_BYTES,
    "0.10.2_cpu": MOVED_BYTES,
    "0.11.2_cpu": MOVED_BYTES,
    "0.14.1_cpu": MOVED_BYTES,
    "0.26.0_h200": {"prefix_hit_share"},
}
"""What older releases have no series for (0.8.5 runs its V0 engine on a CPU); on the H200 prefix caching was off."""


@dataclass(frozen=True)
class Told:
    """What the reference parser reads: sums over labels, and buckets."""

    plain: dict[str, float]
    buckets: dict[str, dict[float, float]]

    def first(self, *names: str) -> str:
        """The first of the names that the page has."""
        return next(name for name in names if name in self.plain or name in self.buckets)

    def value(self, *names: str) -> float:
        return self.plain[self.first(*names)]

    def mean(self, *names: str) -> float:
        name = self.first(*names)
        return self.plain[f"{name}_sum"] / self.plain[f"{name}_count"]

    def within(self, limit: float, *names: str) -> float:
        counts = self.buckets[self.first(*names)]
        return counts[limit] / max(counts.values())

    def bucket_of(self, share: float, *names: str) -> tuple[float, float]:
        """The bounds between which the quantile lies."""
        counts = self.buckets[self.first(*names)]
        rank, low = share * max(counts.values()), 0.0
        for bound, count in sorted(counts.items()):
            if count >= rank:
                return low, bound
            low = bound
        raise AssertionError("the last bucket holds all")

    def filled(self, *names: str) -> tuple[float, float]:
        """The bounds between which all samples lie."""
        return self.bucket_of(1e-9, *names)[0], self.bucket_of(1.0, *names)[1]


TTFT = ("vllm:time_to_first_token_seconds",)
ITL = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
TPOT = ("vllm:request_time_per_output_token_seconds", *ITL)
INPUTS, OUTPUTS = ("vllm:request_prompt_tokens",), ("vllm:request_generation_tokens",)


@cache
def reference(page: str) -> Told:
    told = Told(defaultdict(float), defaultdict(lambda: defaultdict(float)))
    for family in text_string_to_metric_families(PAGES[page].read_text()):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                told.buckets[sample.name.removesuffix("_bucket")][float(sample.labels["le"])] += sample.value
            else:
                told.plain[sample.name] += sample.value
    return told


def version(page: str) -> Version:
    found = parse_version(page.split("_", maxsplit=1)[0])
    assert found is not None
    return found


def untold(page: str) -> set[str]:
    return UNTOLD.get("_".join(page.split("_")[:2]), set())


def emptied(page: bytes) -> bytes:
    """The page as it was before the first request."""
    counts = rb"^((?:\w|:)+(?:_total|_bucket|_count|_sum|_running|_waiting)(?:\{[^\n]*\})?) [^\n]+$"
    return re.sub(counts, rb"\1 0.0", page, flags=re.MULTILINE)


@cache
def signals(page: str) -> Signals:
    """Of one replica that was idle, and shows this page 40 s later."""
    text, observer = PAGES[page].read_bytes(), ServiceObserver()
    for at, seen in ((START, emptied(text)), (START + SECONDS, text)):
        observer.record("replica", parse_page(seen, version(page)), at=at)
    context = Context(
        ttft_p95_seconds=TTFT_SECONDS,
        tpot_p95_seconds=0.5,
        peak_bytes_per_second=PEAK_BYTES_PER_SECOND,
    )
    return observer.signals({"replica": START}, START + SECONDS, context)


def figures(page: str) -> dict[str, float]:
    """The signals that are plain sums and quotients of the page's numbers."""
    told = reference(page)
    work = told.value("vllm:num_requests_running") + told.value("vllm:num_requests_waiting")
    finished = told.value("vllm:request_success_total")
    found = {
        "arrivals_per_second": (finished + work) / SECONDS,
        "sustained_arrivals_per_second": (finished + work) / SECONDS,
        "completions_per_second": finished / SECONDS,
        "input_tokens_per_second": told.value("vllm:prompt_tokens_total") / SECONDS,
        "generated_tokens_per_second": told.value("vllm:generation_tokens_total") / SECONDS,
        "input_tokens_mean": told.mean(*INPUTS),
        "output_tokens_mean": told.mean(*OUTPUTS),
        "running": told.value("vllm:num_requests_running"),
        "waiting": told.value("vllm:num_requests_waiting"),
        "kv_use_total": told.value("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "kv_use_highest": told.value("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "preemptions_per_second": told.value("vllm:num_preemptions_total") / SECONDS,
        "ttft_attainment": told.within(TTFT_SECONDS, *TTFT),
        "itl_mean_seconds": told.mean(*ITL),
    }
    if "prefix_hit_share" not in untold(page):
        queries = told.value("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
        hits = told.value("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
        found["prefix_hit_share"] = hits / queries
    if not untold(page) & MOVED_BYTES:
        moved = told.value("vllm:estimated_read_bytes_per_gpu_total")
        moved += told.value("vllm:estimated_write_bytes_per_gpu_total")
        found["bandwidth_use"] = moved / SECONDS / PEAK_BYTES_PER_SECOND
        found["step_bytes"] = moved / told.value("vllm:iteration_tokens_total_count")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_signals_are_the_pages_figures(page: str) -> None:
    read = {name: signal.value for name, signal in signals(page).items()}

    assert {name: read[name] for name in figures(page)} == pytest.approx(figures(page))


@pytest.mark.parametrize(
    ("signal", "share", "names"),
    [
        ("ttft_p50_seconds", 0.50, TTFT),
        ("ttft_p95_seconds", 0.95, TTFT),
        ("input_tokens_p95", 0.95, INPUTS),
        ("output_tokens_p95", 0.95, OUTPUTS),
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_quantiles_lie_in_the_pages_buckets(
    page: str, signal: str, share: float, names: tuple[str, ...]
) -> None:
    low, high = reference(page).bucket_of(share, *names)

    assert low <= (getattr(signals(page), signal).value or -1.0) <= high


@pytest.mark.parametrize("page", PAGES)
def test_the_time_per_token_is_between_the_shortest_and_the_longest(page: str) -> None:
    low, high = reference(page).filled(*TPOT)
    middle, late = signals(page).tpot_p50_seconds.value, signals(page).tpot_p95_seconds.value

    assert middle is not None
    assert late is not None
    assert low <= middle < late <= high


@pytest.mark.parametrize("page", PAGES)
def test_every_signal_has_a_trusted_value_but_for_what_the_release_lacks(page: str) -> None:
    without = {name for name, signal in signals(page).items() if signal.value is None}
    doubted = {name for name, signal in signals(page).items() if not signal.is_trusted}

    assert without == ELSEWHERE | NOT_YET | untold(page)
    assert doubted <= without


@pytest.mark.parametrize("page", PAGES)
def test_what_the_release_is_said_to_export_is_there(page: str) -> None:
    read = parse_page(PAGES[page].read_bytes(), version(page))

    assert (read.missing, read.invalid, read.flaws) == (frozenset(), frozenset(), ())
