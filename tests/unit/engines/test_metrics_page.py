"""vLLM's metrics page: what is read is what prometheus_client's own parser reads, and what cannot be is named."""

import math
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from llmservice_operator.engines.metric_names import NAMES, Kind, Series, expected
from llmservice_operator.engines.metrics_page import (
    MAX_PAGE_BYTES,
    MetricsPage,
    PageError,
    parse_page,
)

REAL = Path(__file__).parents[2] / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"
RUNNING = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\n'


def by_reference(page: bytes) -> tuple[dict[str, float], dict[str, dict[float, float]]]:
    """(name → sum over label sets, histogram → bound → sum), by prometheus_client."""
    plain: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                buckets[sample.name.removesuffix("_bucket")][bound] += sample.value
            elif sample.labels.get("sleep_state", "awake") == "awake":
                plain[sample.name] += sample.value
    return plain, buckets


def assert_same(read: MetricsPage, page: bytes, names: dict[Series, str]) -> None:
    plain, buckets = by_reference(page)
    assert {series: gauge.total for series, gauge in read.gauges.items()} == {
        series: plain[names[series]] for series in read.gauges
    }
    assert dict(read.counters) == {series: plain[names[series]] for series in read.counters}
    for series, histogram in read.histograms.items():
        assert dict(zip(histogram.bounds, histogram.counts, strict=True)) == buckets[names[series]]
        assert histogram.total == plain[names[series] + "_sum"]


def newest_names() -> dict[Series, str]:
    names: dict[Series, str] = {}
    for each in NAMES:
        names.setdefault(each.series, each.name)
    return names


def test_the_real_page_is_read_as_the_reference_reads_it() -> None:
    page = REAL.read_bytes()

    read = parse_page(page, (0, 26, 0))

    assert_same(read, page, newest_names())
    assert len(read.gauges) + len(read.counters) + len(read.histograms) == 20
    assert (read.invalid, read.missing, read.flaws) == (frozenset(), frozenset(), ())


def written(engines: int, model: str = "m") -> bytes:
    """A page as the client library writes it, with awkward labels, of so many engines."""
    registry = CollectorRegistry()
    labels = ["engine", "model_name", "role"]
    running = Gauge("vllm:num_requests_running", "Running.", labels, registry=registry)
    use = Gauge("vllm:kv_cache_usage_perc", "KV.", labels, registry=registry)
    tokens = Counter("vllm:prompt_tokens", "Prompt.", labels, registry=registry)
    ttft = Histogram(
        "vllm:time_to_first_token_seconds", "TTFT.", labels, buckets=[0.1, 1.0, 10.0], registry=registry
    )
    for engine in range(engines):
        of = (str(engine), model, "x")
        running.labels(*of).set(engine + 1)
        use.labels(*of).set(0.25 * engine)
        tokens.labels(*of).inc(1000 * engine + 0.5)
        for value in (0.05, 0.5, 5.0 + engine, 50.0):
            ttft.labels(*of).observe(value)
    return generate_latest(registry)


@pytest.mark.parametrize("model", ["a/b", 'le="0.5"} 7', "two words", "back\\slash\nline", 'x",le="9'])
def test_labels_of_any_text_are_passed_over(model: str) -> None:
    page = written(1, model)

    assert_same(parse_page(page), page, newest_names())


def test_engines_behind_one_page_are_summed() -> None:
    page = written(3)

    read = parse_page(page)

    assert_same(read, page, newest_names())
    use = read.gauges[Series.KV_USE]
    assert (use.mean, use.highest, use.engines) == (0.25, 0.5, 3)


def test_time_stamps_are_passed_over() -> None:
    page = RUNNING.replace(b"3.0\n", b"3.0 1790000000000\n")

    assert parse_page(page).gauges[Series.RUNNING].total == 3.0


def test_a_sample_without_labels_is_read() -> None:
    page = RUNNING + b"# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n"

    assert parse_page(page).counters[Series.CPU_SECONDS] == 1.5


def test_a_counter_family_named_without_its_suffix_is_read() -> None:
    """As writers of OpenMetrics name it."""
    page = b'# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{engine="0"} 12.0\n'

    assert parse_page(page).counters[Series.PROMPT_TOKENS] == 12.0


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-1.0", "1e300", "many", ""])
def test_what_cannot_be_is_invalid_and_not_a_value(text: str) -> None:
    page = RUNNING + b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine="0"} '
    read = parse_page(page + text.encode() + b"\n")

    assert read.invalid == {Series.WAITING}
    assert Series.WAITING not in read.gauges
    assert "vllm:num_requests_waiting" in read.flaws[0]


def test_a_share_above_one_is_invalid() -> None:
    page = RUNNING + b'# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine="0"} 1.2\n'

    assert parse_page(page).invalid == {Series.KV_USE}


def ttft(*, buckets: tuple[str, ...] = ("1.0", "2.0", "+Inf"), counts: tuple[str, ...], count: str) -> bytes:
    name = "vllm:time_to_first_token_seconds"
    lines = [
        f'{name}_bucket{{engine="0",le="{bound}"}} {value}'
        for bound, value in zip(buckets, counts, strict=True)
    ]
    tail = [f'{name}_count{{engine="0"}} {count}', f'{name}_sum{{engine="0"}} 3.0']
    return RUNNING + "\n".join([f"# TYPE {name} histogram", *lines, *tail, ""]).encode()


def test_a_whole_histogram_is_read() -> None:
    read = parse_page(ttft(counts=("1.0", "2.0", "3.0"), count="3.0")).histograms[Series.TTFT]

    assert (read.bounds, list(read.counts), read.total) == ((1.0, 2.0, math.inf), [1.0, 2.0, 3.0], 3.0)


@pytest.mark.parametrize(
    "page",
    [
        ttft(counts=("2.0", "1.0", "3.0"), count="3.0"),
        ttft(counts=("1.0", "NaN", "3.0"), count="3.0"),
        ttft(counts=("1.0", "2.0", "+Inf"), count="3.0"),
        ttft(counts=("1.0", "2.0", "3.0"), count="4.0"),
        ttft(buckets=("1.0", "2.0", "3.0"), counts=("1.0", "2.0", "3.0"), count="3.0"),
        ttft(buckets=("2.0", "1.0", "+Inf"), counts=("1.0", "2.0", "3.0"), count="3.0"),
        ttft(buckets=("-1.0", "2.0", "+Inf"), counts=("1.0", "2.0", "3.0"), count="3.0"),
        ttft(buckets=("x", "2.0", "+Inf"), counts=("1.0", "2.0", "3.0"), count="3.0"),
        ttft(counts=("-1.0", "2.0", "3.0"), count="3.0"),
    ],
    ids=[
        "falls",
        "not a number",
        "endless",
        "other count",
        "no infinity",
        "not ascending",
        "below nothing",
        "no bound",
        "negative",
    ],
)
def test_a_torn_histogram_is_invalid(page: bytes) -> None:
    read = parse_page(page)

    assert read.invalid == {Series.TTFT}
    assert Series.TTFT not in read.histograms


def test_engines_with_other_buckets_are_not_summed() -> None:
    name = b"vllm:time_to_first_token_seconds"
    page = ttft(counts=("1.0", "2.0", "3.0"), count="3.0") + b"".join(
        name + rest + b"\n"
        for rest in (
            b'_bucket{engine="1",le="5.0"} 1.0',
            b'_bucket{engine="1",le="+Inf"} 1.0',
            b'_count{engine="1"} 1.0',
            b'_sum{engine="1"} 1.0',
        )
    )

    assert parse_page(page).invalid == {Series.TTFT}


BOTH = (
    RUNNING
    + b'# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    + b'# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
)


@pytest.mark.parametrize("version", [None, (0, 10, 2), (0, 33, 0), (9, 0, 0)])
def test_a_page_with_both_names_is_read_by_the_newer(version: tuple[int, int, int] | None) -> None:
    """0.9.2 to 0.10 export both; their sum would be twice the use."""
    assert parse_page(BOTH, version).gauges[Series.KV_USE].total == 0.25


def test_an_old_release_is_read_by_its_names() -> None:
    page = BOTH.replace(b"vllm:kv_cache_usage_perc", b"vllm:another")

    assert parse_page(page, (0, 8, 5)).gauges[Series.KV_USE].total == 0.5


def test_an_invalid_newer_name_gives_way_to_the_older() -> None:
    page = BOTH.replace(b" 0.25", b" NaN")
    read = parse_page(page, (0, 10, 2))

    assert read.gauges[Series.KV_USE].total == 0.5
    assert read.invalid == frozenset()


def test_series_of_the_release_that_are_not_there_are_missing() -> None:
    assert parse_page(RUNNING, (0, 33, 0)).missing == expected((0, 33, 0)) - {Series.RUNNING}


def test_the_tpot_of_requests_is_not_missed_before_it_existed() -> None:
    """vllm:request_time_per_output_token_seconds was first seen in 0.11.0."""
    assert Series.TPOT not in expected((0, 10, 2))
    assert Series.TPOT in expected((0, 11, 0))


def test_the_prefix_cache_is_not_missed_where_the_engine_may_be_v0() -> None:
    """vllm/engine/metrics.py, gone in 0.11, counts no tokens looked up."""
    assert Series.PREFIX_QUERIES not in expected((0, 10, 2))
    assert Series.PREFIX_QUERIES not in expected(None)
    assert Series.PREFIX_QUERIES in expected((0, 11, 0))


@pytest.mark.parametrize(
    "page", [b"", b"<html>", b"# TYPE up gauge\nup 1\n", b"# TYPE \n", b"\x00\xff" * 100]
)
def test_another_page_is_refused(page: bytes) -> None:
    with pytest.raises(PageError, match="none of the engine's series"):
        parse_page(page)


def test_too_long_a_page_is_refused() -> None:
    with pytest.raises(PageError, match=str(MAX_PAGE_BYTES)):
        parse_page(RUNNING + b"#" * MAX_PAGE_BYTES + b"\n")


def test_too_many_samples_are_invalid() -> None:
    page = RUNNING + b"".join(
        b'vllm:num_requests_running{engine="%d"} 1.0\n' % number for number in range(9000)
    )

    assert parse_page(page + BOTH[len(RUNNING) :]).invalid == {Series.RUNNING}


def test_a_cut_number_is_not_taken_for_a_number() -> None:
    with pytest.raises(PageError, match="middle of a line"):
        parse_page(RUNNING.replace(b"3.0\n", b"3"))


def test_a_page_cut_between_lines_gives_what_is_whole() -> None:
    lines = REAL.read_bytes().splitlines(keepends=True)
    whole = parse_page(b"".join(lines))
    begin = next(at for at, line in enumerate(lines) if line.startswith(b"vllm:num_requests_running")) + 1
    for end in range(begin, len(lines), 7):
        read = parse_page(b"".join(lines[:end]))

        assert read.counters.items() <= whole.counters.items()
        assert read.histograms.items() <= whole.histograms.items()


def test_every_series_has_a_name_and_every_name_is_said_once() -> None:
    assert {each.series for each in NAMES} == set(Series)
    assert len({each.name for each in NAMES}) == len(NAMES)
    assert {each.kind for each in NAMES} == set(Kind)
