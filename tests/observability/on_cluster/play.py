"""The play: everything ready and loaded, Prometheus scraping, then four faults at once, and what it makes of them."""

import http.client
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import deploy
from devcluster import Cluster
from e2e.fleet import config_map as small_config_map
from fakes.planned import as_planned
from load.pod import replay
from observability.on_cluster import cast
from observability.on_cluster.look import Empty, look
from observability.on_cluster.targets import Targets
from observability.rules import RULES
from observability.stage.server import Prometheus
from observability.staged import faster
from ports import free_port
from soak.setting import MODEL, make_setting
from soak.setting import config_map as large_config_map

READY_SECONDS, SEEN_SECONDS = 180.0, 30.0
SCRAPE = "2s"
LOOKBACK = "10s"
Alert = tuple[str, str]
"""(alert, service)."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A change of a service's replicas, by the operator."""

    service: str
    at_seconds: float
    old: int
    new: int
    ruling: str
    reason: str


@dataclass
class Seen:
    """Of the play. Times are seconds since the faults."""

    pending: dict[Alert, float] = field(default_factory=dict)
    fired: dict[Alert, float] = field(default_factory=dict)
    decided: tuple[Decided, ...] = ()
    """What the operator decided after the faults, the oldest first."""
    empty: tuple[Empty, ...] = ()
    """Dashboards' queries without data."""
    queries: int = 0
    conditions: dict[str, str] = field(default_factory=dict)
    """How each service was in the end, in words."""


def prepare(cluster: Cluster) -> int:
    """All services ready; how many tokens the cache holds that is to be filled."""
    setting = make_setting()
    folder = cluster.models_folder / "qwen3-32b"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(MODEL.read_text())
    deploy.provide_models(cluster, cast.NAMESPACE, deploy.build_model())
    models = (small_config_map(cast.NAMESPACE), large_config_map(cast.NAMESPACE))
    services = as_planned(tuple(cast.manifests(setting)), models)
    deploy.apply(cluster, *models, cast.fault_map(""), *services)
    deadline = time.monotonic() + READY_SECONDS
    found = {
        name: deploy.wait_until(
            cluster,
            deploy.llmservice_path(cast.NAMESPACE, name),
            lambda each, count=replicas: each.get("status", {}).get("readyReplicas") == count,  # type: ignore[misc]
            timeout_seconds=deadline - time.monotonic(),
        )
        for name, replicas in cast.READY.items()
    }
    deploy.apply(cluster, cast.fault_map(cast.SLOW_START))
    return int(found[cast.FULL]["status"]["plan"]["kvCacheTokens"])


def play(cluster: Cluster, folder: Path, full_tokens: int) -> Seen:
    """The whole play; `folder` is Prometheus'."""
    rules = folder / "rules.yaml"
    rules.write_text(faster(RULES.read_text()))
    prometheus = Prometheus(folder, port=free_port())
    targets = Targets(cluster, folder)
    seen = Seen()
    requests = cast.requests(full_tokens)
    with replay(cluster, cast.NAMESPACE, cast.targets(), requests, timeout_seconds=300.0) as load:
        faults_at = load.began + cast.WELL_SECONDS
        try:
            targets.refresh()
            prometheus.start(targets.scrapes(), interval=SCRAPE, rules_file=None, lookback=LOOKBACK)
            _await_scrapes(prometheus)
            prometheus.judge(rules)
            _watch(prometheus, targets, seen, faults_at, until=0.0)
            _break(cluster)
            _watch(prometheus, targets, seen, faults_at, until=cast.FAULT_SECONDS)
            seen.queries, seen.empty = look(prometheus, time.time() - load.began)
            _ask_services(cluster, seen, faults_at)
        finally:
            prometheus.stop()
    return seen


def _await_scrapes(prometheus: Prometheus) -> None:
    """Until the operator is seen: in a hurry an alert on what is absent does not wait for the first scrape."""
    deadline = time.monotonic() + SEEN_SECONDS
    while not prometheus.query("llmservice_leader == 1", time.time()):
        assert time.monotonic() < deadline, f"no page of the operator within {SEEN_SECONDS} s"
        time.sleep(0.2)


def _watch(prometheus: Prometheus, targets: Targets, seen: Seen, faults_at: float, *, until: float) -> None:
    """Follow targets and alerts until so many seconds after `faults_at` (Unix time)."""
    while (since := time.time() - faults_at) < until:
        targets.refresh()
        for row in prometheus.query("ALERTS", time.time()):
            labels = row["metric"]
            alert = (labels["alertname"], labels.get("name") or labels.get("llmservice", ""))
            if labels["alertstate"] == "firing":
                seen.fired.setdefault(alert, since)
            seen.pending.setdefault(alert, since)
        time.sleep(0.5)


def _break(cluster: Cluster) -> None:
    """The faults that no load makes."""
    with suppress(ConnectionError):  # it may be dead before it answers
        _set_fault(_addresses(cluster, cast.KILLED), "sigkill")
    _set_fault(_addresses(cluster, cast.CUT)[:1], "metrics-cut")


def _addresses(cluster: Cluster, service: str) -> list[str]:
    pods = cluster.api.request("GET", deploy.pods_path(cast.NAMESPACE, service))["items"]
    return sorted(pod["status"]["podIP"] for pod in pods)


def _set_fault(addresses: Sequence[str], fault: str) -> None:
    for address in addresses:
        connection = http.client.HTTPConnection(address, 8000, timeout=10)
        try:
            connection.request("POST", "/fake/fault", fault)
            answer = connection.getresponse()
            assert answer.status == 200, f"{address}: {answer.status} to the fault {fault}"
        finally:
            connection.close()


def _ask_services(cluster: Cluster, seen: Seen, faults_at: float) -> None:
    """Their conditions, and what was decided since the faults."""
    path = f"/apis/llmservice.dev/v1alpha1/namespaces/{cast.NAMESPACE}/llmservices"
    services = {
        each["metadata"]["name"]: each["status"] for each in cluster.api.request("GET", path)["items"]
    }
    seen.conditions = {name: _told(status) for name, status in services.items()}
    changes = [
        _decided(name, each, faults_at)
        for name, status in services.items()
        for each in status.get("scaling", {}).get("decisions", ())
    ]
    late = [each for each in changes if each.at_seconds >= 0.0]
    seen.decided = tuple(sorted(late, key=lambda each: each.at_seconds))


def _told(status: Mapping[str, Any]) -> str:
    told = [f"{each['type']}={each['status']} ({each['reason']})" for each in status["conditions"]]
    if scaling := status.get("scaling", {}).get("reason"):
        told.append(f"{status['scaling']['ruling']}: {scaling}")
    return ", ".join(told)


def _decided(service: str, told: Mapping[str, Any], faults_at: float) -> Decided:
    return Decided(
        service=service,
        at_seconds=datetime.fromisoformat(told["at"]).timestamp() - faults_at,
        old=told["from"],
        new=told["to"],
        ruling=told["ruling"],
        reason=told["reason"],
    )
