"""Logs and metrics: what is written, and what never is."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.clock import FakeClock
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.reporter import Reporter
from llmservice_operator.telemetry.log import JsonFormatter, add_fields, set_up
from llmservice_operator.telemetry.metrics import Metrics, PlanTerm
from llmservice_operator.telemetry.scaling import ScalingSample, SignalSample, SloSample


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    set_up("INFO", stream)
    yield stream
    root.handlers[:], root.level = before


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_the_extra_fields(stream: io.StringIO) -> None:
    logging.getLogger("x").info("hello", extra={"service": "ns/chat"})

    (line,) = lines(stream)

    assert {k: line[k] for k in ("level", "logger", "msg", "service")} == {
        "level": "info",
        "logger": "x",
        "msg": "hello",
        "service": "ns/chat",
    }


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("token hf_AbCdEfGhIjKlMnOp was refused", "hf_AbCdEfGhIjKlMnOp"),
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        (
            "bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln",
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln",
        ),
        ("jwt eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln end", "eyJpc3MiOiJrdWJlIn0"),
        ("Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
    ],
)
def test_secrets_are_never_written(stream: io.StringIO, text: str, secret: str) -> None:
    logging.getLogger("x").error("%s", text, extra={"error": text})

    assert secret not in stream.getvalue()


def test_an_exceptions_text_is_cleared_of_secrets_too(stream: io.StringIO) -> None:
    error = ValueError("hf_AbCdEfGhIjKlMnOp")
    logging.getLogger("x").error("failed", exc_info=error)

    assert "ValueError" in stream.getvalue()
    assert "hf_AbCd" not in stream.getvalue()


def test_what_json_cannot_hold_is_written_as_text() -> None:
    record = logging.makeLogRecord({"msg": "m", "key": Key, "name": "x", "levelname": "INFO"})

    assert "Key" in json.loads(JsonFormatter().format(record))["key"]


def test_a_reconcile_is_one_line_with_what_was_added_on_the_way(stream: io.StringIO) -> None:
    reporter = Reporter(Metrics(), FakeClock())
    reporter.started(Key("ns", "chat"), 0.0123)
    add_fields(created=3)
    reporter.finished(Key("ns", "chat"), 0.5, None, 600.0)

    (line,) = lines(stream)

    kept = ("msg", "service", "result", "duration_ms", "waited_ms", "again_seconds", "created")
    assert {k: line[k] for k in kept} == {
        "msg": "reconcile",
        "service": "ns/chat",
        "result": "success",
        "duration_ms": 500.0,
        "waited_ms": 12.3,
        "again_seconds": 600.0,
        "created": 3,
    }


def test_a_failed_reconcile_tells_why(stream: io.StringIO) -> None:
    reporter = Reporter(Metrics(), FakeClock())
    reporter.started(Key("ns", "chat"), 0)
    reporter.finished(Key("ns", "chat"), 0.5, ValueError("odd"), 1.0)

    (line,) = lines(stream)

    assert (line["level"], line["result"], line["error"]) == ("warning", "error", "odd")
    assert "ValueError: odd" in line["exception"]


def values(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and its labels' values, these in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


def test_the_page_tells_of_requests_reconciles_and_applies() -> None:
    metrics = Metrics()
    metrics.requested("apply", "201", 0.02)
    metrics.applied("Deployment", "created")
    metrics.recorded("posted")
    Reporter(metrics, FakeClock()).finished(Key("ns", "chat"), 0.5, None, None)

    page = values(metrics)

    assert page["llmservice_api_requests_total", "201", "apply"] == 1
    assert page["llmservice_applies_total", "Deployment", "created"] == 1
    assert page["llmservice_events_total", "posted"] == 1
    assert page["llmservice_reconciles_total", "success"] == 1
    assert page["llmservice_reconciles_total", "error"] == 0
    assert page["llmservice_reconcile_duration_seconds_sum",] == 0.5


def test_what_has_not_happened_yet_is_told_as_0() -> None:
    metrics = Metrics()
    Reporter(metrics, FakeClock()).swept("Pod")

    page = values(metrics)

    assert page["llmservice_watch_restarts_total", "Pod"] == 0
    assert page["llmservice_events_total", "failed"] == 0


def test_live_values_are_read_at_the_scrape() -> None:
    metrics = Metrics()
    metrics.watch(
        queue_depth=lambda: 7,
        queue_delayed=lambda: 3,
        queue_age_seconds=lambda: 1.5,
        objects=lambda: {"Pod": 4},
        services=lambda: {("True", "Ready"): 9},
    )

    page = values(metrics)

    assert page["llmservice_workqueue_depth",] == 7
    assert page["llmservice_workqueue_delayed",] == 3
    assert page["llmservice_workqueue_oldest_age_seconds",] == 1.5
    assert page["llmservice_objects", "Pod"] == 4
    assert page["llmservice_services", "True", "Ready"] == 9


def test_plan_and_report_of_each_service_are_told_by_term() -> None:
    metrics = Metrics()
    metrics.watch(
        queue_depth=lambda: 0,
        queue_delayed=lambda: 0,
        queue_age_seconds=lambda: 0,
        objects=dict,
        services=dict,
        plans=lambda: [
            PlanTerm("ns", "chat", "weights", 10, 12),
            PlanTerm("ns", "chat", "cuda_graphs", None, 7),
        ],
    )

    page = values(metrics)

    assert page["llmservice_plan_predicted_bytes", "chat", "ns", "weights"] == 10
    assert page["llmservice_plan_actual_bytes", "chat", "ns", "weights"] == 12
    assert page["llmservice_plan_actual_bytes", "chat", "ns", "cuda_graphs"] == 7
    assert ("llmservice_plan_predicted_bytes", "chat", "ns", "cuda_graphs") not in page


def test_every_metric_has_the_projects_prefix_or_is_the_process_own() -> None:
    families = text_string_to_metric_families(Metrics().page().decode())

    assert {family.name.split("_")[0] for family in families} == {"llmservice", "process"}


def scaling_sample(name: str, **changes: Any) -> ScalingSample:
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "ready": 2,
        "pending": 1,
        "unschedulable": 0,
        "signals": (
            SignalSample("waiting", "ok", 3.0, 100.0),
            SignalSample("dram_active", "missing", None, 0.0),
        ),
        "capacity_requests_per_second": 4.0,
        "start_seconds": 60.0,
        "slo": (SloSample("ttft", 1.0, 200.0, 190.5),),
        "desired": 3,
        "bounds": (1, 8),
        "correction": 0.9,
        "decided_at": 100.0,
        "steps": (("forward", 2.5),),
        "ruling": "forward",
        "decisions": (("out", "forward", 2),),
    }
    return ScalingSample(**{**values, **changes})


def told(metrics: Metrics) -> dict[str, float]:
    """Every sample of the services by its name and labels but namespace."""
    return {
        sample.name + str(sorted((k, v) for k, v in sample.labels.items() if k != "namespace")): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
        if "name" in sample.labels
    }


def test_a_decision_is_told_with_its_steps_and_what_ruled() -> None:
    metrics = Metrics()
    metrics.watch_services(tuple, lambda: [scaling_sample("chat")])

    page = told(metrics)

    assert page["llmservice_scaling_desired_replicas[('name', 'chat')]"] == 3
    assert page["llmservice_scaling_step_replicas[('name', 'chat'), ('step', 'forward')]"] == 2.5
    assert page["llmservice_scaling_ruling_step[('name', 'chat'), ('step', 'forward')]"] == 1
    assert (
        page[
            "llmservice_scaling_decisions_total[('direction', 'out'), ('name', 'chat'), ('ruling', 'forward')]"
        ]
        == 2
    )


def test_a_signal_without_a_value_has_a_state_alone() -> None:
    metrics = Metrics()
    metrics.watch_services(tuple, lambda: [scaling_sample("chat")])

    page = told(metrics)

    assert page[
        "llmservice_scaling_signal_state[('name', 'chat'), ('signal', 'dram_active'), ('state', 'missing')]"
    ]
    assert "llmservice_scaling_signal[('name', 'chat'), ('signal', 'dram_active')]" not in page


def test_requests_within_an_objective_may_be_fractions() -> None:
    metrics = Metrics()
    metrics.watch_services(tuple, lambda: [scaling_sample("chat")])

    assert (
        told(metrics)["llmservice_slo_requests_met_total[('name', 'chat'), ('objective', 'ttft')]"] == 190.5
    )


def test_the_series_of_a_service_that_is_gone_are_gone_too() -> None:
    metrics, services = Metrics(), [scaling_sample("chat"), scaling_sample("code")]
    metrics.watch_services(tuple, lambda: services)
    before = told(metrics)
    services.pop()

    after = told(metrics)

    assert any("code" in each for each in before)
    assert not any("code" in each for each in after)


def test_a_service_that_is_only_measured_has_no_wanted_replicas() -> None:
    metrics = Metrics()
    only = scaling_sample(
        "chat", desired=None, bounds=None, correction=None, decided_at=None, steps=(), ruling=""
    )
    metrics.watch_services(tuple, lambda: [only])

    page = told(metrics)

    assert "llmservice_scaling_desired_replicas[('name', 'chat')]" not in page
    assert page["llmservice_scaling_ready_replicas[('name', 'chat')]"] == 2
