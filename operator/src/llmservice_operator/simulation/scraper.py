"""Scrapes of a fleet: gauges, counters that go on over restarts, and what faults make of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.observation import History, PodPage, Scrape
from llmservice_operator.simulation.records import (
    ENGINE,
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
    Fleet,
    Floats,
    Records,
)

COUNTERS = (
    "arrived",
    "finished",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "preemptions",
    "busy_seconds",
    "traffic_seconds",
    "ttft_seconds",
    "tpot_seconds",
    "itl_seconds",
)
HISTOGRAMS = ("ttft", "tpot", "itl")


def _places() -> Mapping[str, slice]:
    places, begin = {}, len(COUNTERS)
    for name in HISTOGRAMS:
        width = ENGINE[name].shape[0]
        places[name] = slice(begin, begin + width)
        begin += width
    return places


_PLACES = _places()
_WIDTH = _PLACES[HISTOGRAMS[-1]].stop
_NOTHING = np.zeros(_WIDTH)


class Scraper:
    """Takes scrapes into a history."""

    def __init__(self, *, pool_tokens: float, half_block: float, faults: Sequence[Fault]) -> None:
        self.history = History(TTFT_BOUNDS_SECONDS.tolist(), TPOT_BOUNDS_SECONDS.tolist())
        self._pool_tokens, self._half_block = pool_tokens, half_block
        self._faults = faults
        self._totals = np.zeros(_WIDTH)
        self._known: dict[int, Floats] = {}
        self._base: dict[int, Floats] = {}
        self._was_reset: set[Fault] = set()

    def take(self, now: float, pods: Sequence[int], engines: Records) -> None:
        """One scrape of these pods, whose records are `engines` in the same order (a copy)."""
        active = {fault.kind for fault in self._faults if fault.holds(now)}
        if FaultKind.GAP in active:
            return
        if FaultKind.FROZEN in active and (latest := self.history.latest()):
            self.history.add(replace(latest, at_seconds=now))
            return
        if FaultKind.EMPTY in active:
            pods, engines = (), engines[:0]
        elif FaultKind.HALF in active:
            pods, engines = pods[::2], engines[::2]
        counts = self._reset(now, pods, _counts(engines))
        if self._base:
            _put_back(engines, counts)
        self._count(pods, counts)
        totals = self._totals.tolist()
        scrape = Scrape(
            at_seconds=now,
            pages=self._pages(pods, engines),
            sums=dict(zip(COUNTERS, totals, strict=False)),
            ttft=totals[_PLACES["ttft"]],
            tpot=totals[_PLACES["tpot"]],
            itl=totals[_PLACES["itl"]],
            records=engines,
        )
        self.history.add(_not_numbers(scrape) if FaultKind.NAN in active else scrape)

    def _pages(self, pods: Sequence[int], engines: Records) -> tuple[PodPage, ...]:
        running, waiting = engines["running"], engines["waiting"]
        taken = engines["context"] + engines["promised"] + self._half_block * running
        usage = np.minimum(1.0, taken / self._pool_tokens)
        columns = (running, waiting, usage, engines["pending_tokens"])
        return tuple(
            PodPage(
                pod=pod,
                running=float(at_work),
                waiting=float(queued),
                kv_usage=used,
                pending_prompt_tokens=float(pending),
            )
            for pod, at_work, queued, used, pending in zip(
                pods, *(column.tolist() for column in columns), strict=True
            )
        )

    def _count(self, pods: Sequence[int], counts: Floats) -> None:
        """Add what each pod counted since its last scrape; one that is new, or fell, counts from nothing."""
        if not pods:
            return
        known = np.array([self._known.get(pod, _NOTHING) for pod in pods])
        fell = np.any(counts < known, axis=1, keepdims=True)
        for grown in np.where(fell, counts, counts - known):
            self._totals += grown
        self._known.update(zip(pods, counts, strict=True))

    def _reset(self, now: float, pods: Sequence[int], counts: Floats) -> Floats:
        """From a counter reset on, pages show what was counted since."""
        for fault in self._faults:
            if fault.kind is FaultKind.RESET and now >= fault.at_seconds and fault not in self._was_reset:
                self._was_reset.add(fault)
                self._base = dict(zip(pods, counts, strict=True))
        if self._base:
            counts = counts - np.array([self._base.get(pod, _NOTHING) for pod in pods])
        return counts


def shown(fleet: Fleet, slots: Sequence[int], now: float, *, overlaps: bool) -> Records:
    """What metrics pages of these slots' engines are made of at this time: copies, in order.

    An engine tells of itself when a step's output is there (vLLM's `update_from_output`): requests that came since that
    step was scheduled, or since the next one was where steps overlap, show one step later, up to a second where prompts
    are long. A stretch of steps that only decode is short ones, and shows to its end.
    """
    places = np.array(slots, np.int64)
    steps, stretched = fleet.engines["steps"][places], fleet.engines["stretch"][places] == 1
    is_out = now >= fleet.engines["end_before" if overlaps else "end"][places]
    engines: Records = fleet.pages[places, (steps + ~is_out) & 1]
    engines[stretched] = fleet.engines[places[stretched]]
    engines["waiting"][stretched] = engines["pending_tokens"][stretched] = 0
    return engines


def _counts(engines: Records) -> Floats:
    """[pod, counter or bucket]."""
    return np.concatenate(
        [
            np.stack([engines[name] for name in COUNTERS], axis=1),
            *(engines[name] for name in HISTOGRAMS),
        ],
        axis=1,
    )


def _put_back(engines: Records, counts: Floats) -> None:
    for place, name in enumerate(COUNTERS):
        engines[name] = counts[:, place]
    for name in HISTOGRAMS:
        engines[name] = counts[:, _PLACES[name]]


def _not_numbers(scrape: Scrape) -> Scrape:
    nan = math.nan
    pages = tuple(
        replace(page, running=nan, waiting=nan, kv_usage=nan, pending_prompt_tokens=nan)
        for page in scrape.pages
    )
    return replace(
        scrape,
        pages=pages,
        sums=dict.fromkeys(scrape.sums, nan),
        ttft=[nan] * len(scrape.ttft),
        tpot=[nan] * len(scrape.tpot),
        itl=[nan] * len(scrape.itl),
        records=None,
    )
