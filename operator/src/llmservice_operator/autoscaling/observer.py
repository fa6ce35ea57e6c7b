"""From the metrics pages of a service's engines to the service's signals.

A rate over a window is the sum of what each engine counted in that window, those that have left since included, over
the window's length: so neither a replica that joins nor one that goes changes the rate that the clients send.
Where an engine can't be seen, its share is taken to be that of the others, and the state says that this was done. One
that has only just become ready has no share yet: a queue that others have would else count again for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from llmservice_operator.autoscaling.histograms import Samples, merged
from llmservice_operator.autoscaling.short_answers import LongAnswers, narrower_of
from llmservice_operator.autoscaling.signals import ABSENT, NOTHING, Signal, Signals, SignalState, worst
from llmservice_operator.autoscaling.track import ReplicaTrack, Windows
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import MetricsPage

_FEW_SAMPLES = 1.0
"""Below one whole sample in the window there was none."""
_FUTURE_SECONDS = 5.0
"""A page from further ahead than this was taken by another clock."""
_ARRIVAL_SERIES = (Series.RUNNING, Series.WAITING, Series.FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What signals are measured against, and those that come from elsewhere."""

    ttft_p95_seconds: float | None = None
    """The objective; None: none."""
    tpot_p95_seconds: float | None = None
    peak_bytes_per_second: float | None = None
    """Of one GPU's memory."""
    dram_active: Signal = ABSENT
    sm_active: Signal = ABSENT
    held_requests: Signal = NOTHING


class ServiceObserver:
    """Keeps what was seen of one service's engines. Only in memory: after a restart it begins anew, and says so."""

    def __init__(self, windows: Windows | None = None) -> None:
        self.windows = windows or Windows()
        self._tracks: dict[str, ReplicaTrack] = {}

    def record(self, replica: str, page: MetricsPage, *, at: float, incarnation: str = "") -> None:
        """Take a page of a replica. `incarnation` tells one container from the next in the same pod."""
        track = self._tracks.get(replica)
        if track is None:
            track = self._tracks[replica] = ReplicaTrack(self.windows)
        track.record(page, at=at, incarnation=incarnation)

    def signals(self, ready: Mapping[str, float], now: float, context: Context | None = None) -> Signals:
        """The signals of a service whose ready replicas these are, each with the time since when it is ready."""
        self._forget(ready, now)
        return _View(self._tracks, ready, now, self.windows, context or Context()).signals()

    def _forget(self, ready: Mapping[str, float], now: float) -> None:
        """Drop replicas that went so long ago that no window reaches them."""
        horizon = now - self.windows.long_seconds - self.windows.missing_seconds
        for name in [
            name for name, track in self._tracks.items() if name not in ready and track.at < horizon
        ]:
            del self._tracks[name]


class _Seen(NamedTuple):
    """A ready replica's track, and how far it can be trusted as a whole."""

    track: ReplicaTrack
    state: SignalState


class _View:
    """One look at all replicas at one time."""

    def __init__(
        self,
        tracks: Mapping[str, ReplicaTrack],
        ready: Mapping[str, float],
        now: float,
        windows: Windows,
        context: Context,
    ) -> None:
        self._windows = windows
        self._context = context
        self._ready = ready
        unseen = ReplicaTrack(windows)
        self._seen = {
            name: _Seen(tracks.get(name, unseen), _freshness(tracks.get(name), now, windows))
            for name in ready
        }
        self._joining = sum(
            seen.track.page is None and now - ready[name] < windows.stale_seconds
            for name, seen in self._seen.items()
        )
        """Ready since the last look, and not asked yet: whatever they have by now, it is not what the others have."""
        fresh = [seen.track for seen in self._seen.values() if seen.state is SignalState.OK]
        self._at = min((track.at for track in fresh), default=0.0)
        self._end = max((track.at for track in fresh), default=now)
        self._span = max((track.span_seconds for track in fresh), default=0.0)
        self._gone = [track for name, track in tracks.items() if name not in ready]
        self._is_plain = self._all_are_plain()

    def signals(self) -> Signals:
        windows = self._windows
        latency, long = windows.latency_seconds, windows.long_seconds
        inputs, outputs = self._samples(Series.INPUT_LENGTH, long), self._samples(Series.OUTPUT_LENGTH, long)
        itl = self._samples(Series.ITL, latency)
        ttft, tpot = self._samples(Series.TTFT, latency), self._tpot(latency, itl)
        goal, moved, spoken = self._context, self._moved_bytes(latency), _of_long_answers(tpot, itl, outputs)
        return Signals(
            arrivals_per_second=self._arrivals(windows.short_seconds),
            sustained_arrivals_per_second=self._arrivals(long),
            completions_per_second=self._rate(Series.FINISHED, latency),
            input_tokens_per_second=self._rate(Series.PROMPT_TOKENS, latency),
            generated_tokens_per_second=self._rate(Series.GENERATION_TOKENS, latency),
            input_tokens_mean=_of(inputs, lambda samples: samples.mean),
            input_tokens_p95=_of(inputs, lambda samples: samples.quantile(0.95)),
            output_tokens_mean=_of(outputs, lambda samples: samples.mean),
            output_tokens_p95=_of(outputs, lambda samples: samples.quantile(0.95)),
            prefix_hit_share=self._hit_share(long),
            running=self._gauge(Series.RUNNING, sum),
            waiting=self._gauge(Series.WAITING, sum),
            uncached_tokens_waiting=self._gauge(Series.UNCACHED_TOKENS_WAITING, sum),
            kv_use_total=self._gauge(Series.KV_USE, sum, of_replica="mean"),
            kv_use_highest=self._gauge(Series.KV_USE, max, of_replica="highest"),
            preemptions_per_second=self._rate(Series.PREEMPTIONS, latency),
            ttft_p50_seconds=_of(ttft, lambda samples: samples.quantile(0.50)),
            ttft_p95_seconds=_of(ttft, lambda samples: samples.quantile(0.95)),
            ttft_attainment=_within(ttft, goal.ttft_p95_seconds),
            tpot_p50_seconds=_of(tpot, lambda _: spoken.quantile(0.50)),
            tpot_p95_seconds=_of(tpot, lambda _: spoken.quantile(0.95)),
            tpot_attainment=_within(tpot, goal.tpot_p95_seconds, spoken),
            itl_mean_seconds=_of(itl, lambda samples: samples.mean),
            bandwidth_use=self._bandwidth_use(moved),
            step_bytes=self._step_bytes(moved, latency),
            dram_active=goal.dram_active,
            sm_active=goal.sm_active,
            held_requests=goal.held_requests,
            span_seconds=self._span,
        )

    # ── one replica ──

    def _state(self, name: str, series: Iterable[Series], seconds: float = 0.0) -> SignalState:
        """How far this replica's values of these series can be trusted over a window of so many seconds."""
        seen = self._seen[name]
        if seen.state is not SignalState.OK or seen.track.page is None:
            return seen.state
        page, track = seen.track.page, seen.track
        series = tuple(series)
        if any(each in page.invalid for each in series):
            return SignalState.INVALID
        if not all(page.has(each) for each in series):
            return SignalState.MISSING
        if not seconds:
            return SignalState.OK
        begin = self._end - min(seconds, self._span)
        if not self._was_seen(name, track, begin):
            return SignalState.MISSING  # it was there before it was seen: what it did until then isn't known
        if any(track.was_reset(each, begin) for each in series):
            return SignalState.RESET
        return SignalState.OK

    def _was_seen(self, name: str, track: ReplicaTrack, begin: float) -> bool:
        """Whether this replica was seen from that time on, or from when it was ready."""
        return track.begin <= max(self._ready[name], begin) + self._windows.stale_seconds

    def _all_are_plain(self) -> bool:
        """Whether nothing is wrong with any replica in any window, so that only what pages tell can differ."""
        begin = self._end - min(self._windows.long_seconds, self._span)
        return all(
            seen.state is SignalState.OK
            and seen.track.is_whole(begin)
            and self._was_seen(name, seen.track, begin)
            for name, seen in self._seen.items()
        )

    # ── all replicas ──

    def _states(self, series: tuple[Series, ...], seconds: float = 0.0) -> list[SignalState]:
        """Of each replica, in order."""
        if not self._is_plain:
            return [self._state(name, series, seconds) for name in self._seen]
        states = []
        for seen in self._seen.values():
            page = seen.track.page
            is_told = page is not None
            for each in series:
                is_told = is_told and page.has(each)  # type: ignore[union-attr]
            states.append(SignalState.OK if is_told else SignalState.MISSING)
        return states

    def _too_short(self, series: tuple[Series, ...]) -> SignalState:
        """Why nothing is known over a window: the engines' own reason, or that they were not seen for long enough."""
        if self._span:
            return SignalState.MISSING
        state = worst(self._states(series))
        return SignalState.MISSING if state is SignalState.OK else state

    def _all_over(self, usable: int) -> float:
        """By how much all replicas have more than those that can be seen."""
        return (len(self._seen) - self._joining) / usable

    def _flow(
        self, series: tuple[Series, ...], seconds: float, grown: Callable[[ReplicaTrack, float], float]
    ) -> Signal:
        """What all replicas counted in the window over its length; `grown` tells one's count since a time."""
        seconds = min(seconds, self._span)
        if seconds < self._windows.least_seconds:
            return Signal(None, self._too_short(series), self._at)
        states, counted, usable = self._states(series, seconds), 0.0, 0
        for (track, _), state in zip(self._seen.values(), states, strict=True):
            if state is SignalState.OK or state is SignalState.RESET:
                counted += grown(track, track.at - seconds)
                usable += 1
        if not usable:
            return Signal(None, worst(states), self._at)
        counted *= self._all_over(usable)
        counted += sum(
            grown(track, self._end - seconds) for track in self._gone if track.at > self._end - seconds
        )
        return Signal(counted / seconds, worst(states), self._at)

    def _rate(self, series: Series, seconds: float) -> Signal:
        return self._flow((series,), seconds, lambda track, begin: track.growth(series, begin))

    def _arrivals(self, seconds: float) -> Signal:
        return self._flow(_ARRIVAL_SERIES, seconds, ReplicaTrack.arrived)

    def _gauge(
        self, series: Series, combine: Callable[[list[float]], float], *, of_replica: str = "total"
    ) -> Signal:
        states = self._states((series,))
        values = [
            float(getattr(seen.track.page.gauges[series], of_replica))
            for seen, state in zip(self._seen.values(), states, strict=True)
            if state is SignalState.OK and seen.track.page is not None
        ]
        if not values:
            return Signal(None, worst(states), self._at)
        value = combine(values) * (self._all_over(len(values)) if combine is sum else 1.0)
        return Signal(value, worst(states), self._at)

    def _samples(self, series: Series, seconds: float) -> tuple[Samples, SignalState, float]:
        """All replicas' samples of a histogram in the window, and their state."""
        seconds = min(seconds, self._span)
        states = self._states((series,), seconds)
        parts = [
            seen.track.samples(series, seen.track.at - seconds)
            for seen, state in zip(self._seen.values(), states, strict=True)
            if state is SignalState.OK or state is SignalState.RESET
        ]
        parts += [
            track.samples(series, self._end - seconds)
            for track in self._gone
            if track.at > self._end - seconds
        ]
        state = worst(states) if seconds >= self._windows.least_seconds else self._too_short((series,))
        return merged(parts), state, self._at

    def _tpot(
        self, seconds: float, of_steps: tuple[Samples, SignalState, float]
    ) -> tuple[Samples, SignalState, float]:
        """Of finished requests; of steps where the release has no such histogram."""
        of_requests = self._samples(Series.TPOT, seconds)
        if of_requests[1] is SignalState.MISSING and not of_requests[0].count:
            return of_steps
        return of_requests

    def _hit_share(self, seconds: float) -> Signal:
        queries, hits = self._rate(Series.PREFIX_QUERIES, seconds), self._rate(Series.PREFIX_HITS, seconds)
        state = worst([queries.state, hits.state])
        if not queries.value:
            return Signal(None, SignalState.IDLE if state is SignalState.OK else state, self._at)
        return Signal(min(1.0, hits.or_zero() / queries.value), state, self._at)

    def _moved_bytes(self, seconds: float) -> Signal:
        """Bytes a second that are read and written, one GPU of each engine; none where engines don't count them."""
        read, written = self._rate(Series.READ_BYTES, seconds), self._rate(Series.WRITE_BYTES, seconds)
        state = worst([read.state, written.state])
        if read.value is None or written.value is None:
            return Signal(None, state, self._at)
        moved = read.value + written.value
        if not moved and self._rate(Series.GENERATION_TOKENS, seconds).or_zero():
            return Signal(None, SignalState.MISSING, self._at)  # off: tokens are made and no byte is moved
        return Signal(moved, state, self._at)

    def _engines(self) -> float:
        """Data-parallel ranks of all replicas: each counts its own GPU's bytes, and a page sums its ranks."""
        counts = [
            seen.track.page.gauges[Series.RUNNING].engines
            for seen in self._seen.values()
            if seen.track.page is not None and Series.RUNNING in seen.track.page.gauges
        ]
        return (len(self._ready) - self._joining) * (sum(counts) / len(counts) if counts else 1.0)

    def _bandwidth_use(self, moved: Signal) -> Signal:
        peak = self._context.peak_bytes_per_second
        if moved.value is None or not peak:
            return Signal(None, SignalState.MISSING if not peak else moved.state, self._at)
        return Signal(moved.value / (peak * self._engines()), moved.state, self._at)

    def _step_bytes(self, moved: Signal, seconds: float) -> Signal:
        steps = self._rate(Series.STEPS, seconds)
        state = worst([moved.state, steps.state])
        if moved.value is None or not steps.value:
            return Signal(None, SignalState.IDLE if state is SignalState.OK else state, self._at)
        return Signal(moved.value / steps.value, state, self._at)


def _freshness(track: ReplicaTrack | None, now: float, windows: Windows) -> SignalState:
    """How far a replica can be trusted as a whole."""
    if track is None or track.page is None or now - track.at > windows.missing_seconds:
        return SignalState.MISSING
    age_seconds = now - track.at
    if not -_FUTURE_SECONDS <= age_seconds <= windows.stale_seconds or track.is_frozen(now):
        return SignalState.STALE
    return SignalState.OK


def _of(measured: tuple[Samples, SignalState, float], figure: Callable[[Samples], float]) -> Signal:
    """A figure of samples; `idle` where there were none, though they would have been seen."""
    samples, state, at = measured
    value = figure(samples) if samples.count >= _FEW_SAMPLES else math.nan
    if math.isnan(value):
        return Signal(None, SignalState.IDLE if state is SignalState.OK else state, at)
    return Signal(value, state, at)


def _within(
    measured: tuple[Samples, SignalState, float], limit: float | None, told: LongAnswers | None = None
) -> Signal:
    """The share of samples within an objective; 1 where there is none to keep. `told`: what is looked at instead."""
    if limit is None:
        return Signal(1.0, SignalState.OK, measured[2])
    return _of(measured, lambda samples: (told or samples).share_within(limit))


def _of_long_answers(
    tpot: tuple[Samples, SignalState, float],
    itl: tuple[Samples, SignalState, float],
    outputs: tuple[Samples, SignalState, float],
) -> LongAnswers:
    """The time per token as an objective has it; of gaps, where that is all that there is, as they are."""
    samples, lengths = tpot[0], outputs[0]
    is_of_gaps = samples is itl[0] or not itl[0].count
    narrower = 1.0 if is_of_gaps else narrower_of(lengths.bounds, lengths.counts)
    return LongAnswers(samples, itl[0].mean, narrower)
