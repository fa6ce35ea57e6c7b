"""One engine's counters over time: differences that a restart, a reset, a gap or a jump of the clock cannot falsify."""

import operator
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmservice_operator.autoscaling.histograms import NONE, Samples
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import Histogram, MetricsPage

COUNTERS = (
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
)
HISTOGRAMS = (Series.TTFT, Series.ITL, Series.TPOT, Series.INPUT_LENGTH, Series.OUTPUT_LENGTH)
_INDEX = {series: index for index, series in enumerate(COUNTERS)}
_ARRIVED = len(COUNTERS)
_WORK = (Series.GENERATION_TOKENS, Series.STEPS, Series.PROMPT_TOKENS, Series.FINISHED)
_FASTEST_PER_SECOND: Mapping[Series, float] = {
    Series.READ_BYTES: 1e15,
    Series.WRITE_BYTES: 1e15,
}
_FASTEST_COUNT_PER_SECOND = 1e8
"""No engine counts faster: tokens looked up, or bytes of eight ranks at 1e14 each. A counter that does has jumped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How long is looked back, and when data is too old. All in seconds."""

    short_seconds: float = 30.0
    """Of arrivals: six scrapes, in which 2 requests a second are told to 13 % (one standard deviation)."""
    latency_seconds: float = 60.0
    """Of quantiles and throughput."""
    long_seconds: float = 120.0
    """Of sustained arrivals, lengths and cache hits."""
    stale_seconds: float = 15.0
    """Three scrapes."""
    missing_seconds: float = 60.0
    """A value older than this isn't shown any more."""
    hung_seconds: float = 15.0
    """An engine that has work and makes not a step in so long is not believed. It is half of the short window: what
    arrives at an engine that hangs isn't told, and must not look like less load before it is found out."""
    frozen_seconds: float = 30.0
    """Nor is a page on which not even the process' own clock moves: an idle one's moves by a hundredth at a scrape."""
    gap_seconds: float = 45.0
    """Between scrapes further apart than this, rates mean nothing: the clock jumped, or the pod was away."""
    least_seconds: float = 8.0
    """A rate needs as much; two scrapes are ten seconds apart at most."""
    spacing_seconds: float = 9.0
    """Looks closer than this are not all kept."""


class _Look:
    """Totals at one time: counters (and arrivals), and each histogram's buckets and sum."""

    __slots__ = ("at", "counters", "histograms")

    def __init__(self, at: float, counters: "array[float]", histograms: "dict[Series, array[float]]") -> None:
        self.at = at
        self.counters = counters
        self.histograms = histograms


class ReplicaTrack:
    """Totals since the first look, whatever incarnations there were."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._looks: list[_Look] = []
        self._raw: dict[Series, float] = {}
        self._raw_histograms: dict[Series, Histogram] = {}
        self._resets: dict[Series, float] = {}
        self._incarnation: tuple[str, float] | None = None
        self._in_flight: float | None = None
        self._lost = 0.0
        self._moved_at = 0.0
        self._cpu_moved_at = 0.0
        self._grown: dict[float, list[float]] = {}
        """What was worked out since the newest look: growth of each counter by when it begins."""
        self.page: MetricsPage | None = None
        """The newest page."""

    @property
    def at(self) -> float:
        """When the newest page was taken; 0: never."""
        return self._looks[-1].at if self._looks else 0.0

    @property
    def begin(self) -> float:
        """When the oldest look was, that is kept."""
        return self._looks[0].at if self._looks else 0.0

    @property
    def span_seconds(self) -> float:
        """Between the oldest and the newest look."""
        return self.at - self.begin

    def record(self, page: MetricsPage, *, at: float, incarnation: str = "") -> None:
        """Take a page. `incarnation` tells one container from the next in the same pod."""
        if self._looks and at == self.at:
            return
        start = page.gauges.get(Series.START_TIME)
        identity = (incarnation, start.total if start else 0.0)
        is_new = self._incarnation is not None and identity != self._incarnation
        step_seconds = at - self.at if self._looks else 0.0
        is_continuous = 0.0 < step_seconds <= self._windows.gap_seconds
        counters = array("d", self._looks[-1].counters if self._looks else [0.0] * (_ARRIVED + 1))
        histograms = dict(self._looks[-1].histograms) if self._looks else {}
        if not is_continuous:
            # What came in between cannot be put into time, and a difference over it would be no rate.
            self._looks.clear()
            self._raw.clear()
            self._raw_histograms.clear()
            self._in_flight, self._lost = None, 0.0
            counters = array("d", [0.0] * (_ARRIVED + 1))
            histograms = {}
            is_new = False
        self._incarnation = identity
        self._note_progress(page, at, is_new=is_new or not is_continuous)
        if is_new:
            self._resets = dict.fromkeys((*COUNTERS, *HISTOGRAMS), at)
            self._lost += self._in_flight or 0.0
            self._in_flight = 0.0
        self._count(page, at, counters, step_seconds, is_new=is_new)
        self._sample(page, at, histograms, is_new=is_new)
        self.page = page
        self._keep(_Look(at, counters, histograms))

    def is_frozen(self, now: float) -> bool:
        """Whether the page stands still: as a copy would, or with work in the engine that makes no progress."""
        windows = self._windows
        if self.page is None:
            return False
        if Series.CPU_SECONDS in self.page.counters and now - self._cpu_moved_at >= windows.frozen_seconds:
            return True
        return bool(self._in_flight) and now - self._moved_at >= windows.hung_seconds

    def was_reset(self, series: Series, since: float) -> bool:
        """Whether that series began anew after this time."""
        return self._resets.get(series, 0.0) >= since > 0.0

    def is_whole(self, since: float) -> bool:
        """Whether no series began anew after this time, and none of the newest page is invalid."""
        if self.page is None or self.page.invalid:
            return False
        return all(at < since for at in self._resets.values())

    def growth(self, series: Series, begin: float) -> float:
        """By how much a counter grew from that time to the newest look; from the oldest look, if that is later."""
        return self._growths(begin)[_INDEX[series]]

    def arrived(self, begin: float) -> float:
        """Requests that came from that time to the newest look."""
        return self._growths(begin)[_ARRIVED]

    def samples(self, series: Series, begin: float) -> Samples:
        """A histogram's samples from that time to the newest look."""
        known = self._raw_histograms.get(series)
        if known is None or len(self._looks) < 2:
            return NONE
        newest = self._looks[-1].histograms.get(series)
        before, after, part = self._around(begin)
        low, high = before.histograms.get(series), after.histograms.get(series)
        if newest is None or low is None or high is None or not len(low) == len(high) == len(newest):
            return NONE
        if newest is low:
            return NONE  # nothing came
        if low is high or not part:
            grown = list(map(operator.sub, newest, low))
        else:
            grown = [
                new - (old + (next_ - old) * part) for new, old, next_ in zip(newest, low, high, strict=True)
            ]
        return Samples(known.bounds, grown[:-1], grown[-1])

    def _growths(self, begin: float) -> Sequence[float]:
        """Growth of each counter since that time; 0 for one that seems to have fallen."""
        grown = self._grown.get(begin)
        if grown is None:
            if len(self._looks) < 2:
                grown = [0.0] * (_ARRIVED + 1)
            else:
                before, after, part = self._around(begin)
                grown = [
                    max(0.0, new - (low + (high - low) * part))
                    for new, low, high in zip(
                        self._looks[-1].counters, before.counters, after.counters, strict=True
                    )
                ]
            self._grown[begin] = grown
        return grown

    def _around(self, time: float) -> tuple[_Look, _Look, float]:
        """The looks before and after this time, and how far between them it is."""
        looks = self._looks
        after = bisect_right(looks, time, key=_time)
        if after in {0, len(looks)}:
            end = looks[0] if after == 0 else looks[-1]
            return (end, end, 0.0)
        before = looks[after - 1]
        return (before, looks[after], (time - before.at) / (looks[after].at - before.at))

    def _note_progress(self, page: MetricsPage, at: float, *, is_new: bool) -> None:
        """Remember when the engine's counters, and the process' own clock, last moved."""
        raw, counters = self._raw, page.counters
        if is_new:
            self._moved_at = at
        else:
            for series in _WORK:
                if raw.get(series) != counters.get(series):
                    self._moved_at = at
                    break
        cpu_seconds = page.counters.get(Series.CPU_SECONDS)
        if is_new or cpu_seconds != raw.get(Series.CPU_SECONDS):
            self._cpu_moved_at = at
        if cpu_seconds is not None:
            raw[Series.CPU_SECONDS] = cpu_seconds

    def _count(
        self, page: MetricsPage, at: float, totals: "array[float]", step_seconds: float, *, is_new: bool
    ) -> None:
        raw = self._raw
        for index, series in enumerate(COUNTERS):
            value = page.counters.get(series)
            if value is None:
                continue
            grown = value if is_new else value - raw.get(series, value)
            fastest = _FASTEST_PER_SECOND.get(series, _FASTEST_COUNT_PER_SECOND) * step_seconds
            if 0.0 <= grown <= fastest:
                totals[index] += grown
            elif step_seconds > 0.0:
                self._resets[series] = at  # fell or jumped: how much came isn't known
            raw[series] = value
        running, waiting = page.gauges.get(Series.RUNNING), page.gauges.get(Series.WAITING)
        if running is None or waiting is None or Series.FINISHED not in page.counters:
            return
        in_flight = running.total + waiting.total
        # Who came is who has left, was refused or is still here.
        level = totals[_INDEX[Series.FINISHED]] + totals[_INDEX[Series.REJECTED]] + in_flight
        if self._in_flight is None:
            self._lost = totals[_ARRIVED] - level  # those here at the first look came before it
        elif not self._in_flight:
            self._moved_at = at  # work has only now come
        self._in_flight = in_flight
        totals[_ARRIVED] = level + self._lost

    def _sample(
        self, page: MetricsPage, at: float, totals: "dict[Series, array[float]]", *, is_new: bool
    ) -> None:
        for series in HISTOGRAMS:
            read = page.histograms.get(series)
            if read is None:
                continue
            known = self._raw_histograms.get(series)
            self._raw_histograms[series] = read
            if known is None or known.bounds != read.bounds:
                totals[series] = array("d", bytes(8 * (len(read.bounds) + 1)))
                if known is not None:
                    # What was counted in other buckets can't be subtracted from what is counted in these.
                    self._resets[series] = at
                    for look in self._looks:
                        look.histograms.pop(series, None)
            elif is_new:
                totals[series] = array(
                    "d", list(map(operator.add, totals[series], (*read.counts, read.total)))
                )
            elif read.counts != known.counts:
                grown = came_between(known, read)
                if grown is None:
                    self._resets[series] = at
                    continue
                # An array takes a list in half the time that it takes any other iterable in.
                totals[series] = array("d", list(map(operator.add, totals[series], grown)))

    def _keep(self, look: _Look) -> None:
        """Add a look, and drop those that no window needs."""
        looks, windows = self._looks, self._windows
        looks.append(look)
        self._grown.clear()
        if len(looks) >= 3 and looks[-2].at - looks[-3].at < windows.spacing_seconds:
            del looks[-2]
        while len(looks) > 2 and looks[1].at <= look.at - windows.long_seconds:
            del looks[0]


def came_between(known: Histogram, read: Histogram) -> list[float] | None:
    """What came between two looks at one histogram: samples up to each bound, and their sum; None if a bucket fell.

    The sum may be less than nothing: times fall by a rounding, or by a clock that was set.
    """
    grown = list(map(operator.sub, read.counts, known.counts))
    # Buckets count those of the ones before them too: in each at least as much came as in the one before.
    if grown[0] < 0.0 or any(map(operator.gt, grown, grown[1:])):
        return None
    grown.append(read.total - known.total)
    return grown


def _time(look: _Look) -> float:
    return look.at
