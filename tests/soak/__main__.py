"""`make soak`: twenty minutes of a recorded load on the operator in a real cluster, and in the simulator.

    python -m soak [--seconds 1200] [--seeds 10] [--recorded FILE]       from tests/

Prints the comparison and writes it, with both courses, to tests/soak/results/DATE.json and to
operator/docs/reference/soak.txt. Exit code 1 if the real course is further from the simulated ones than they are from
each other.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deploy
from bench.operator import machine
from load.generator import Result
from soak import real, simulated
from soak.report import chart, report
from soak.setting import MINUTES, NAMESPACE, Setting, make_setting
from soak.trajectory import Course, judge

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
TEXT = ROOT / "operator" / "docs" / "reference" / "soak.txt"


def main() -> int:
    """Run, compare, write."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MINUTES * 60.0)
    parser.add_argument("--seeds", type=int, default=10, help="simulated runs")
    parser.add_argument(
        "--recorded", type=Path, help="a run of before, to be held to the simulator as it is now"
    )
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    setting = make_setting(options.seconds)
    played = recorded(options.recorded) if options.recorded else play(setting, options.seconds)
    courses = simulate(
        setting, played.course, seeds=options.seeds, planned_start_seconds=played.planned_start_seconds
    )
    verdict = judge(played.course, courses)
    told = report(played.course, courses, verdict, played.results, where=played.where)
    told += "\n\n" + chart(played.course, courses[0])
    print(told)
    if options.write:
        date = options.recorded.stem if options.recorded else datetime.now(tz=UTC).date().isoformat()
        write(date, told, {
            "real": asdict(played.course), "simulated": [asdict(each) for each in courses],
            "verdict": asdict(verdict), "record": played.record, "where": played.where,
            "results": [asdict(each) for each in played.results],
        })  # fmt: skip
    return 0 if verdict.is_within else 1


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run on the cluster."""

    course: Course
    record: dict[str, Any]
    results: Sequence[Result]
    where: str
    planned_start_seconds: float | None
    """What the operator thought of a start at the begin."""


def play(setting: Setting, seconds: float) -> Played:
    """On a cluster that is made for it."""
    with deploy.platform("soak", "fake-engine", namespace=NAMESPACE, gpus=8) as cluster:
        real.serve(cluster, setting)
        say(f"the first replica is ready; {len(setting.load)} requests in {seconds:.0f} s follow")
        course, record, results, began = real.play(cluster, setting)
        load_average = os.getloadavg()[2]
    return Played(
        course=course,
        record=real.as_json(record, began),
        results=results,
        where=f"{machine()}; 15-min load average {load_average:.1f}",
        planned_start_seconds=next((real.value(page, "start_seconds") for _, page in record.pages), None),
    )


def recorded(path: Path) -> Played:
    """One that was written before."""
    data = json.loads(path.read_text())
    course = data["real"]
    starts = data["record"]["series"]["start_seconds"]
    return Played(
        course=Course(
            changes=tuple((at, replicas) for at, replicas in course["changes"]),
            seconds=course["seconds"],
            attainment=course["attainment"],
            starts=tuple(course["starts"]),
        ),
        record=data["record"],
        results=[Result(**each) for each in data["results"]],
        where=data.get("where", "recorded"),
        planned_start_seconds=starts[0][1] if starts else None,
    )


def simulate(
    setting: Setting, course: Course, *, seeds: int, planned_start_seconds: float | None
) -> list[Course]:
    """With the start time that the cluster showed, its spread, and what the operator thought of it at the begin."""
    starts = course.starts or (60.0,)
    mean = statistics.fmean(starts)
    jitter = max(abs(each - mean) for each in starts) / mean
    return [
        simulated.play(
            setting,
            seed=seed,
            start_seconds=mean,
            start_jitter=jitter,
            planned_start_seconds=planned_start_seconds,
        )
        for seed in range(seeds)
    ]


def write(date: str, told: str, data: dict[str, Any]) -> None:
    """Both files."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{date}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    TEXT.write_text(f"$ make soak        # {date}\n{told}\n")


def say(text: str) -> None:
    print(f"{datetime.now(tz=UTC):%H:%M:%S} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
