"""Which signal tells of missed objectives one start time before, and for how long: bandwidth against the others.

    python -m bench.scaling_signals [--write FILE]       from tests/

Fixed fleets of several sizes on every load, so that no rule's deeds mix with what its signals say. Each 15 s the
signals of the last half minute are noted, and whether more than 5 % of the requests of the next two minutes missed an
objective. Only moments count at which the last minute's requests kept them: what is missed already needs no forecast.

- AUC: how likely a moment before a miss reads higher than one that isn't; 0.5 is chance. By load, then all loads
  together, where one threshold must serve all.
- Lead: how long before a miss begins the signal stood above the threshold that 5 % of the quiet moments pass; the
  median over misses, 0 where it didn't.

Beside the comparison's loads one that is nearly all decoding, where bandwidth is what an engine runs out of.
"""

import argparse
import datetime as dt
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.scaling_plan import DAYS
from bench.scaling_setup import QWEN, Case, by_hours, cases, profile_of, speed_of, tables_of
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.loads import Load, Pair, Stage, drawn_load, staged_arrivals
from llmservice_operator.simulation.observation import Observation
from llmservice_operator.simulation.peers.registry import Profile
from llmservice_operator.simulation.score import attained

FLEETS = (1, 2, 3, 4, 6, 8)
PERIOD_SECONDS, WINDOW_SECONDS = 15.0, 30.0
AHEAD_SECONDS, BEHIND_SECONDS = 120.0, 60.0
MISSED_SHARE = 0.05
FALSE_ALARMS = 0.05
LONGEST_LEAD_SECONDS = 600.0
SIGNALS = {
    "bandwidth": "bytes moved over the peak",
    "b. of cache": "the same without the weights that each step reads: what grows with the load",
    "cache": "KV use",
    "queue": "waiting requests a replica",
    "batch": "running requests a replica",
    "busy": "share of time in which the card ran something: what GPU-Util shows",
    "load": "arriving requests over a replica's rate within the objectives",
    "prefill": "arriving prompt tokens over a replica's prefill rate",
    "itl": "mean gap between tokens over the objective",
    "ttft": "p95 of TTFT over the objective, as the histogram has it",
}


@dataclass
class Watcher:
    """A fixed fleet that notes what is to be seen."""

    replicas: int
    profile: Profile
    weights_seconds: float
    """Of a step: the weights that it reads, over the peak bandwidth."""
    name: str = "watcher"
    period_seconds: float = PERIOD_SECONDS
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def step(self, seen: Observation) -> int:
        """That number."""
        history, now, of = seen.history, seen.metrics_seconds, self.profile
        count = max(1, seen.ready)

        def rate(counter: str) -> float:
            return history.rate(counter, WINDOW_SECONDS, now)

        tokens, traffic = rate("generated_tokens"), rate("traffic_seconds") / count
        self.rows.append(
            (
                now,
                traffic,
                traffic - self.weights_seconds * _steps(history, now) / count,
                seen.total("kv_usage") / count,
                seen.total("waiting") / count,
                seen.total("running") / count,
                rate("busy_seconds") / count,
                rate("arrived") / count / of.engine_requests_per_second,
                (rate("prompt_tokens") + _growth(history, now)) / count / of.prefill_tokens_per_second,
                rate("itl_seconds") / tokens / of.tpot_seconds if tokens > 0 else 0.0,
                _zero(history.quantile("ttft", 0.95, WINDOW_SECONDS, now)) / of.ttft_seconds,
            )
        )
        return self.replicas


def _growth(history: Any, now: float) -> float:
    """Of prompt tokens in flight, per second: what arrived is what was computed and what was added to them."""
    inside = history.within(WINDOW_SECONDS, now)
    if len(inside) < 2:
        return 0.0
    pending = [scrape.total("pending_prompt_tokens") for scrape in (inside[0], inside[-1])]
    return (pending[1] - pending[0]) / (inside[-1].at_seconds - inside[0].at_seconds)


def _steps(history: Any, now: float) -> float:
    """Of all engines, a second; they are the same ones all the time."""
    inside = [scrape for scrape in history.within(WINDOW_SECONDS, now) if scrape.records is not None]
    if len(inside) < 2:
        return 0.0
    begin, end = (scrape.records["steps"].sum() for scrape in (inside[0], inside[-1]))
    return float(end - begin) / (inside[-1].at_seconds - inside[0].at_seconds)


def _zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


@dataclass(frozen=True)
class Moments:
    """Of one fleet on one load."""

    signals: Any
    """[moment, signal]"""
    at_seconds: Any
    will_miss: Any
    quiet: Any
    """The last minute kept the objectives."""
    onsets: Any
    """Seconds at which misses begin."""


def watch(case: Case, replicas: int, seed: int = 0) -> Moments:
    """Play the load on a fixed fleet."""
    load = case.load(seed)
    speed = speed_of(case.service)
    work = speed.timer.work
    weights = (
        work.dense.bytes_read + work.head.bytes_read
    ) / speed.case.accelerator.memory_bandwidth_bytes_per_second
    watcher = Watcher(replicas, profile_of(case.service), weights)
    settings = FleetSettings(
        min_replicas=replicas,
        max_replicas=replicas,
        seed=seed,
        scrape_seconds=PERIOD_SECONDS / 3,
        tail_seconds=120.0,
    )
    run = simulate(tables_of(case.service), load, watcher, settings)
    return _moments(run, case, np.nan_to_num(np.array(watcher.rows)))


def _moments(run: Run, case: Case, rows: Any) -> Moments:
    rows = rows[(rows[:, 0] >= BEHIND_SECONDS) & (rows[:, 0] <= run.load.seconds - AHEAD_SECONDS)]
    arrivals, at = run.requests["ready"], rows[:, 0]
    misses = np.concatenate([[0], np.cumsum(~attained(run, case.service.objective))])

    def missed(begin: Any, end: Any) -> Any:
        low, high = np.searchsorted(arrivals, begin), np.searchsorted(arrivals, end)
        return (misses[high] - misses[low]) > MISSED_SHARE * (high - low)

    now_missing = missed(at - BEHIND_SECONDS, at)
    begins = np.flatnonzero(now_missing[1:] & ~now_missing[:-1]) + 1
    return Moments(
        signals=rows[:, 1:],
        at_seconds=at,
        will_miss=missed(at, at + AHEAD_SECONDS),
        quiet=~now_missing,
        onsets=at[begins],
    )


def auc(values: Any, positive: Any) -> float:
    """Of the ranks, ties in half (Mann and Whitney); NaN without moments of both kinds."""
    count = int(positive.sum())
    if not 0 < count < len(values):
        return math.nan
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return float((ranks[positive].sum() - count * (count + 1) / 2.0) / (count * (len(values) - count)))


def lead(moments: Moments, signal: int) -> list[float]:
    """Seconds before each onset that the signal stood above its threshold without a break."""
    calm = moments.quiet & ~moments.will_miss
    if not calm.any():
        return []
    threshold = np.quantile(moments.signals[calm, signal], 1.0 - FALSE_ALARMS)
    above = moments.signals[:, signal] > threshold
    found = []
    for onset in moments.onsets:
        # The miss is told a minute after its first request came.
        place = int(np.searchsorted(moments.at_seconds, onset - BEHIND_SECONDS, side="right")) - 1
        steps = 0
        while place - steps >= 0 and above[place - steps] and steps * PERIOD_SECONDS < LONGEST_LEAD_SECONDS:
            steps += 1
        found.append(steps * PERIOD_SECONDS)
    return found


def _pooled(parts: Sequence[Moments]) -> tuple[Any, Any]:
    kept = [(part.signals[part.quiet], part.will_miss[part.quiet]) for part in parts]
    return np.concatenate([each[0] for each in kept]), np.concatenate([each[1] for each in kept])


def _aucs(values: Any, positive: Any) -> list[float]:
    return [auc(values[:, place], positive) for place in range(len(SIGNALS))]


def report(found: Mapping[str, Sequence[Moments]]) -> Iterator[str]:
    """The page's lines."""
    yield f"Signals before misses. {dt.datetime.now(tz=dt.UTC).date()}. Made by: python -m bench.scaling_signals"
    fleets = ", ".join(map(str, FLEETS))
    yield f"Fixed fleets of {fleets} replicas, {AHEAD_SECONDS:.0f} s ahead. AUC by load; 0.5 is chance."
    yield ""
    yield f"{'load':22}{'moments':>9}{'before a miss':>14}" + "".join(f"{name:>12}" for name in SIGNALS)
    for name, parts in found.items():
        values, positive = _pooled(parts)
        cells = "".join(f"{each:12.3f}" for each in _aucs(values, positive))
        yield f"{name:22}{len(values):9}{positive.mean():14.1%}{cells}"
    everything = [part for parts in found.values() for part in parts]
    values, positive = _pooled(everything)
    each = np.array([_aucs(*_pooled(parts)) for parts in found.values()])
    yield f"{'mean of the loads':22}{'':23}" + "".join(f"{mean:12.3f}" for mean in np.nanmean(each, axis=0))
    cells = "".join(f"{each:12.3f}" for each in _aucs(values, positive))
    yield f"{'all, one threshold':22}{len(values):9}{positive.mean():14.1%}{cells}"
    leads = [
        [seconds for part in everything for seconds in lead(part, place)] for place in range(len(SIGNALS))
    ]
    yield f"{'lead, median s':22}{len(leads[0]):9}{'misses':>14}" + "".join(
        f"{np.median(row):12.0f}" for row in leads
    )
    yield f"{'seen before it':22}{'':23}" + "".join(f"{np.mean(np.array(row) > 0):12.0%}" for row in leads)
    yield ""
    yield from (f"{name:12} {words}" for name, words in SIGNALS.items())


def main(arguments: Sequence[str]) -> int:
    """Plays, prints, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    found: dict[str, list[Moments]] = {}
    for case in _loads():
        found[case.name] = [watch(case, replicas) for replicas in FLEETS]
        print(case.name, file=sys.stderr)
    text = "\n".join(report(found)) + "\n"
    print(text, end="")
    if given.write:
        given.write.write_text(text)
    return 0


DECODING = replace(QWEN, name="qwen3-32b decoding", lengths=Lengths(input_p50=200, output_p50=1500))
DECODING_SHARES, DECODING_REPLICAS, DECODING_SECONDS = (0.3, 0.6, 0.9, 1.2, 1.5, 0.9, 0.5, 1.1, 0.4), 4, 600.0


def _decoding(seed: int) -> Load:
    """Stages around what four replicas take."""
    rate = DECODING_REPLICAS * profile_of(DECODING).engine_requests_per_second
    stages = [Stage(share * rate, DECODING_SECONDS) for share in DECODING_SHARES]
    pairs = [Pair(DECODING.lengths.input_p50, DECODING.lengths.output_p50)]
    seconds = DECODING_SECONDS * len(stages)
    return drawn_load("decoding", staged_arrivals(stages, seed=seed), pairs, seconds=seconds, seed=seed)


def _loads() -> Iterator[Case]:
    """Days by the hours of their climb and peak."""
    yield Case(name="decoding", service=DECODING, load=_decoding)
    for case in cases():
        if case.name != "llm-d ramp":  # its stages would wait for a fleet that is too small
            yield by_hours(case) if case.name in DAYS else case


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
