"""The series of vLLM's /metrics that are used, by the releases that export them.

Names as exposed (the Python client adds `_total` to a counter), read from the source in the wheels of every minor
release from 0.8 to 0.33: `vllm/v1/metrics/`, and `vllm/engine/metrics.py` of the V0 engine, which releases up to 0.10.2
can still run. A name carries the first and the last release that was seen with it; where one replaced another, the
newer stands first, and a page that has both is read by the first of them.
"""

from dataclasses import dataclass
from enum import StrEnum

from llmservice_operator.engines.versions import Version

UNBOUNDED: Version = (1 << 30, 0, 0)


class Kind(StrEnum):
    """What a series is."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Series(StrEnum):
    """The series by what they tell, whatever a release calls them."""

    __hash__ = str.__hash__  # an Enum's own is Python code, and a page is read with a few hundred look-ups

    RUNNING = "running"
    """Requests in the batch."""
    WAITING = "waiting"
    """Requests in the engine that aren't in the batch."""
    KV_USE = "kv_use"
    """Share of the KV blocks in use, 0 to 1; blocks that are merely cached count as free."""
    UNCACHED_TOKENS_WAITING = "uncached_tokens_waiting"
    """Prompt tokens that wait and must be computed (vllm-project/vllm pull request 38025, in no release yet)."""
    AWAKE = "awake"
    """1: the weights are on the card; 0: the engine sleeps."""
    PREEMPTIONS = "preemptions"
    PROMPT_TOKENS = "prompt_tokens"
    """Of requests that got their first token, cached ones included."""
    GENERATION_TOKENS = "generation_tokens"
    FINISHED = "finished"
    """Requests that ended, however: aborts and errors too."""
    REJECTED = "rejected"
    """Requests refused for the queue's length."""
    PREFIX_QUERIES = "prefix_queries"
    """Prompt tokens looked up in the prefix cache."""
    PREFIX_HITS = "prefix_hits"
    READ_BYTES = "read_bytes"
    """By the engine's analytic model, a GPU; moves only with --enable-mfu-metrics."""
    WRITE_BYTES = "write_bytes"
    TTFT = "ttft"
    ITL = "itl"
    """One sample a step and sequence."""
    TPOT = "tpot"
    """The mean of each finished request."""
    INPUT_LENGTH = "input_length"
    """Tokens of each finished request's prompt."""
    OUTPUT_LENGTH = "output_length"
    STEPS = "steps"
    """Steps of the engine."""
    CPU_SECONDS = "cpu_seconds"
    """Of the process that serves the page: it moves with every page, so one that stands still is a copy."""
    START_TIME = "start_time"
    """Of that process, seconds since the Unix epoch; another one is another incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricName:
    """One exposed name."""

    name: str
    series: Series
    kind: Kind
    first: Version = (0, 0, 0)
    """First release seen with it."""
    last: Version = UNBOUNDED
    """Last release seen with it."""
    label: tuple[str, str] | None = None
    """Only the samples with this label."""
    largest: float
    """What no engine reaches: above it a value is absurd."""
    family: str = ""
    """The family that it is a sample of, where that isn't the name itself."""
    optional: bool = False
    """Not exported by every start of those releases."""


_REQUESTS, _COUNT, _TOKENS, _BYTES, _SECONDS = 1e7, 1e13, 1e16, 1e23, 1e12
"""Largest values that make sense: requests at once; requests, tokens (1e6 a second for 300 years), bytes (1e13 a second
for 300 years) and seconds since a start."""


def _gauge(name: str, series: Series, largest: float, **more: object) -> MetricName:
    return MetricName(name=name, series=series, kind=Kind.GAUGE, largest=largest, **more)  # type: ignore[arg-type]


def _counter(name: str, series: Series, largest: float, **more: object) -> MetricName:
    return MetricName(name=name, series=series, kind=Kind.COUNTER, largest=largest, **more)  # type: ignore[arg-type]


def _histogram(name: str, series: Series, largest: float, **more: object) -> MetricName:
    return MetricName(name=name, series=series, kind=Kind.HISTOGRAM, largest=largest, **more)  # type: ignore[arg-type]


NAMES: tuple[MetricName, ...] = (
    _gauge("vllm:num_requests_running", Series.RUNNING, _REQUESTS),
    _gauge("vllm:num_requests_waiting", Series.WAITING, _REQUESTS),
    _gauge("vllm:kv_cache_usage_perc", Series.KV_USE, 1.0, first=(0, 9, 2)),
    _gauge("vllm:gpu_cache_usage_perc", Series.KV_USE, 1.0, last=(0, 11, 2)),
    _gauge(
        "vllm:approximate_uncached_tokens_waiting",
        Series.UNCACHED_TOKENS_WAITING,
        _TOKENS,
        first=(0, 34, 0),
        optional=True,
    ),
    _gauge(
        "vllm:engine_sleep_state",
        Series.AWAKE,
        _REQUESTS,
        first=(0, 11, 1),
        label=("sleep_state", "awake"),
        optional=True,
    ),
    _counter("vllm:num_preemptions_total", Series.PREEMPTIONS, _COUNT),
    _counter("vllm:prompt_tokens_total", Series.PROMPT_TOKENS, _TOKENS),
    _counter("vllm:generation_tokens_total", Series.GENERATION_TOKENS, _TOKENS),
    _counter("vllm:request_success_total", Series.FINISHED, _COUNT),
    _counter("vllm:admission_rejections_total", Series.REJECTED, _COUNT, first=(0, 32, 0), optional=True),
    _counter("vllm:prefix_cache_queries_total", Series.PREFIX_QUERIES, _TOKENS, first=(0, 9, 2)),
    _counter("vllm:gpu_prefix_cache_queries_total", Series.PREFIX_QUERIES, _TOKENS, last=(0, 11, 2)),
    _counter("vllm:prefix_cache_hits_total", Series.PREFIX_HITS, _TOKENS, first=(0, 9, 2)),
    _counter("vllm:gpu_prefix_cache_hits_total", Series.PREFIX_HITS, _TOKENS, last=(0, 11, 2)),
    _counter(
        "vllm:estimated_read_bytes_per_gpu_total", Series.READ_BYTES, _BYTES, first=(0, 17, 0), optional=True
    ),
    _counter(
        "vllm:estimated_write_bytes_per_gpu_total",
        Series.WRITE_BYTES,
        _BYTES,
        first=(0, 17, 0),
        optional=True,
    ),
    # A histogram, of which only the count is used; in the source marked as possibly wrong with several API servers.
    _counter(
        "vllm:iteration_tokens_total_count",
        Series.STEPS,
        _TOKENS,
        family="vllm:iteration_tokens_total",
        optional=True,
    ),
    _histogram("vllm:time_to_first_token_seconds", Series.TTFT, _SECONDS),
    _histogram("vllm:inter_token_latency_seconds", Series.ITL, _SECONDS, first=(0, 10, 2)),
    _histogram("vllm:time_per_output_token_seconds", Series.ITL, _SECONDS, last=(0, 14, 1)),
    _histogram("vllm:request_time_per_output_token_seconds", Series.TPOT, _SECONDS, first=(0, 11, 0)),
    _histogram("vllm:request_prompt_tokens", Series.INPUT_LENGTH, _TOKENS),
    _histogram("vllm:request_generation_tokens", Series.OUTPUT_LENGTH, _TOKENS),
    # Not in multiprocess mode (several API servers): the standard collectors are left out there.
    _counter("process_cpu_seconds_total", Series.CPU_SECONDS, _SECONDS, optional=True),
    _gauge("process_start_time_seconds", Series.START_TIME, _SECONDS, optional=True),
)


LAST_WITH_V0: Version = (0, 10, 2)
NOT_ON_V0 = frozenset({Series.PREFIX_QUERIES, Series.PREFIX_HITS})
"""What starts on the V0 engine don't export."""


def preferred(version: Version | None) -> tuple[MetricName, ...]:
    """All names in the order in which they are tried: those that this release was seen with come first.

    A release that wasn't seen is read by whatever it exports, so the others follow. None: the version isn't known.
    """
    if version is None:
        return NAMES
    return tuple(sorted(NAMES, key=lambda each: not each.first <= version <= each.last))


def expected(version: Version | None) -> frozenset[Series]:
    """What every start of this release exports; None: what every release exports."""
    if version is None:
        always = {each.series for each in NAMES if each.first == (0, 0, 0) and each.last == UNBOUNDED}
        optional = {each.series for each in NAMES if each.optional}
        return frozenset((always | {Series.KV_USE, Series.ITL}) - optional)
    found = {each.series for each in NAMES if not each.optional and each.first <= version <= each.last}
    return frozenset(found - NOT_ON_V0 if version <= LAST_WITH_V0 else found)
