"""What a scaled engine's record says, beside the simulator's run of the very same load; and the chart of both.

    python -m gpu.scale_report ARCHIVE.tar.xz FIGURES.json CHART.png        from tests/

The simulated replicas start as fast as the recorded second one did, and the rule knows of the first's start, as it did.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cases import Planned, planned_service
from gpu.ramp import stages
from gpu.recorded import read_archive
from gpu.scale_chart import draw
from llmservice_operator.api.durations import parse_duration_seconds
from llmservice_operator.cli_simulate import simulated_service
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.observation import Observation, Policy
from llmservice_operator.simulation.score import LEAST_ANSWER_TOKENS, Objective, attained, latencies
from llmservice_operator.simulation.tables import build_tables
from llmservice_operator.simulation.trace_text import requests_load

Floats = npt.NDArray[np.float64]
MODELS = Path(__file__).parents[1] / "data" / "models"
WINDOW_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What clients saw, a request an entry; and the replicas over time. Seconds from the load's begin."""

    at: Floats
    ttft_seconds: Floats
    """Infinite where none came."""
    tpot_seconds: Floats
    met: npt.NDArray[np.bool_]
    wanted: list[tuple[float, int]]
    """Each change."""
    ready: list[tuple[float, int]]


def real(archive: dict[str, Any], objective: Objective) -> Seen:
    """Of the record."""
    rows = sorted(archive["requests"], key=lambda row: row["at"])
    ok = np.array([row["status"] == 200 and row.get("last", 0) > 0 for row in rows])
    ttft = np.array([row.get("first", 0) - row.get("sent", 0) for row in rows])
    spoken = np.array([max(1, row["output_tokens"] - 1) for row in rows])
    tpot = np.array([row.get("last", 0) - row.get("first", 0) for row in rows]) / spoken
    is_short = np.array([row["output_tokens"] < LEAST_ANSWER_TOKENS for row in rows])
    ttft, tpot = np.where(ok, ttft, np.inf), np.where(ok, tpot, np.inf)
    met = ok & (ttft <= objective.ttft_seconds) & (is_short | (tpot <= objective.tpot_seconds))
    began = archive["record"]["began"]
    wanted, ready = [(0.0, 1)], [(0.0, 1)]
    for event in archive["events"]:
        at, kind = round(event["at"] - began, 1), event["event"]
        if at > 0 and kind in ("launched", "leaving", "failed"):
            wanted.append((at, wanted[-1][1] + (1 if kind == "launched" else -1)))
        if at > 0 and kind in ("ready", "leaving", "failed"):
            ready.append((at, ready[-1][1] + (1 if kind == "ready" else -1)))
    return Seen(
        at=np.array([row["at"] for row in rows]),
        ttft_seconds=ttft,
        tpot_seconds=tpot,
        met=met,
        wanted=wanted,
        ready=ready,
    )


class Experienced:
    """The operator's rule in the simulator, that knows of a start before the first it sees."""

    def __init__(self, rule: Policy, start_seconds: float) -> None:
        self._rule, self._start_seconds = rule, start_seconds
        self.name, self.period_seconds = rule.name, rule.period_seconds

    def step(self, seen: Observation) -> int:
        starts = (self._start_seconds, *seen.recent_start_seconds)
        return self._rule.step(replace(seen, recent_start_seconds=starts))


def start_seconds(archive: dict[str, Any]) -> list[float]:
    """From launch to ready, in order."""
    return [event["seconds"] for event in archive["events"] if event["event"] == "ready"]


def simulated(
    archive: dict[str, Any], planned: Planned, objective: Objective, *, slowdown: float = 1.0
) -> Seen:
    """The simulator's run of the same requests, on engines whose steps take so much longer than the model says."""
    first, *later = start_seconds(archive)
    scaling = planned.spec.scaling
    if scaling is None:
        raise ValueError(f"{planned.name} has no spec.scaling")
    service = simulated_service(
        planned.inputs, planned.plan, static_replicas=scaling.max_replicas, start_seconds=later[0]
    )
    rows = sorted(archive["requests"], key=lambda row: row["at"])
    lines = [f"{row['at']},{row['prompt_tokens']},{row['output_tokens']}" for row in rows]
    load = requests_load("recorded", ["seconds,prompt_tokens,answer_tokens", *lines])
    settings = FleetSettings(
        min_replicas=1,
        max_replicas=scaling.max_replicas,
        start_seconds=(("start", later[0]),),
        start_jitter=0.0,
    )
    run = simulate(
        build_tables(service.speed, slowdown=slowdown),
        load,
        Experienced(service.policy("operator"), first),
        settings,
    )
    return _seen(run, objective, rows[0]["at"])


def slowest_pace(archive: dict[str, Any]) -> float:
    """The lowest that the loop found: the model's step time over the engine's own."""
    decisions = [row["decision"] for row in archive["outcomes"] if row["decision"]]
    return float(min(decision["pace"] for decision in decisions))


def _seen(run: Run, objective: Objective, begin: float) -> Seen:
    ttft, tpot = (np.nan_to_num(each, nan=np.inf) for each in latencies(run))
    return Seen(
        at=run.requests["ready"] - run.half_request_seconds + begin,
        ttft_seconds=ttft,
        tpot_seconds=tpot,
        met=attained(run, objective),
        wanted=_changes([(point.at_seconds + begin, point.desired) for point in run.points]),
        ready=_changes([(point.at_seconds + begin, point.ready) for point in run.points]),
    )


def _changes(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    found = [(0.0, 1)]
    for at, count in points:
        if count != found[-1][1]:
            found.append((round(at, 1), count))
    return found


def by_stage(seen: Seen, load: dict[str, Any]) -> list[dict[str, Any]]:
    """Attainment and p95 of the requests that came in each stage."""
    rows, begin = [], 0.0
    for rate, seconds in stages(load):
        chosen = (seen.at >= begin) & (seen.at < begin + seconds)
        rows.append(
            {
                "begin": begin,
                "seconds": seconds,
                "requests_per_second": rate,
                "requests": int(chosen.sum()),
                "attained": round(float(seen.met[chosen].mean()), 4),
                "ttft_p95_seconds": _p95(seen.ttft_seconds[chosen]),
                "tpot_p95_seconds": _p95(seen.tpot_seconds[chosen]),
            }
        )
        begin += seconds
    return rows


def _p95(values: Floats) -> float:
    return round(float(np.sort(values)[int(0.95 * (len(values) - 1))]), 4)


def figures_of(seen: Seen, load: dict[str, Any]) -> dict[str, Any]:
    """All that is compared."""
    end = sum(seconds for _, seconds in stages(load))
    starting = _at(seen.wanted, seen.at) > _at(seen.ready, seen.at)
    return {
        "attained": round(float(seen.met.mean()), 4),
        "attained_while_one_starts": _share(seen, starting),
        "attained_otherwise": _share(seen, ~starting),
        "failed": int(np.isinf(seen.ttft_seconds).sum()),
        "ttft_p95_seconds": _p95(seen.ttft_seconds),
        "wanted": seen.wanted,
        "ready": seen.ready,
        "mean_replicas": round(_mean(seen.wanted, end), 3),
        "stages": by_stage(seen, load),
    }


def _at(changes: list[tuple[float, int]], times: Floats) -> npt.NDArray[np.int64]:
    """The count at each time."""
    begins, counts = zip(*changes, strict=True)
    return np.array(counts)[np.searchsorted(begins, times, side="right") - 1]


def _share(seen: Seen, chosen: npt.NDArray[np.bool_]) -> float:
    return round(float(seen.met[chosen].mean()), 4)


def _mean(changes: list[tuple[float, int]], end: float) -> float:
    edges = [at for at, _ in changes[1:]] + [end]
    spans = [max(0.0, min(edge, end) - at) for (at, _), edge in zip(changes, edges, strict=True)]
    return sum(count * span for (_, count), span in zip(changes, spans, strict=True)) / end


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What a scaled engine's record says, beside the simulator's run"
    )
    parser.add_argument("archive", type=Path)
    parser.add_argument("figures", type=Path)
    parser.add_argument("chart", type=Path)
    arguments = parser.parse_args()
    archive = read_archive(arguments.archive)
    record = archive["record"]
    planned = planned_service(record["service"], MODELS, "tokenizer", record["plan"]["engine_version"])
    slo = planned.spec.slo
    objective = Objective(
        ttft_seconds=parse_duration_seconds(slo.ttft.p95 or ""),
        tpot_seconds=parse_duration_seconds(slo.tpot.p95 or ""),
    )
    pace = slowest_pace(archive)
    runs = {
        "real": real(archive, objective),
        "simulated": simulated(archive, planned, objective),
        "simulated at the slowest pace seen": simulated(archive, planned, objective, slowdown=1.0 / pace),
    }
    figures = {name: figures_of(seen, record["load"]) for name, seen in runs.items()}
    kept = {"start_seconds": start_seconds(archive), "slowest_pace": pace, **figures}
    arguments.figures.write_text(json.dumps(kept) + "\n")
    draw(arguments.chart, archive, runs["real"], runs["simulated"], objective)
    for name, found in figures.items():
        print(name, {key: value for key, value in found.items() if key != "stages"})
    for rows in zip(*(found["stages"] for found in figures.values()), strict=True):
        words = [
            f"{row['attained']:.1%}, TTFT {row['ttft_p95_seconds']:.2f} s, TPOT {row['tpot_p95_seconds'] * 1e3:.1f} ms"
            for row in rows
        ]
        print(f"{rows[0]['begin']:4.0f} s {rows[0]['requests_per_second']:4.1f}/s:", " | ".join(words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
