"""The tables of operator/docs/metrics.md, from the code: every series with type, labels, unit and meaning.

Between the marks `<!-- table: NAME -->` and `<!-- end -->` everything is written anew; the words around are by hand.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from llmservice_operator.engines.metric_names import NAMES, UNBOUNDED, Kind, MetricName
from llmservice_operator.telemetry.metrics import Metrics, PlanTerm
from llmservice_operator.telemetry.scaling import ScalingSample, ServiceState, SignalSample, SloSample
from llmservice_runtime.classifier import Failure
from llmservice_runtime.config import Config
from llmservice_runtime.engine_http import Load
from llmservice_runtime.exposition import render
from llmservice_runtime.memory_facts import EngineFacts
from llmservice_runtime.startup import WeightsProgress
from llmservice_runtime.state import FAILED, Snapshot
from observability.rules import ROOT, groups

PAGE = ROOT / "operator" / "docs" / "metrics.md"
_UNITS = {
    "_timestamp_seconds": "Unix time, s",
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "ratio",
    "_requests_per_second": "requests/s",
    "_replicas": "replicas",
    "_tokens": "tokens",
    "_max_model_len": "tokens",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One series."""

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    meaning: str


def full_metrics() -> Metrics:
    """The operator's metrics with a sample of everything, so that every label is seen."""
    metrics = Metrics()
    metrics.requested("GET", "200", 0.01)
    metrics.applied("Deployment", "applied")
    metrics.recorded("posted")
    metrics.scraped("timeout", 0.01)
    for by_kind in (
        metrics.watch_events,
        metrics.watch_restarts,
        metrics.watch_last_event,
        metrics.last_sweep,
    ):
        by_kind.labels("pods")
    metrics.watch(
        queue_depth=lambda: 0,
        queue_delayed=lambda: 0,
        queue_age_seconds=lambda: 0,
        objects=lambda: {"pods": 1},
        services=lambda: {("True", "Ready"): 1},
        plans=lambda: [PlanTerm("ns", "name", "weights", 1, 1)],
    )
    metrics.watch_services(lambda: [_state()], lambda: [scaling_sample("ns", "name")])
    return metrics


def _state() -> ServiceState:
    return ServiceState("ns", "name", (("Ready", "True", "Ready"),), 1, 1, "nvidia-h200", 1)


def scaling_sample(namespace: str, name: str) -> ScalingSample:
    """A service of which everything is told."""
    return ScalingSample(
        namespace=namespace,
        name=name,
        ready=1,
        pending=0,
        unschedulable=0,
        signals=[SignalSample("running", "ok", 1.0, 1.0)],
        capacity_requests_per_second=1.0,
        start_seconds=1.0,
        slo=[SloSample("ttft", 1.0, 1.0, 1.0)],
        desired=1,
        bounds=(1, 2),
        correction=1.0,
        decided_at=1.0,
        steps=[("forward", 1.0)],
        ruling="forward",
        decisions=[("out", "forward", 1)],
    )


def _supervisor_page() -> str:
    facts = EngineFacts(
        total_bytes=1,
        requested_bytes=1,
        free_bytes=1,
        weights_bytes=1,
        activation_bytes=1,
        non_torch_bytes=1,
        cuda_graph_bytes=1,
        cuda_graph_estimate_bytes=1,
        kv_cache_bytes=1,
        kv_cache_tokens=1,
        max_model_len=1,
    )
    snapshot = Snapshot(
        phase=FAILED,
        facts=facts,
        step="load",
        steps=(("load", 1.0),),
        weights=WeightsProgress(1, 1, None, None),
        started_at=0.0,
        ready_at=None,
        healthy=False,
        holding=False,
        hung=None,
        load=Load(),
        lines=1,
        devices=(),
        failure=_failure(),
    )
    return render(Config(service="ns/name", revision="1"), snapshot, 1.0)


def _failure() -> Failure:
    return Failure(failure_class="OutOfMemory", message="", stage="load")


def _rows(families: Iterable[Metric]) -> Iterator[Row]:
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        yield Row(
            name=name,
            kind=family.type,
            labels=tuple(labels),
            unit=_unit(name),
            meaning=" ".join(family.documentation.split()),
        )


def _unit(name: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if name.removesuffix("_total").endswith(ending)), "")


def operator_rows() -> list[Row]:
    """Of the operator's own page, without the process's."""
    found = _rows(text_string_to_metric_families(full_metrics().page().decode()))
    return sorted((row for row in found if row.name.startswith("llmservice_")), key=lambda row: row.name)


def supervisor_rows() -> list[Row]:
    """Of each engine pod's supervisor."""
    return sorted(_rows(text_string_to_metric_families(_supervisor_page())), key=lambda row: row.name)


def _table(rows: Iterable[Row]) -> str:
    lines = ["| series | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.unit} | {row.meaning} |")
    return "\n".join(lines)


def _engine() -> str:
    lines = ["| series | type | tells | releases |", "|---|---|---|---|"]
    for each in NAMES:
        suffix = " (some starts)" if each.optional else ""
        kind = "histogram" if each.kind is Kind.HISTOGRAM else str(each.kind)
        lines.append(
            f"| `{each.name}` | {kind} | {str(each.series).replace('_', ' ')} | {_releases(each)}{suffix} |"
        )
    return "\n".join(lines)


def _releases(each: MetricName) -> str:
    first = ".".join(map(str, each.first)) if each.first != (0, 0, 0) else "all"
    if each.last == UNBOUNDED:
        return first if first == "all" else f"from {first}"
    return f"up to {'.'.join(map(str, each.last))}"


def _recorded() -> str:
    rules = [rule for group in groups() for rule in group["rules"]]
    lines = [f"- `{rule['record']}`" for rule in rules if "record" in rule]
    alerts = ["", "| alert | severity | after | says |", "|---|---|---|---|"]
    for rule in rules:
        if "alert" in rule:
            link = f"[{rule['alert']}](runbook.md#{rule['alert'].lower()})"
            words = rule["annotations"]["description"].strip()
            alerts.append(f"| {link} | {rule['labels']['severity']} | {rule['for']} | {words} |")
    return "\n".join([*lines, *alerts])


TABLES: dict[str, Callable[[], str]] = {
    "operator": lambda: _table(operator_rows()),
    "supervisor": lambda: _table(supervisor_rows()),
    "engine": _engine,
    "rules": _recorded,
}


def written(page: str) -> str:
    """The page with its tables made anew."""
    for name, table in TABLES.items():
        mark = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = mark.search(page)
        if found is None:
            raise ValueError(
                f"{PAGE.name} has no place for the table {name!r}: <!-- table: {name} --> … <!-- end -->"
            )
        page = page[: found.end(1)] + table() + "\n" + page[found.start(2) :]
    return page


def write() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text()))
