"""A vLLM metrics page read into the series that are used, in a fraction of a millisecond. Pure.

The text format has one block a family, which begins with its `# TYPE` line, and a page has some 90 families of which 20
are wanted. So the page is cut at those lines in one pass, and only wanted blocks are read line by line.
Several engines' series (data-parallel ranks, API servers) are summed. A value that cannot be is left out and named.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from llmservice_operator.engines.metric_names import Kind, MetricName, Series, expected, preferred
from llmservice_operator.engines.versions import Version

MAX_PAGE_BYTES = 2 << 20
"""A page of one engine has 60 KB, of eight ranks 450 KB."""
MAX_SAMPLES = 8192
"""Of one family: 128 ranks of 64 buckets."""
_LARGEST_SUM = 1e6
"""A histogram's sum over its largest sample."""
_FLAWS = 8
"""At most so many are told."""


class PageError(ValueError):
    """Not a metrics page of this engine, or too long a one."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge over the engines behind a page."""

    total: float
    highest: float
    engines: int

    @property
    def mean(self) -> float:
        """Of the engines."""
        return self.total / self.engines


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram over the engines behind a page, since their start."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; the last is infinity."""
    counts: "array[float]"  # not generic at run time before 3.12
    """Samples at or below each bound."""
    total: float
    """Sum of the samples."""

    @property
    def count(self) -> float:
        """Number of samples."""
        return self.counts[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """What a page tells. A series that is in none of the mappings wasn't there, or was invalid."""

    gauges: Mapping[Series, Gauge]
    counters: Mapping[Series, float]
    histograms: Mapping[Series, Histogram]
    invalid: frozenset[Series] = frozenset()
    """There, but with values that cannot be."""
    missing: frozenset[Series] = frozenset()
    """Not there, though this release exports them."""
    flaws: tuple[str, ...] = ()
    """What is wrong, in words, a few at most."""

    def has(self, series: Series) -> bool:
        """Whether the page tells this series."""
        return series in self.gauges or series in self.counters or series in self.histograms


class _FlawError(ValueError):
    """A value that cannot be."""


def parse_page(page: bytes, version: Version | None = None) -> MetricsPage:
    """The page's series; `version` decides which of two names is preferred and which series are missed.

    Raises PageError for a page of more than MAX_PAGE_BYTES, a cut one, and one without any of the engine's series.
    """
    if len(page) > MAX_PAGE_BYTES:
        raise PageError(f"the page has {len(page)} bytes; {MAX_PAGE_BYTES} at most are read")
    if page and not page.endswith(b"\n"):
        # The last digits of a number may be gone, and what is left of it is a number too.
        raise PageError("the page ends in the middle of a line, or has none of the engine's series")
    names, order, awaited = _tables(version)
    blocks: dict[bytes, bytes] = {}
    for block in page.split(b"# TYPE ")[1:]:
        head = block[: block.find(b" ")]
        if head in names:
            blocks[names[head]] = block
    reading = _Reading()
    for exposed, metric, label in order:
        found = blocks.get(exposed)
        if found is not None and metric.series not in reading.told:
            reading.read(found, exposed, metric, label)
    seen = reading.told | reading.invalid
    if Series.RUNNING not in seen and Series.PROMPT_TOKENS not in seen:
        raise PageError("the page has none of the engine's series")
    return MetricsPage(
        gauges=reading.gauges,
        counters=reading.counters,
        histograms=reading.histograms,
        invalid=frozenset(reading.invalid - reading.told),
        missing=awaited - seen,
        flaws=tuple(reading.flaws[:_FLAWS]),
    )


class _Reading:
    """What was read of a page so far."""

    def __init__(self) -> None:
        self.gauges: dict[Series, Gauge] = {}
        self.counters: dict[Series, float] = {}
        self.histograms: dict[Series, Histogram] = {}
        self.told: set[Series] = set()
        self.invalid: set[Series] = set()
        self.flaws: list[str] = []

    def read(self, block: bytes, exposed: bytes, metric: MetricName, label: bytes) -> None:
        """Take the metric from its block."""
        try:
            if metric.kind is Kind.HISTOGRAM:
                self._take_histogram(block, exposed, metric)
            elif values := _values(block, exposed, metric.largest, label):
                if metric.kind is Kind.COUNTER:
                    self.counters[metric.series] = math.fsum(values)
                else:
                    self.gauges[metric.series] = Gauge(math.fsum(values), max(values), len(values))
                self.told.add(metric.series)
        except _FlawError as flaw:
            self.invalid.add(metric.series)
            self.flaws.append(f"{metric.name} {flaw}")

    def _take_histogram(self, block: bytes, exposed: bytes, metric: MetricName) -> None:
        histogram = _histogram(block, exposed, metric)
        if histogram is not None:
            self.histograms[metric.series] = histogram
            self.told.add(metric.series)


def _label(metric: MetricName) -> bytes:
    return '{}="{}"'.format(*metric.label).encode() if metric.label else b""


_Tables = tuple[dict[bytes, bytes], tuple[tuple[bytes, MetricName, bytes], ...], frozenset[Series]]


@lru_cache(maxsize=64)
def _tables(version: Version | None) -> _Tables:
    """(family's name on its TYPE line → exposed name, what is tried in order, series that are awaited).

    OpenMetrics writers leave `_total` out of the TYPE line of a counter.
    """
    order = tuple((metric.name.encode(), metric, _label(metric)) for metric in preferred(version))
    names = {}
    for exposed, metric, _ in order:
        names[metric.family.encode() or exposed] = exposed
        if metric.kind is Kind.COUNTER and not metric.family:
            names[exposed.removesuffix(b"_total")] = exposed
    return names, order, expected(version)


def _values(block: bytes, name: bytes, largest: float, label: bytes = b"") -> list[float]:
    """The values of a block's samples of this name, of those with this label where one is given.

    Raises _FlawError for a value that is no finite number from 0 to the largest.
    """
    # The block begins with the rest of its TYPE line, so that no sample is the first part.
    parts = block.split(b"\n" + name)
    if len(parts) > MAX_SAMPLES:
        raise _FlawError(f"has more than {MAX_SAMPLES} samples")
    values = []
    for part in parts[1:]:
        line = part.partition(b"\n")[0]
        if line[:1] == b"{":
            if label in line:
                values.append(_checked(_parsed(line[line.rfind(b"} ") + 2 :]), largest))
        elif line[:1] == b" " and not label:
            values.append(_checked(_parsed(line[1:]), largest))
    return values


def _histogram(block: bytes, exposed: bytes, metric: MetricName) -> Histogram | None:
    """The histogram, its engines' buckets summed; None: there is no sample in the block.

    Raises _FlawError when buckets fall, engines have other bounds, or count, sum and buckets do not fit together.
    """
    rows: dict[tuple[bytes, bytes], tuple[list[bytes], array[float]]] = {}
    found = _bucket_line(exposed).findall(block)
    if len(found) > MAX_SAMPLES:
        raise _FlawError(f"has more than {MAX_SAMPLES} samples")
    for before, bound, behind, value in found:
        # What is left of the labels tells one engine's buckets from another's.
        bounds, counts = rows.setdefault((before, behind), ([], array("d")))
        bounds.append(bound)
        counts.append(_parsed(value))
    # A bucket line begins with neither, and these two stand at the block's end.
    counted = _values(block, exposed + b"_count", metric.largest)
    sums = _values(block, exposed + b"_sum", metric.largest * _LARGEST_SUM)
    if not rows and not counted:
        return None
    if not rows or len(rows) != len(counted) or len(rows) != len(sums):
        raise _FlawError("lacks buckets, count or sum of an engine")
    ends = _bounds([tuple(each) for each, _ in rows.values()])
    added = _summed([each for _, each in rows.values()])
    if added[-1] != math.fsum(counted):
        raise _FlawError("has another count than its last bucket")
    return Histogram(ends, added, math.fsum(sums))


def _bounds(rows: Sequence[tuple[bytes, ...]]) -> tuple[float, ...]:
    if any(row != rows[0] for row in rows):
        raise _FlawError("has other buckets on one engine than on another")
    return _parsed_bounds(rows[0])


@lru_cache(maxsize=256)
def _parsed_bounds(texts: tuple[bytes, ...]) -> tuple[float, ...]:
    """The bounds as numbers: pages repeat them, so each list of them is parsed and kept once."""
    try:
        bounds = tuple(float(text) for text in texts)
    except ValueError:
        raise _FlawError("has a bound that is no number") from None
    is_ascending = bounds[0] >= 0 and all(low < high for low, high in pairwise(bounds))
    if not is_ascending or not math.isinf(bounds[-1]):
        raise _FlawError("has bounds that don't ascend from 0 to infinity")
    return bounds


def _summed(rows: Sequence["array[float]"]) -> "array[float]":
    for row in rows:
        before = 0.0
        for value in row:
            if not value >= before:
                raise _FlawError("has a bucket below the one before it")
            before = value
        if not before < math.inf:
            raise _FlawError("has an endless bucket")
    if len(rows) == 1:
        return rows[0]
    return array("d", map(sum, zip(*rows, strict=True)))


@lru_cache(maxsize=256)
def _bucket_line(exposed: bytes) -> re.Pattern[bytes]:
    """(labels before, bound, labels behind, value) of a bucket line.

    A quote in a label's value is escaped, so `,le="` is the bound wherever it stands.
    """
    return re.compile(
        rb"\n" + re.escape(exposed) + rb"""_bucket(\{|\{[^\n]*?,)le="([^"\n]*)"([^\n]*)\} ([^\n]*)"""
    )


def _parsed(text: bytes) -> float:
    """The number; a time stamp may follow it."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise _FlawError(f"has the value {text[:40].decode(errors='replace')!r}") from None


def _checked(value: float, largest: float) -> float:
    # Written so that NaN fails too. A share may be a rounding above 1.
    if not 0.0 <= value <= largest * 1.000001:
        raise _FlawError(f"is {value:g}; a number from 0 to {largest:g} is expected")
    return value
