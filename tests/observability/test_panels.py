"""Every query of every panel has data on a real Prometheus that scrapes as the chart says."""

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pytest

from observability.panels import Chosen, dashboard, names, panels
from observability.stage import releases
from observability.stage.cluster import Cluster, Target
from observability.stage.live import Live
from observability.stage.server import Prometheus, openmetrics
from observability.stage.world import Moment, play
from ports import free_port

SCRAPED = 40
"""Moments at the end that are scraped; what was before is history."""
RECORDED = 4
"""Moments before them that recorded pages are seen at too: enough for a rate, however late the first scrape is."""
MOMENT_SECONDS = 0.2
SHOWN_SECONDS = 7200.0
CHOSEN = {
    "fleet": Chosen(namespace=".+", service="", range_seconds=SHOWN_SECONDS, rate_seconds=240),
    "service": Chosen(namespace="chat", service="llama-3-8b", range_seconds=SHOWN_SECONDS, rate_seconds=240),
    "sizing": Chosen(namespace="chat", service="llama-3-8b", range_seconds=SHOWN_SECONDS, rate_seconds=240),
    "operator": Chosen(namespace="", service="", range_seconds=SHOWN_SECONDS, rate_seconds=240),
}
NOW = ("stat", "table", "bargauge")
"""Panels that show one moment: it must have data now, and not some time ago."""

LACKING = {
    "vllm-0-8-5": {"Wasted and saved", "Bytes moved by each GPU"},
    "vllm-0-9-2": {"Bytes moved by each GPU"},
    "vllm-0-10-2": {"Bytes moved by each GPU"},
    "vllm-0-11-2": {"Bytes moved by each GPU"},
    "vllm-0-14-1": {"Bytes moved by each GPU"},
}
"""Panels with a query that has nothing to show of an older release: bytes from 0.17 on, cached tokens not on V0."""


def is_of_engines(expr: str) -> bool:
    """Whether it asks for engines' series and for nothing else."""
    return "vllm:" in expr and "llmservice_" not in expr


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has seen two hours of the stage, and goes on scraping it."""
    moments = play(SHOWN_SECONDS)
    before, scraped = moments[:-SCRAPED], moments[-SCRAPED:]
    begin = time.time() - before[-1].at_seconds
    cluster = Cluster(moments, begin=begin)
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), port=free_port())
    seen = [*before[:-RECORDED:2], *before[-RECORDED:]]
    frames = _frames(cluster, (*seen, *scraped), recorded=RECORDED + SCRAPED)
    server.fill(
        openmetrics((begin + at_seconds, targets) for at_seconds, targets in islice(frames, len(seen)))
    )
    live = Live((targets for _, targets in frames), seconds_each=MOMENT_SECONDS)
    try:
        server.start(live.scrapes())
        _wait(server)
        yield server
    finally:
        server.stop()
        live.close()


def _frames(
    cluster: Cluster, moments: Sequence[Moment], *, recorded: int
) -> Iterator[tuple[float, Iterator[Target]]]:
    """The second and the targets of each moment; recorded releases' are among them at the last so many."""
    pages = releases.frames()
    for place, moment in enumerate(moments):
        more = next(pages) if place >= len(moments) - recorded else ()
        yield moment.at_seconds, chain(cluster.targets(moment), more)


def _wait(server: Prometheus) -> None:
    """Until all targets were scraped some times, and the rules were evaluated on that."""
    scraped = 'count_over_time(up{job="llmservice-operator"}[15s]) > 4 and on () llmservice:slo_burn:rate1h'
    deadline = time.monotonic() + 60
    while not server.query(scraped, time.time()):
        assert time.monotonic() < deadline, "no scrape within a minute"
        time.sleep(0.2)


def test_targets_are_scraped_or_known_to_be_gone(prometheus: Prometheus) -> None:
    errors = {each["lastError"] for each in prometheus.get("targets")["activeTargets"]}

    assert errors <= {"", "server returned HTTP status 404 Not Found"}


def test_engines_carry_the_name_of_their_service(prometheus: Prometheus) -> None:
    found = prometheus.query("count by (namespace, llmservice) (vllm:num_requests_running)", time.time())

    assert {(each["metric"]["namespace"], each["metric"]["llmservice"]) for each in found} == {
        *((releases.NAMESPACE, service) for service in releases.SERVICES),
        ("chat", "llama-3-8b"),
        ("edge", "smollm2"),
        ("edge", "mistral-7b"),
        ("research", "qwen-3-32b"),
    }


def test_the_operators_series_keep_their_services_namespace(prometheus: Prometheus) -> None:
    found = prometheus.query("count by (namespace) (llmservice_service_replicas)", time.time())

    assert {each["metric"]["namespace"] for each in found} == {"chat", "edge", "research"}


def test_rules_are_evaluated(prometheus: Prometheus) -> None:
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]

    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}


def _empty(server: Prometheus, chosen: Chosen, panel: dict[str, Any]) -> list[str]:
    """The panel's queries that have no number to show."""
    now = time.time()
    empty = []
    for target in panel.get("targets", ()):
        expr = chosen.filled(target["expr"])
        if panel["type"] in NOW:
            values = [float(row["value"][1]) for row in server.query(expr, now)]
        else:
            rows = server.query_range(expr, now - SHOWN_SECONDS, now, 60)
            values = [float(value) for row in rows for _, value in row["values"]]
        if not any(math.isfinite(value) for value in values):
            empty.append(f"{panel['title']} / {target['refId']}: {expr}")
    return empty


@pytest.mark.parametrize("name", names())
def test_every_query_of_every_panel_has_data(prometheus: Prometheus, name: str) -> None:
    empty = [line for panel in panels(dashboard(name)) for line in _empty(prometheus, CHOSEN[name], panel)]

    assert empty == [], "\n".join(empty)


@pytest.mark.parametrize("service", releases.SERVICES)
def test_engines_of_every_recorded_release_fill_the_panels(prometheus: Prometheus, service: str) -> None:
    chosen = replace(CHOSEN["service"], namespace=releases.NAMESPACE, service=service)
    empty = set()
    for panel in panels(dashboard("service")):
        of_engines = [each for each in panel.get("targets", ()) if is_of_engines(each["expr"])]
        if _empty(prometheus, chosen, {**panel, "targets": of_engines}):
            empty.add(panel["title"])

    assert empty == LACKING.get(service, set())


@pytest.mark.parametrize("name", names())
def test_variables_have_values(prometheus: Prometheus, name: str) -> None:
    variables = [each for each in dashboard(name)["templating"]["list"] if each["type"] == "query"]
    for variable in variables:
        series, label = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"])[0]
        found = prometheus.query(f"count by ({label}) ({CHOSEN[name].filled(series)})", time.time())

        assert found, f"{name}: ${variable['name']}"
