"""A scaled engine's record as JSON lines: pages as the operator read them, and what it made of them."""

import json
import math
import tarfile
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_subject import EnginePod, Role, Subject
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import Gauge, Histogram, MetricsPage


def page_as_json(page: MetricsPage) -> dict[str, Any]:
    """The page; a histogram's last bound, infinity, is left out."""
    return {
        "gauges": {
            series: [gauge.total, gauge.highest, gauge.engines] for series, gauge in page.gauges.items()
        },
        "counters": dict(page.counters),
        "histograms": {
            series: [list(each.bounds[:-1]), list(each.counts), each.total]
            for series, each in page.histograms.items()
        },
        "invalid": sorted(page.invalid),
        "missing": sorted(page.missing),
    }


def page_of_json(data: dict[str, Any]) -> MetricsPage:
    """The page that `page_as_json` wrote."""
    return MetricsPage(
        gauges={Series(name): Gauge(*values) for name, values in data["gauges"].items()},
        counters={Series(name): value for name, value in data["counters"].items()},
        histograms={
            Series(name): Histogram((*bounds, math.inf), array("d", counts), total)
            for name, (bounds, counts, total) in data["histograms"].items()
        },
        invalid=frozenset(map(Series, data["invalid"])),
        missing=frozenset(map(Series, data["missing"])),
    )


def outcome_as_json(outcome: Outcome, subject: Subject) -> dict[str, Any]:
    """What was decided, and for which pods."""
    return {
        "at": round(outcome.at, 3),
        "wanted": subject.wanted,
        "pods": [_pod_as_json(pod) for pod in subject.pods],
        "signals": _signals_as_json(outcome.signals),
        "decision": None if outcome.decision is None else _decision_as_json(outcome.decision),
        "verdicts": {kind: [each.status, each.reason] for kind, each in outcome.verdicts.items()},
    }


def _pod_as_json(pod: EnginePod) -> dict[str, Any]:
    names = ("name", "role", "host", "created_at", "ready_since")
    return {name: value for name, value in asdict(pod).items() if name in names}


def pods_of_json(rows: list[dict[str, Any]]) -> tuple[EnginePod, ...]:
    """The pods that `outcome_as_json` wrote."""
    return tuple(
        EnginePod(**{**row, "role": Role(row["role"])}, incarnation=f"{row['name']}/0") for row in rows
    )


def _signals_as_json(signals: Signals) -> dict[str, Any]:
    """Name → [value, state]."""
    return {
        name: [None if signal.value is None else float(f"{signal.value:.5g}"), str(signal.state)]
        for name, signal in signals.items()
    }


def _decision_as_json(decision: Decision) -> dict[str, Any]:
    return {
        "desired": decision.desired,
        "ruling": decision.ruling,
        "reason": decision.reason,
        "steps": [[step.name, step.replicas, step.note] for step in decision.steps],
        "capacity_requests_per_second": round(decision.capacity_requests_per_second, 4),
        "correction": round(decision.correction, 4),
        "pace": round(decision.state.pace, 4),
        "start_seconds": round(decision.start_seconds, 1),
    }


def read_archive(path: Path) -> dict[str, Any]:
    """Name without suffix → the content of each .json, and the lines of each .jsonl."""
    found: dict[str, Any] = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file, name = archive.extractfile(member), Path(member.name)
            if file is None:
                continue
            if name.suffix == ".jsonl":
                found[name.stem] = [json.loads(line) for line in file]
            elif name.suffix == ".json":
                found[name.stem] = json.load(file)
    return found
