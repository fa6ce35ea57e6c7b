"""Every switch of the chart against the real API server: what is rendered is taken, field by field."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from devcluster.fixtures import AnyLightCluster
from integration.chart import monitoring_crds
from integration.chart.releases import (
    CHART,
    NAME,
    NAMESPACE,
    HelmError,
    helm,
    render,
    render_monitored,
    values_arguments,
)

pytestmark = pytest.mark.light

TEAM = "switches"
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "imageRegistry": "registry.local:5000/mirror",
    "image": {"digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": ["pull"],
    "hub": {"endpoint": "https://hub.local", "tokenSecret": {"name": "hub"}},
    "prometheus": {"url": "http://prometheus.monitoring.svc:9090", "tokenSecret": {"name": "prometheus"}},
    "proxy": {"http": "http://proxy.local:3128", "https": "http://proxy.local:3128", "no": ["hub.local"]},
    "caBundle": {"configMap": "authorities"},
    "allowedHostPaths": ["/mnt/nvme"],
    "accelerators": [{"name": "nvidia-l4", "costPerHour": 0.35}],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "serviceAccount": {"annotations": {"example.com/role": "x"}},
    "metrics": {"service": {"annotations": {"a": "b"}}, "labels": {"release": "stack"}, "interval": "30s"},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "LLMServices"}},
    "networkPolicies": {
        "prometheus": [PEER],
        "operator": {"enabled": True, "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        "engines": {"enabled": True, "namespaces": [TEAM]},
    },
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "namespaced": {"watchNamespaces": [TEAM], "networkPolicies": {"engines": {"enabled": True}}},
    "secret authorities": {"caBundle": {"secret": "authorities"}},
    "own affinity": {"affinity": {"nodeAffinity": {}}, "replicas": 1},
    "left to others": {
        "crds": {"install": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "own"},
        "metrics": {"service": {"enabled": False}, "podMonitor": {"enabled": False}},
    },
}


@pytest.fixture(scope="module")
def prepared(light_cluster: AnyLightCluster) -> Iterator[AnyLightCluster]:
    """A cluster with the Prometheus operator's CRDs and the namespaces of all cases."""
    crds = [argument for path in monitoring_crds.files() for argument in ("-f", str(path))]
    light_cluster.kubectl("apply", "--server-side", "--force-conflicts", *crds)
    light_cluster.kubectl("wait", "--for=create", *_established(), "--timeout=30s")
    light_cluster.kubectl("wait", "--for=condition=Established", *_established(), "--timeout=30s")
    for namespace in (NAMESPACE, TEAM):
        _ensure_namespace(light_cluster, namespace)
    yield light_cluster
    light_cluster.kubectl("delete", *crds, "--wait=false")
    light_cluster.kubectl("delete", "namespace", TEAM, "--wait=false")


def _established() -> list[str]:
    return [f"customresourcedefinition/{kind}.monitoring.coreos.com" for kind in monitoring_crds.KINDS]


def _ensure_namespace(cluster: AnyLightCluster, name: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_taken(prepared: AnyLightCluster, case: str) -> None:
    objects = render_monitored(**CASES[case])
    said = prepared.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip

    assert len(said.splitlines()) == len(objects)


def test_monitors_come_by_themselves_where_prometheus_operator_is(prepared: AnyLightCluster) -> None:
    """`auto`, by what the API server itself says that it serves."""
    manifest = helm(
        "install", NAME, str(CHART), "--namespace", NAMESPACE, "--dry-run=server", "--take-ownership",
        *values_arguments({"crds": {"install": False}}), cluster=prepared,
    )  # fmt: skip

    assert "kind: ServiceMonitor" in manifest
    assert "kind: PodMonitor" in manifest


def test_a_crd_of_an_older_release_is_refused(prepared: AnyLightCluster) -> None:
    """Where others look after the CRDs: an API server drops the fields that an older one does not know."""
    (crd,) = (
        each
        for each in render()
        if each["kind"] == "CustomResourceDefinition" and each["spec"]["names"]["kind"] == "LLMService"
    )
    old = yaml.safe_load(yaml.safe_dump(crd))
    del old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["drain"]
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    prepared.kubectl(*arguments, stdin=yaml.safe_dump(old))
    try:
        with pytest.raises(HelmError, match=r"is of an older release: it lacks spec\.drain\."):
            helm(
                "install", NAME, str(CHART), "--namespace", NAMESPACE, "--dry-run=server",
                *values_arguments({"crds": {"install": False}}), cluster=prepared,
            )  # fmt: skip
    finally:
        prepared.kubectl(*arguments, stdin=yaml.safe_dump(crd))
