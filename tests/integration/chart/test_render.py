"""What the chart renders, and which values it refuses."""

from typing import Any

import pytest
import yaml

from integration.chart.releases import (
    CHART,
    ROOT,
    HelmError,
    helm,
    of_kind,
    operator_container,
    operator_environment,
    render,
)
from llmservice_operator.perfmodel.accelerators import load_catalogue
from llmservice_operator.settings import Settings, read_settings
from llmservice_operator.version import __version__

ROW = {
    "name": "nvidia-b300",
    "memoryGiB": 268.5,
    "memoryBandwidthBytesPerSecond": 8e12,
    "bf16FlopsPerSecond": 2.5e15,
    "costPerHour": 20,
    "nodeLabels": {"nvidia.com/gpu.product": ["NVIDIA-B300"]},
}


def test_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_versions_are_the_releases() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_crds_are_the_generated_ones() -> None:
    rendered = of_kind(render(), "CustomResourceDefinition")
    generated = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]

    assert {crd["metadata"]["name"]: crd["spec"] for crd in rendered} == {
        crd["metadata"]["name"]: crd["spec"] for crd in generated
    }


def test_the_crds_outlive_the_release() -> None:
    policies = {
        crd["metadata"]["annotations"]["helm.sh/resource-policy"]
        for crd in of_kind(render(), "CustomResourceDefinition")
    }

    assert policies == {"keep"}


def test_the_crds_may_be_left_to_others() -> None:
    assert of_kind(render(crds={"install": False}), "CustomResourceDefinition") == []


def test_default_values_are_the_settings_defaults() -> None:
    """What the chart says when nobody says anything is what the operator does without a chart."""
    variables = operator_environment(render())

    assert read_settings(variables) == Settings()


def test_values_become_settings() -> None:
    objects = render(
        watchNamespaces=["a", "b"],
        engineImages={"cpu": "registry.local/vllm-cpu:1"},
        hub={"endpoint": "https://hub.local/x", "tokenSecret": {"name": "hub", "key": "hf"}},
        allowedHostPaths=["/mnt/nvme", "/data"],
        accelerators=[ROW],
        reconcile={"workers": 4, "apiConcurrency": 8, "resyncSeconds": 60},
        image={"repository": "registry.local/operator", "tag": "1.2", "pullPolicy": "Never"},
        logLevel="DEBUG",
        fullnameOverride="own",
    )
    settings = read_settings(operator_environment(objects))

    assert settings.watch_namespaces == ("a", "b")
    assert settings.engine_images["cpu"] == "registry.local/vllm-cpu:1"
    assert settings.hub_endpoint == "https://hub.local/x"
    assert settings.hub_token_file == "/etc/llmservice/hub/token"
    assert settings.allowed_host_paths == ("/mnt/nvme", "/data")
    assert settings.catalogue_files == ("/etc/llmservice/accelerators/accelerators.yaml",)
    assert (settings.workers, settings.api_concurrency, settings.resync_seconds) == (4, 8, 60)
    assert settings.supervisor_image == "registry.local/operator:1.2"
    assert settings.supervisor_pull_policy == "Never"
    assert settings.log_level == "DEBUG"
    assert settings.lease_name == "own"


def test_prometheus_is_told_where_it_is_named() -> None:
    objects = render(
        prometheus={
            "url": "http://prometheus.monitoring.svc:9090",
            "timeoutSeconds": 2.5,
            "tokenSecret": {"name": "prometheus"},
        }
    )
    settings = read_settings(operator_environment(objects))
    mounts = {each["name"]: each["mountPath"] for each in operator_container(objects)["volumeMounts"]}

    assert settings.prometheus_url == "http://prometheus.monitoring.svc:9090"
    assert settings.prometheus_timeout_seconds == 2.5
    assert settings.prometheus_token_file == f"{mounts['prometheus-token']}/token"


def test_a_registry_stands_in_for_that_of_each_image() -> None:
    objects = render(imageRegistry="registry.local:5000/mirror", image={"digest": f"sha256:{'0' * 64}"})
    images = read_settings(operator_environment(objects)).engine_images

    assert operator_container(objects)["image"] == (
        f"registry.local:5000/mirror/llmservice/operator@sha256:{'0' * 64}"
    )
    assert images["default"].startswith("registry.local:5000/mirror/vllm/vllm-openai:")
    assert images["cpu"].startswith("registry.local:5000/mirror/llmservice/vllm-cpu:")


def test_the_cluster_itself_is_reached_without_the_proxy() -> None:
    variables = operator_environment(render(proxy={"https": "http://proxy.local:3128", "no": ["hub.local"]}))

    assert variables["HTTPS_PROXY"] == "http://proxy.local:3128"
    assert {"$(KUBERNETES_SERVICE_HOST)", ".svc", "hub.local"} <= set(variables["NO_PROXY"].split(","))


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_a_bundle_of_authorities_is_mounted_and_named(kind: str) -> None:
    objects = render(caBundle={kind: "authorities"})
    path = operator_environment(objects)["SSL_CERT_FILE"]
    mounts = {each["name"]: each["mountPath"] for each in operator_container(objects)["volumeMounts"]}

    assert path == f"{mounts['ca-bundle']}/ca.crt"


def test_accelerators_reach_the_catalogue() -> None:
    (config,) = of_kind(render(accelerators=[ROW]), "ConfigMap")
    (row,) = load_catalogue(config["data"]["accelerators.yaml"])

    assert row.name == "nvidia-b300"
    assert row.memory_bandwidth_bytes_per_second == 8e12
    assert row.bf16_flops_per_second == 2.5e15


def test_other_accelerators_restart_the_operator() -> None:
    def checksum(row: dict[str, Any]) -> str:
        (deployment,) = of_kind(render(accelerators=[row]), "Deployment")
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/accelerators"]
        return found

    assert checksum(ROW) != checksum({**ROW, "costPerHour": 21})


def test_the_pods_identity_is_its_name() -> None:
    sources = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in operator_container(render())["env"]
        if "valueFrom" in each
    }

    assert sources == {"LLMSERVICE_NAMESPACE": "metadata.namespace", "LLMSERVICE_IDENTITY": "metadata.name"}


@pytest.mark.parametrize(("probe", "path"), [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")])
def test_probes(probe: str, path: str) -> None:
    container = operator_container(render())

    assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]


def test_one_copy_has_no_disruption_budget() -> None:
    """It would say nothing but "evict it", which holds without one."""
    assert of_kind(render(replicas=1), "PodDisruptionBudget") == []


def test_two_copies_are_evicted_one_at_a_time() -> None:
    (budget,) = of_kind(render(), "PodDisruptionBudget")

    assert budget["spec"]["maxUnavailable"] == 1


def test_copies_are_spread_as_told() -> None:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    (deployment,) = of_kind(render(topologySpreadConstraints=[rule]), "Deployment")
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert spread == rule | {"labelSelector": deployment["spec"]["selector"]}


def test_namespaced_release_has_no_cluster_scoped_object() -> None:
    objects = render(watchNamespaces=["a", "b"])

    assert {each["kind"] for each in objects} == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
    }


def test_namespaced_release_may_work_in_its_namespaces_alone() -> None:
    roles = of_kind(render(watchNamespaces=["a", "b"]), "Role")

    assert {each["metadata"]["namespace"] for each in roles} == {"a", "b", "llmservice-system"}


@pytest.mark.parametrize("namespaces", [[], ["a"]])
def test_one_config_map_of_the_operators_own_may_be_written_and_no_other(namespaces: list[str]) -> None:
    objects = render(watchNamespaces=namespaces, fullnameOverride="own")
    rules = [
        (role["metadata"].get("namespace"), rule)
        for kind in ("Role", "ClusterRole")
        for role in of_kind(objects, kind)
        for rule in role["rules"]
        if "configmaps" in rule["resources"] and "update" in rule["verbs"]
    ]
    settings = read_settings(operator_environment(objects))

    assert [(where, rule["resourceNames"]) for where, rule in rules] == [
        ("llmservice-system", [settings.calibration_name])
    ]


def test_no_role_reads_secrets() -> None:
    objects = render()
    rules = [
        rule for kind in ("Role", "ClusterRole") for role in of_kind(objects, kind) for rule in role["rules"]
    ]

    assert rules
    assert not [rule for rule in rules if {"secrets", "*"} & set(rule["resources"])]


def test_roles_and_accounts_may_be_left_to_others() -> None:
    objects = render(rbac={"create": False}, serviceAccount={"create": False, "name": "own"})
    (deployment,) = of_kind(objects, "Deployment")

    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "own"
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"} & {
        each["kind"] for each in objects
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"image": {"repo": "x"}}, "additional properties 'repo' not allowed"),
        ({"replicas": 0}, "minimum: got 0, want 1"),
        ({"replicas": "2"}, "got string, want integer"),
        ({"logLevel": "debug"}, "must be one of"),
        ({"watchNamespaces": ["Team A"]}, "does not match pattern"),
        ({"fullnameOverride": "UPPER_"}, "does not match pattern"),
        ({"nameOverride": "-x"}, "does not match pattern"),
        ({"allowedHostPaths": ["data"]}, "does not match pattern"),
        ({"hub": {"endpoint": "hub.local"}}, "does not match pattern"),
        ({"accelerators": [{"costPerHour": 1}]}, "missing property 'name'"),
        ({"accelerators": [{**ROW, "memoryGB": 1}]}, "additional properties 'memoryGB' not allowed"),
        ({"extraEnv": [{"name": "LLMSERVICE_WORKERS", "value": "1"}]}, "'not' failed"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
        ({"imageRegistry": "https://registry.example.com"}, "does not match pattern"),
        ({"image": {"digest": "latest"}}, "does not match pattern"),
        ({"prometheus": {"url": "prometheus:9090"}}, "does not match pattern"),
        ({"proxy": {"no": "a,b"}}, "got string, want array"),
        ({"metrics": {"podMonitor": {"enabled": "yes"}}}, "must be one of"),
        ({"networkPolicies": {"engine": {}}}, "additional properties 'engine' not allowed"),
        (
            {"networkPolicies": {"engines": {"enabled": True}}},
            "no namespace is known: name them in networkPolicies.engines.namespaces",
        ),
        ({"image": {"repository": "registry.example.com/operator:1.0"}}, "does not match pattern"),
        ({"priorityClassName": "high\n      hostNetwork: true"}, "does not match pattern"),
        ({"hub": {"tokenSecret": {"name": "a: b"}}}, "does not match pattern"),
        ({"imagePullSecrets": [{"name": "pull"}]}, "got object, want string"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "invalid propertyName 'app.kubernetes.io/name'"),
        (
            {"proxy": {"https": "http://a:1"}, "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://b:1"}]},
            "extraEnv sets HTTPS_PROXY, which proxy or caBundle sets too",
        ),
        (
            {"extraEnv": [{"name": "TZ", "value": "UTC", "valueFrom": {"fieldRef": {}}}]},
            "a value and a valueFrom for TZ",
        ),
        ({"hub": None}, "missing property 'hub'"),
        ({"metrics": {"service": None}}, "missing property 'service'"),
        ({"fullnameOverride": "9"}, "does not match pattern"),
        ({"prometheus": {"tokenSecret": {"name": "x"}}}, "prometheus.url is empty"),
        ({"caBundle": {"configMap": "a", "secret": "b"}}, "caBundle.configMap is a and caBundle.secret is b"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "a ServiceMonitor needs the Service",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(**values)

    assert message in str(refusal.value)


def test_a_name_that_a_service_cannot_have_is_refused() -> None:
    with pytest.raises(HelmError, match="begins with a digit, and a Service's may not: set fullnameOverride"):
        helm("template", "4you", str(CHART))


def test_the_service_of_a_long_name_has_a_name_that_dns_takes() -> None:
    (service,) = of_kind(render(fullnameOverride="a" * 63), "Service")

    assert len(service["metadata"]["name"]) <= 63


def test_names_that_yaml_reads_as_something_else_stay_names() -> None:
    objects = render(watchNamespaces=["on", "123"], priorityClassName="1e3", imagePullSecrets=["7"])
    (deployment,) = of_kind(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]

    assert {each["metadata"]["namespace"] for each in of_kind(objects, "RoleBinding")} == {
        "on",
        "123",
        "llmservice-system",
    }
    assert pod["priorityClassName"] == "1e3"
    assert pod["imagePullSecrets"] == [{"name": "7"}]
