"""Scrapes of a fleet: gauges, counters that go on over restarts, and what faults make of them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.observation import History, PodPage, Scrape
from llmservice_operator.simulation.records import (
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
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


class Scraper:
    """Takes scrapes into a history."""

    def __init__(self, *, pool_tokens: float, half_block: float, faults: Sequence[Fault]) -> None:
        self.history = History(TTFT_BOUNDS_SECONDS.tolist(), TPOT_BOUNDS_SECONDS.tolist())
        self._pool_tokens, self._half_block = pool_tokens, half_block
        self._faults = faults
        self._sums = np.zeros(len(COUNTERS))
        self._buckets = {name: np.zeros(_buckets(name)) for name in HISTOGRAMS}
        self._known: dict[int, Records] = {}
        self._base: dict[int, Records] = {}
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
        self._reset(now, pods, engines)
        self._count(pods, engines)
        scrape = Scrape(
            at_seconds=now,
            pages=tuple(self._page(pod, engine) for pod, engine in zip(pods, engines, strict=True)),
            sums=dict(zip(COUNTERS, self._sums.tolist(), strict=True)),
            ttft=self._buckets["ttft"].tolist(),
            tpot=self._buckets["tpot"].tolist(),
            itl=self._buckets["itl"].tolist(),
            records=engines,
        )
        self.history.add(_not_numbers(scrape) if FaultKind.NAN in active else scrape)

    def _page(self, pod: int, engine: Records) -> PodPage:
        running, waiting, context, promised, pending = engine[
            ["running", "waiting", "context", "promised", "pending_tokens"]
        ].item()
        taken = context + promised + self._half_block * running
        return PodPage(
            pod=pod,
            running=float(running),
            waiting=float(waiting),
            kv_usage=min(1.0, taken / self._pool_tokens) if math.isfinite(self._pool_tokens) else 0.0,
            pending_prompt_tokens=float(pending),
        )

    def _count(self, pods: Sequence[int], engines: Records) -> None:
        """Add what each pod counted since its last scrape; one that is new counts from nothing."""
        for pod, engine in zip(pods, engines, strict=True):
            known = self._known.get(pod)
            for place, name in enumerate(COUNTERS):
                more = engine[name] - (known[name] if known is not None else 0)
                self._sums[place] += more if more >= 0 else engine[name]
            for name in HISTOGRAMS:
                buckets = engine[name] - (known[name] if known is not None else 0)
                self._buckets[name] += buckets if buckets.min() >= 0 else engine[name]
        self._known.update(zip(pods, engines, strict=True))

    def _reset(self, now: float, pods: Sequence[int], engines: Records) -> None:
        """From a counter reset on, pages show what was counted since."""
        for fault in self._faults:
            if fault.kind is FaultKind.RESET and now >= fault.at_seconds and fault not in self._was_reset:
                self._was_reset.add(fault)
                self._base = {pod: engine.copy() for pod, engine in zip(pods, engines, strict=True)}
        for place, pod in enumerate(pods):
            base = self._base.get(pod)
            if base is not None:
                for name in (*COUNTERS, *HISTOGRAMS):
                    engines[name][place] -= base[name]


def _buckets(histogram: str) -> int:
    return (TTFT_BOUNDS_SECONDS if histogram == "ttft" else TPOT_BOUNDS_SECONDS).size + 1


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
