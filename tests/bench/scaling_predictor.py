"""A stand-in for llm-d's trained latency predictor: the 0.9 quantile of what requests in a like state saw.

The router's own is a gradient-boosted tree of the pod's KV use, its waiting and running requests and the prompt's
length, trained online to the 0.9 quantile (LATENCY_QUANTILE_ALPHA), and burnt in by 2-6-9-3 requests a second
(github.com/llm-d/llm-d guides/workload-autoscaling/slo-aware/benchmark-templates/{BENCHMARK.md,ip-burnin-config.yml}).
Here a table of KV use and waiting requests of the least loaded pod stands for the tree. It is coarser, so it bounds
what a predictor does to the rule from one side as one that is always right bounds it from the other.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from bench.scaling_setup import QWEN, tables_of
from llmservice_operator.simulation.answers import request_latencies
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Stage, llmd_stages
from llmservice_operator.simulation.observation import History, Observation
from llmservice_operator.simulation.peers.llmd import (
    TPOT_BOUNDS_SECONDS,
    TTFT_BOUNDS_SECONDS,
    SloAware,
    bucket_p90,
    slo_saturation,
)
from llmservice_operator.simulation.records import Floats

BURN_IN = (Stage(2, 240), Stage(6, 360), Stage(9, 300), Stage(3, 240))
PASSES = 4
"""Of the burn-in that the table is of; one has too few requests for some states."""
QUANTILE = 0.9
LEAST_REQUESTS = 20
"""Of a state that the table holds."""
KV_STATES, WAITING_STATES = 20, 7

State = tuple[int, int]


@dataclass(frozen=True)
class Predictor:
    """Seconds by state."""

    ttft: Mapping[State, float]
    tpot: Mapping[State, float]


def states(history: History, at_seconds: Floats) -> list[State]:
    """What the router could know of the pod that it chose at each of these times, by the newest scrape before."""
    times = [scrape.at_seconds for scrape in history.scrapes]
    found = []
    for at in at_seconds:
        pages = history.scrapes[max(0, bisect.bisect_right(times, at) - 1)].pages
        page = min(pages, key=lambda each: each.running + each.waiting, default=None)
        if page is None:
            found.append((0, 0))
            continue
        waiting = min(WAITING_STATES - 1, int(math.log2(page.waiting + 1.0)))
        found.append((min(KV_STATES - 1, int(page.kv_usage * KV_STATES)), waiting))
    return found


@dataclass(slots=True)
class Watching(SloAware):
    """The rule by what is measured, as before anything is trained; it keeps the newest history."""

    history: History | None = None

    def step(self, seen: Observation) -> int:
        """Desired replicas."""
        self.history = seen.history
        return SloAware.step(self, seen)


@dataclass(slots=True)
class Predicted(SloAware):
    """The rule by what was predicted of each answer when its request came, counted when it has ended."""

    predictor: Predictor | None = None
    _known: dict[int, State] = field(default_factory=dict)

    def _saturation(self, seen: Observation) -> float:
        now, window = seen.metrics_seconds, self.rate_window_seconds
        inside = seen.history.within(window, now)
        if (
            seen.answers is None
            or self.predictor is None
            or not seen.history.rate("finished", window, now) > 0
        ):
            return 0.0
        requests = seen.answers.requests
        end = requests["end"]
        ended = np.nonzero((end > inside[0].at_seconds) & (end <= inside[-1].at_seconds))[0].tolist()
        new = [index for index in ended if index not in self._known]
        self._known.update(zip(new, states(seen.history, requests["ready"][new]), strict=True))
        of = [self._known[index] for index in ended]
        return slo_saturation(
            bucket_p90(_predict(self.predictor.ttft, of), TTFT_BOUNDS_SECONDS),
            bucket_p90(_predict(self.predictor.tpot, of), TPOT_BOUNDS_SECONDS),
            self.ttft_seconds,
            self.tpot_seconds,
        )


def _predict(table: Mapping[State, float], of: Sequence[State]) -> Floats:
    """By the nearest state that is known: first the number that waits, then the cache."""
    return np.array(
        [table[min(table, key=lambda known: (abs(known[1] - s[1]), abs(known[0] - s[0])))] for s in of]
    )


@cache
def burnt_in(settings: FleetSettings) -> Predictor:
    """Trained on passes that nothing else is played with."""
    ttft, tpot = defaultdict(list), defaultdict(list)
    for seed in range(100, 100 + PASSES):
        rule = Watching(QWEN.objective.ttft_seconds, QWEN.objective.tpot_seconds)
        run = simulate(tables_of(QWEN), llmd_stages("burn-in", BURN_IN, seed=seed), rule, settings)
        if rule.history is None:
            raise ValueError("the rule was never asked")
        seen = states(rule.history, run.requests["ready"])
        for state, *values in zip(
            seen, *request_latencies(run.requests, run.half_request_seconds), strict=True
        ):
            ttft[state].append(values[0])
            tpot[state].append(values[1])
    return Predictor(_quantiles(ttft), _quantiles(tpot))


def _quantiles(by_state: Mapping[State, Sequence[float]]) -> dict[State, float]:
    return {
        state: float(np.quantile(values, QUANTILE))
        for state, values in by_state.items()
        if len(values) >= LEAST_REQUESTS
    }
