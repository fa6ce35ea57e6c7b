"""NetworkPolicies by packets: what the chart's and those in policies/network let through, and what they don't.

Each verdict is looked at twice: with the policies, and without any, when all must be reached.
"""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest

import deploy
from devcluster import Cluster
from devcluster.fixtures import AnyCluster
from e2e.conftest import RESTRICTED
from e2e.fleet import ASK, CONFIG_MAP, Fleet, Object, config_map
from network_policies.traffic import NAME_PORT, Address, Source, Verdicts, listener, outside, verdicts

pytestmark = pytest.mark.cluster

FOLDER = deploy.ROOT / "policies" / "network"
CHAT = "chat"
MODEL = {"uri": "hf://HuggingFaceTB/SmolLM2-135M-Instruct", "configMap": CONFIG_MAP}
MONITORING = "monitoring"
"""As policies/network names it."""
NEIGHBOUR, HELM_TEST = GUESTS = ("neighbour", "helm-test")
"""Pods beside the operator."""
CHART_TEST = {
    "app.kubernetes.io/name": "llmservice-operator-test",
    "app.kubernetes.io/instance": deploy.RELEASE,
}
HTTPS, HTTP, ENGINE, SUPERVISOR, METRICS = 443, 80, 8000, 9410, 8080
PROMETHEUS, PROMETHEUS_SERVICE = 9090, 9000
"""The port of the pod, and another in front of it."""
SETTLE_SECONDS = 20.0
"""A policy is held to within a second or two of its being stored."""

Expected = tuple[tuple[str, str, bool], ...]


def _engine_of(team: str, other: str) -> Expected:
    """Who reaches the engine of a team, and who doesn't."""
    engine, supervisor, service = f"{team} engine", f"{team} supervisor", f"{team} service"
    return (
        (f"{team} client", engine, True),
        (f"{team} client", service, True),
        (f"{team} client", supervisor, False),
        (f"{other} client", engine, False),
        (f"{other} client", service, False),
        ("stranger", engine, False),
        ("stranger", service, False),
        ("stranger", supervisor, False),
        ("neighbour", engine, False),
        ("neighbour", supervisor, False),
        ("operator", engine, True),
        ("operator", supervisor, True),
        ("prometheus", engine, True),
        ("prometheus", supervisor, True),
        # Its way to a pod's port for `kubectl get --raw …/proxy/…`; forwarding a port goes by the kubelet.
        ("API server", engine, False),
    )


HELD: Expected = (
    *_engine_of("chart", "folder"),
    *_engine_of("folder", "chart"),
    # The chart's policy for the operator.
    ("prometheus", "operator", True),
    ("helm test", "operator", True),
    ("neighbour", "operator", False),
    ("stranger", "operator", False),
    ("chart client", "operator", False),
    ("operator", "names", True),
    ("operator", "names by TCP", True),
    ("operator", "API server", True),
    ("operator", "world by https", True),
    ("operator", "world by http", False),
    ("operator", "Prometheus's Service", True),
    ("operator", "neighbour's http", False),
    # The chart's policy for engines says nothing of whom they reach.
    ("chart engine", "world by http", True),
    # policies/network does: names, and the world by https.
    ("folder engine", "names", True),
    ("folder engine", "names by TCP", True),
    ("folder engine", "world by https", True),
    ("folder engine", "world by http", False),
    ("folder engine", "API server", False),
    ("folder engine", "neighbour's https", False),
    ("folder engine", "chart engine", False),
)
CLOSED: Expected = (
    ("folder client", "folder engine", False),
    ("operator", "folder engine", False),
    ("operator", "folder supervisor", False),
    ("prometheus", "folder supervisor", False),
    ("folder engine", "names", False),
    ("folder engine", "world by https", False),
)
"""With engines-closed alone."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Two teams, one held by the chart's policies and one by those in the folder, and those who want something."""

    cluster: Cluster
    chart: Fleet
    folder: Fleet
    stranger: str
    """A namespace that nobody names."""
    address: str
    """Outside of the cluster."""

    @property
    def teams(self) -> dict[str, Fleet]:
        return {"chart": self.chart, "folder": self.folder}

    def listeners(self) -> list[Object]:
        """All pods but the operator's and engines', on both nodes."""
        first, last = self.cluster.nodes[0], self.cluster.nodes[-1]
        ports = {"https": HTTPS, "http": ENGINE, "metrics": PROMETHEUS}
        system = deploy.OPERATOR_NAMESPACE
        return [
            listener(namespace, name, node=node, ports=ports, labels=labels)
            for namespace, name, node, labels in (
                (self.chart.namespace, "client", first, {}),
                (self.folder.namespace, "client", last, {}),
                (self.stranger, "stranger", first, {}),
                (MONITORING, "prometheus", last, {"app": "prometheus"}),
                (system, NEIGHBOUR, first, {}),
                (system, HELM_TEST, last, CHART_TEST),
            )
        ]

    def sources(self) -> dict[str, Source]:
        """Who tries to reach others, by name."""
        system = deploy.OPERATOR_NAMESPACE
        operator = _pod(self.cluster, system, f"app.kubernetes.io/name={deploy.RELEASE}")["metadata"]["name"]
        return {
            "API server": Source(),
            "operator": Source(namespace=system, pod=operator, container="operator"),
            "neighbour": Source(namespace=system, pod=NEIGHBOUR, container=NEIGHBOUR),
            "helm test": Source(namespace=system, pod=HELM_TEST, container=HELM_TEST),
            "prometheus": Source(namespace=MONITORING, pod="prometheus", container="prometheus"),
            "stranger": Source(namespace=self.stranger, pod="stranger", container="stranger"),
            **{
                f"{name} client": Source(namespace=fleet.namespace, pod="client", container="client")
                for name, fleet in self.teams.items()
            },
            **{
                f"{name} engine": Source(
                    namespace=fleet.namespace, pod=self._engine(fleet)["metadata"]["name"], container="engine"
                )
                for name, fleet in self.teams.items()
            },
        }

    def targets(self) -> dict[str, Address]:
        """Who is reached, by name: pods by their own addresses, Services by theirs."""
        system = deploy.OPERATOR_NAMESPACE
        operator = _pod(self.cluster, system, f"app.kubernetes.io/name={deploy.RELEASE}")
        neighbour = self.cluster.kubectl("get", "pod", NEIGHBOUR, "-n", system, "-o", "json")
        neighbour_address = json.loads(neighbour)["status"]["podIP"]
        found = {
            "operator": (operator["status"]["podIP"], METRICS),
            "neighbour's http": (neighbour_address, ENGINE),
            "neighbour's https": (neighbour_address, HTTPS),
            "names": ("kubernetes.default.svc.cluster.local", NAME_PORT),
            "names by TCP": (_service(self.cluster, "kube-system", "kube-dns"), 53),
            "API server": (_service(self.cluster, "default", "kubernetes"), HTTPS),
            "Prometheus's Service": (_service(self.cluster, MONITORING, "prometheus"), PROMETHEUS_SERVICE),
            "world by https": (self.address, HTTPS),
            "world by http": (self.address, HTTP),
        }
        for name, fleet in self.teams.items():
            engine = self._engine(fleet)["status"]["podIP"]
            found[f"{name} engine"] = (engine, ENGINE)
            found[f"{name} supervisor"] = (engine, SUPERVISOR)
            found[f"{name} service"] = (_service(self.cluster, fleet.namespace, CHAT), ENGINE)
        return found

    def settled(self, expected: Expected) -> Verdicts:
        """The verdicts once they are as expected, or as they are when time is up."""
        deadline = time.monotonic() + SETTLE_SECONDS
        sources, targets = self.sources(), self.targets()
        wanted = {(source, target): reached for source, target, reached in expected}
        while True:
            found = verdicts(self.cluster, sources, targets, wanted)
            if found == wanted or time.monotonic() > deadline:
                return found

    def _engine(self, fleet: Fleet) -> Object:
        return _pod(self.cluster, fleet.namespace, f"llmservice.dev/service={CHAT}")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen in the course of it."""

    held: Verdicts
    closed: Verdicts
    free: Verdicts
    metrics: Mapping[str, Object]
    """The condition MetricsAvailable of each team's service, whose pods started under the policies."""
    answers: Mapping[str, str]
    """What each team's client was answered by the model."""


@pytest.fixture(scope="module")
def world(cluster: AnyCluster) -> Iterator[World]:
    """The cluster enforces policies, and has the namespaces and an outside; no policy yet."""
    if not isinstance(cluster, Cluster):
        pytest.skip("what holds packets to policies on a cluster that is not ours is not ours to judge")
    cluster.enforce_network_policies()
    deploy.load_images(cluster, deploy.build_images("operator", "fake-engine"))
    suffix = uuid4().hex[:6]
    chart, folder = (
        Fleet(cluster=cluster, namespace=f"held-by-{name}-{suffix}") for name in ("chart", "folder")
    )
    stranger = f"stranger-{suffix}"
    with ExitStack() as stack:
        stack.enter_context(_namespaces(cluster, chart.namespace, folder.namespace, stranger, MONITORING))
        stack.callback(
            cluster.kubectl, "delete", "pod", *GUESTS, "-n", deploy.OPERATOR_NAMESPACE, "--ignore-not-found"
        )
        address = stack.enter_context(outside(cluster, (HTTPS, HTTP)))
        yield World(cluster=cluster, chart=chart, folder=folder, stranger=stranger, address=address)


@pytest.fixture(scope="module")
def seen(world: World) -> Seen:
    """With all policies, with nothing but engines-closed for one team, and with none."""
    folder = world.folder
    with _policies(world):
        _start(world)
        answers = {name: _ask(fleet) for name, fleet in world.teams.items()}
        held = world.settled(HELD)
        metrics = {name: _metrics_available(fleet) for name, fleet in world.teams.items()}
        folder.kubectl("delete", "-k", str(FOLDER))
        folder.kubectl("apply", "-f", str(FOLDER / "engines-closed.yaml"))
        closed = world.settled(CLOSED)
        folder.kubectl("delete", "networkpolicy", "--all")
    free = world.settled(tuple((source, target, True) for source, target, _ in (*HELD, *CLOSED)))
    with ThreadPoolExecutor() as pool:
        list(pool.map(Fleet.remove_all, world.teams.values()))
    return Seen(held=held, closed=closed, free=free, metrics=metrics, answers=answers)


def test_without_policies_everybody_is_reached(seen: Seen) -> None:
    """Else a refusal would say nothing: maybe nobody listens."""
    assert [pair for pair, reached in seen.free.items() if not reached] == []


@pytest.mark.parametrize(("source", "target", "reached"), HELD)
def test_policies_hold(seen: Seen, source: str, target: str, *, reached: bool) -> None:
    assert seen.held[source, target] is reached


@pytest.mark.parametrize(("source", "target", "reached"), CLOSED)
def test_engines_closed_alone_shuts_all_ways(seen: Seen, source: str, target: str, *, reached: bool) -> None:
    assert seen.closed[source, target] is reached


@pytest.mark.parametrize("team", ["chart", "folder"])
def test_the_operator_scales_by_engines_that_it_reaches(seen: Seen, team: str) -> None:
    assert (seen.metrics[team]["status"], seen.metrics[team]["reason"]) == ("True", "MetricsFresh")


@pytest.mark.parametrize("team", ["chart", "folder"])
def test_a_client_is_answered(seen: Seen, team: str) -> None:
    assert seen.answers[team]


@contextmanager
def _namespaces(cluster: Cluster, *names: str) -> Iterator[None]:
    try:
        for name in names:
            deploy.create_namespace(cluster, name, labels=RESTRICTED)
        yield
    finally:
        cluster.kubectl(
            "delete", "namespace", *names, "--ignore-not-found", "--timeout=120s", timeout_seconds=130
        )


@contextmanager
def _policies(world: World) -> Iterator[None]:
    """The chart's policies and the folder's; the chart's are off again in the end."""
    archive = deploy.build_images("operator")["operator"]
    peer = r"networkPolicies.prometheus[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name"
    world.folder.kubectl("apply", "-k", str(FOLDER))
    try:
        deploy.install_operator(
            world.cluster, archive,
            "networkPolicies.operator.enabled=true",
            "networkPolicies.engines.enabled=true",
            f"networkPolicies.engines.namespaces={{{world.chart.namespace}}}",
            f"{peer}={MONITORING}",
            f"prometheus.url=http://prometheus.{MONITORING}.svc:{PROMETHEUS_SERVICE}",
        )  # fmt: skip
        yield
    finally:
        deploy.install_operator(world.cluster, archive)


def _start(world: World) -> None:
    """All pods: each begins under the policies, so that no connection is older than they are."""
    prometheus = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "prometheus", "namespace": MONITORING},
        "spec": {
            "selector": {"app": "prometheus"},
            "ports": [{"port": PROMETHEUS_SERVICE, "targetPort": PROMETHEUS}],
        },
    }
    deploy.apply(world.cluster, prometheus, *world.listeners())
    for fleet in world.teams.values():
        deploy.apply(world.cluster, config_map(fleet.namespace))
        fleet.apply(CHAT, model=MODEL, drain={"timeout": "5s"}, scaling={"maxReplicas": 2})
    for fleet in world.teams.values():
        fleet.wait_ready(CHAT)
    for pod in world.listeners():
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        world.cluster.kubectl(
            "wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=60s"
        )


def _metrics_available(fleet: Fleet) -> Object:
    service = fleet.wait(
        CHAT, lambda each: deploy.condition(each, "MetricsAvailable").get("status") == "True"
    )
    return deploy.condition(service, "MetricsAvailable")


def _ask(fleet: Fleet) -> str:
    address = f"http://{CHAT}.{fleet.namespace}.svc:{ENGINE}/v1/completions"
    return fleet.kubectl("exec", "client", "--", "python3", "-c", ASK, address, CHAT).strip()


def _pod(cluster: Cluster, namespace: str, selector: str) -> Object:
    """The pod with these labels that is there to stay."""
    found = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))["items"]
    pod: Object = next(each for each in found if "deletionTimestamp" not in each["metadata"])
    return pod


def _service(cluster: Cluster, namespace: str, name: str) -> str:
    """The Service's own address."""
    return cluster.kubectl("get", "service", name, "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
