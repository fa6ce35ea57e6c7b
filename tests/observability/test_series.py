"""The series themselves: known, bounded, explained."""

import inspect
import re
from collections.abc import Iterator

import pytest

from llmservice_operator.engines.metric_names import NAMES
from llmservice_operator.telemetry.metrics import Metrics
from llmservice_operator.telemetry.scaling import ScalingSample, ServiceState
from llmservice_runtime import exposition
from observability.panels import queries
from observability.reference import Row, full_metrics, operator_rows, scaling_sample, supervisor_rows
from observability.rules import groups

LABELS = {
    *("namespace", "name"),
    *(
        "accelerator",
        "code",
        "direction",
        "kind",
        "objective",
        "ready",
        "reason",
        "result",
        "ruling",
        "signal",
    ),
    *("state", "status", "step", "term", "type", "verb", "version", "python"),
}
"""None of them holds what grows with traffic: a request, a user, a prompt, a pod."""
NAME = re.compile(r"\b(?:llmservice|vllm)[_:][a-zA-Z0-9_:]+")
_PARTS = ("_bucket", "_count", "_sum")


def _known() -> set[str]:
    rows = [*operator_rows(), *supervisor_rows()]
    recorded = {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}
    found = {row.name for row in rows} | recorded | {each.name for each in NAMES}
    found |= {"vllm:e2e_request_latency_seconds", "vllm:iteration_tokens_total"}
    return found | {name + part for name in found for part in _PARTS}


def _expressions() -> Iterator[tuple[str, str]]:
    for group in groups():
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for page, title, expr in queries():
        yield f"{page} / {title}", expr


def test_rules_and_panels_ask_for_series_that_exist() -> None:
    known = _known()

    unknown = {
        (where, name) for where, expr in _expressions() for name in NAME.findall(expr) if name not in known
    }

    assert unknown == set()


@pytest.mark.parametrize("row", operator_rows(), ids=lambda row: row.name)
def test_a_series_of_the_operator_has_a_meaning_and_bounded_labels(row: Row) -> None:
    assert row.meaning.endswith(".")
    assert set(row.labels) <= LABELS


def test_gpu_utilisation_is_asked_for_nowhere() -> None:
    assert [where for where, expr in _expressions() if "GPU_UTIL" in expr] == []


def test_a_deleted_service_leaves_no_series() -> None:
    services = ["kept", "gone"]
    metrics = Metrics()
    metrics.watch_services(
        lambda: [
            ServiceState("ns", each, (("Ready", "True", "Ready"),), 1, 1, "nvidia-h200", 1)
            for each in services
        ],
        lambda: [scaling_sample("ns", each) for each in services],
    )
    before = metrics.page().decode()
    services.remove("gone")

    page = metrics.page().decode()

    assert 'name="gone"' in before
    assert 'name="gone"' not in page
    assert before.count('name="kept"') == page.count('name="kept"')


def test_series_of_a_service_do_not_grow_with_its_replicas() -> None:
    def count(ready: int) -> int:
        sample: ScalingSample = scaling_sample("ns", "name")
        fields = {name: getattr(sample, name) for name in ScalingSample.__slots__}
        metrics = Metrics()
        metrics.watch_services(tuple, lambda: [ScalingSample(**{**fields, "ready": ready, "pending": ready})])
        return metrics.page().decode().count('name="name"')

    assert count(1) == count(64)


def test_the_page_is_whole() -> None:
    page = full_metrics().page().decode()

    assert page.endswith("\n")
    assert page.count("# TYPE llmservice_") == len(operator_rows())


def test_the_page_lists_every_series_of_the_supervisor() -> None:
    told = set(re.findall(r'_gauge\(\s*"(\w+)"', inspect.getsource(exposition)))

    listed = {row.name.removeprefix("llmservice_runtime_") for row in supervisor_rows()}

    assert told <= listed
