"""What the chart renders for Prometheus' operator, Grafana and the network's policies, and when."""

from typing import Any

import pytest
import yaml

from integration.chart.releases import CHART, NAMESPACE, HelmError, of_kind, render, render_monitored

MONITORS = {
    "serviceMonitor": "ServiceMonitor",
    "podMonitor": "PodMonitor",
    "prometheusRule": "PrometheusRule",
}
DASHBOARDS = sorted(path.name for path in (CHART / "dashboards").glob("*.json"))
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in objects}


def endpoints(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the engines' monitor scrapes, by port."""
    (monitor,) = of_kind(objects, "PodMonitor")
    return {each["port"]: each for each in monitor["spec"]["podMetricsEndpoints"]}


def relabelled(endpoint: dict[str, Any]) -> dict[str, str]:
    """Label → where it comes from."""
    return {
        each["targetLabel"]: each.get("replacement") or each["sourceLabels"][0]
        for each in endpoint["relabelings"]
    }


def test_nothing_for_prometheus_operator_where_it_is_not() -> None:
    assert not set(MONITORS.values()) & kinds(render())


@pytest.mark.parametrize("switch", MONITORS)
def test_monitors_where_prometheus_operator_is(switch: str) -> None:
    off = render_monitored(metrics={switch: {"enabled": False}})

    assert MONITORS[switch] in kinds(render_monitored())
    assert MONITORS[switch] not in kinds(off)


@pytest.mark.parametrize("switch", MONITORS)
def test_what_is_asked_for_and_cannot_be_is_refused(switch: str) -> None:
    with pytest.raises(HelmError, match=f"metrics.{switch}.enabled is true, and this cluster has no"):
        render(metrics={switch: {"enabled": True}})


def test_rules_are_the_charts_own() -> None:
    (rule,) = of_kind(render_monitored(), "PrometheusRule")
    own = yaml.safe_load((CHART / "alerts" / "rules.yaml").read_text())

    assert rule["spec"]["groups"] == own["groups"]


def test_a_series_of_the_operator_keeps_its_services_namespace() -> None:
    """A monitor would put the operator's own namespace over it."""
    (monitor,) = of_kind(render_monitored(), "ServiceMonitor")

    assert [each["honorLabels"] for each in monitor["spec"]["endpoints"]] == [True]


def test_engines_and_their_supervisors_are_scraped_by_service() -> None:
    found = endpoints(render_monitored())

    assert set(found) == {"http", "supervisor"}
    assert {relabelled(each)["llmservice"] for each in found.values()} == {
        "__meta_kubernetes_pod_label_llmservice_dev_service"
    }


def test_engines_are_scraped_where_they_are_looked_after() -> None:
    (everywhere,) = of_kind(render_monitored(), "PodMonitor")
    (somewhere,) = of_kind(render_monitored(watchNamespaces=["a", "b"]), "PodMonitor")

    assert everywhere["spec"]["namespaceSelector"] == {"any": True}
    assert somewhere["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_monitors_have_the_labels_that_prometheus_selects_by() -> None:
    objects = render_monitored(metrics={"labels": {"release": "kube-prometheus-stack"}})
    monitors = [each for kind in MONITORS.values() for each in of_kind(objects, kind)]

    assert {each["metadata"]["labels"]["release"] for each in monitors} == {"kube-prometheus-stack"}


@pytest.mark.parametrize(
    ("arguments", "enabled", "there"),
    [
        ((), "auto", False),
        (("--api-versions", "monitoring.coreos.com/v1"), "auto", True),
        ((), True, True),
        (("--api-versions", "monitoring.coreos.com/v1"), False, False),
    ],
)
def test_dashboards(arguments: tuple[str, ...], enabled: object, *, there: bool) -> None:
    config_maps = of_kind(render(*arguments, dashboards={"enabled": enabled}), "ConfigMap")
    names = sorted(name for each in config_maps for name in each["data"])

    assert names == (DASHBOARDS if there else [])
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in config_maps)


def test_no_network_policy_unless_asked_for() -> None:
    assert "NetworkPolicy" not in kinds(render())


def test_the_operator_reaches_what_it_is_told_of() -> None:
    objects = render(
        networkPolicies={"operator": {"enabled": True}},
        hub={"endpoint": "http://hub.local:8081"},
        prometheus={"url": "http://prometheus.monitoring.svc:9090"},
        proxy={"https": "http://proxy.local:3128"},
    )
    (policy,) = of_kind(objects, "NetworkPolicy")
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}

    assert ports == {53, 443, 6443, 8081, 9090, 3128, "http", "supervisor"}


def test_the_operator_asks_prometheus_by_whatever_port_its_pods_have() -> None:
    """A policy holds the port behind the Service, which no value tells."""
    policies = {"prometheus": [PEER], "operator": {"enabled": True}}
    objects = render(networkPolicies=policies, prometheus={"url": "http://prometheus.monitoring.svc:80"})
    (policy,) = of_kind(objects, "NetworkPolicy")

    assert {"to": [PEER]} in policy["spec"]["egress"]


def test_engines_are_reached_by_clients_the_operator_and_prometheus() -> None:
    policies = {"prometheus": [PEER], "engines": {"enabled": True, "namespaces": ["a"]}}
    (policy,) = of_kind(render(networkPolicies=policies), "NetworkPolicy")
    clients, ours = policy["spec"]["ingress"]

    assert clients == {"from": [{"podSelector": {}}], "ports": [{"port": "http"}]}
    assert [port["port"] for port in ours["ports"]] == ["http", "supervisor"]
    assert ours["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == NAMESPACE
    assert ours["from"][1] == PEER


def test_a_namespaced_release_guards_its_own_namespaces() -> None:
    objects = render(watchNamespaces=["a", "b"], networkPolicies={"engines": {"enabled": True}})
    policies = of_kind(objects, "NetworkPolicy")

    assert {each["metadata"]["namespace"] for each in policies} == {"a", "b"}
