"""Releases on a real API server: what it takes, what the operator may do, what stays."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import deploy
from devcluster.fixtures import AnyLightCluster
from integration.chart.releases import CHART, NAME, NAMESPACE, HelmError, helm, values_arguments

pytestmark = pytest.mark.light

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
CRD = "customresourcedefinition/llmservices.llmservice.dev"


def install(cluster: AnyLightCluster, name: str = NAME, namespace: str = NAMESPACE, **values: Any) -> str:
    # The CRD may stand already: other tests of the session apply it by itself.
    ownership = ("--take-ownership", "--force-conflicts")
    arguments = ("--namespace", namespace, "--create-namespace", *ownership, *values_arguments(values))
    return helm("upgrade", "--install", name, str(CHART), *arguments, cluster=cluster)


@pytest.fixture
def release(light_cluster: AnyLightCluster) -> Iterator[AnyLightCluster]:
    """A cluster with the chart's defaults installed."""
    install(light_cluster)
    yield light_cluster
    uninstall(light_cluster)


def uninstall(cluster: AnyLightCluster, name: str = NAME, namespace: str = NAMESPACE) -> None:
    helm("uninstall", name, "--namespace", namespace, "--ignore-not-found", cluster=cluster)


def reviews(
    cluster: AnyLightCluster, wishes: Sequence[tuple[str, str]], namespace: str
) -> list[tuple[str, str]]:
    """Those of the (verb, `resource.group/subresource`) pairs that the API server lets the operator do."""
    items = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": ACCOUNT,
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": attributes(verb, resource) | {"namespace": namespace},
            },
        }
        for verb, resource in wishes
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    answers = cluster.kubectl("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}', stdin=text)
    return [wish for wish, allowed in zip(wishes, answers.split(), strict=True) if allowed == "true"]


def attributes(verb: str, resource: str) -> dict[str, str]:
    """A wish as the API server takes it."""
    group_resource, _, subresource = resource.partition("/")
    name, _, group = group_resource.partition(".")
    named = name == "leases" and verb in {"get", "update"}
    return {
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": subresource,
        "name": NAME if named else "",
    }


CHILDREN = ("deployments.apps", "services", "persistentvolumeclaims", "poddisruptionbudgets.policy")
ALLOWED = [
    *((verb, "llmservices.llmservice.dev") for verb in ("get", "list", "watch")),
    ("patch", "llmservices.llmservice.dev/status"),
    *(
        (verb, resource)
        for resource in (*CHILDREN, "controllerrevisions.apps")
        for verb in ("get", "list", "watch", "create", "patch")
    ),
    ("delete", "controllerrevisions.apps"),
    *((verb, "pods") for verb in ("get", "list", "patch", "watch")),
    ("get", "configmaps"),
    *((verb, "events.events.k8s.io") for verb in ("create", "patch")),
]
OF_THE_CLUSTER = [
    (verb, resource)
    for resource in ("nodes", "scalingpolicies.llmservice.dev")
    for verb in ("get", "list", "watch")
]
LEASES = [(verb, "leases.coordination.k8s.io") for verb in ("create", "get", "update")]
FORBIDDEN = [
    *((verb, "secrets") for verb in ("get", "list", "watch", "create")),
    ("list", "configmaps"),
    ("patch", "configmaps"),
    *(("delete", resource) for resource in CHILDREN),
    *((verb, "pods") for verb in ("create", "delete")),
    ("create", "pods/exec"),
    *((verb, "llmservices.llmservice.dev") for verb in ("create", "patch", "update", "delete")),
    ("patch", "nodes"),
    *((verb, "scalingpolicies.llmservice.dev") for verb in ("create", "patch", "delete")),
    ("create", "clusterroles.rbac.authorization.k8s.io"),
]


def test_the_operator_may_do_its_work_everywhere(release: AnyLightCluster) -> None:
    assert reviews(release, ALLOWED, "team-a") == ALLOWED
    assert reviews(release, OF_THE_CLUSTER, "") == OF_THE_CLUSTER


def test_the_operator_may_do_nothing_else(release: AnyLightCluster) -> None:
    assert reviews(release, FORBIDDEN, "team-a") == []


def test_the_lease_is_held_in_the_operators_namespace_alone(release: AnyLightCluster) -> None:
    assert reviews(release, LEASES, NAMESPACE) == LEASES
    assert reviews(release, LEASES, "team-a") == []


def test_a_namespaced_operator_may_work_in_its_namespaces_alone(light_cluster: AnyLightCluster) -> None:
    for namespace in ("team-a", "team-b"):
        light_cluster.kubectl("create", "namespace", namespace)
    install(light_cluster, watchNamespaces=["team-a"])
    try:
        assert reviews(light_cluster, ALLOWED, "team-a") == ALLOWED
        assert reviews(light_cluster, ALLOWED, "team-b") == []
        assert reviews(light_cluster, OF_THE_CLUSTER, "") == []
    finally:
        uninstall(light_cluster)
        light_cluster.kubectl("delete", "namespace", "team-a", "team-b", "--wait=false")


def test_users_roles_reach_llmservices(release: AnyLightCluster) -> None:
    """Roles are added up by a controller that the light cluster has not got; their labels say where they belong."""
    labels = "jsonpath={.metadata.labels}"
    edit = json.loads(release.kubectl("get", "clusterrole", f"{NAME}-edit", "-o", labels))
    view = json.loads(release.kubectl("get", "clusterrole", f"{NAME}-view", "-o", labels))

    assert edit["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit
    assert view["rbac.authorization.k8s.io/aggregate-to-view"] == "true"


def test_the_next_three_commands_are_told(light_cluster: AnyLightCluster) -> None:
    notes = install(light_cluster)
    uninstall(light_cluster)

    assert f"kubectl -n {NAMESPACE} rollout status deployment/{NAME}" in notes
    assert "kubectl apply -f - <<END" in notes
    assert "kubectl get llmsvc -w" in notes


def test_crds_that_are_missing_are_told() -> None:
    notes = helm("install", NAME, str(CHART), "--dry-run=client", "--set", "crds.install=false")

    assert "The cluster has no CRD of LLMServices yet" in notes


def test_the_told_service_is_one(release: AnyLightCluster) -> None:
    notes = helm("get", "notes", NAME, "--namespace", NAMESPACE, cluster=release)
    lines = notes.partition("<<END\n")[2].partition("\n       END")[0].splitlines()
    manifest = "\n".join(line.removeprefix("       ") for line in lines)

    assert "qwen3-8b" in release.kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)


def test_a_second_cluster_wide_release_is_refused(release: AnyLightCluster) -> None:
    with pytest.raises(HelmError) as refusal:
        install(release, "other", "other-system", crds={"install": False})

    assert f"Deployment {NAMESPACE}/{NAME} is another llmservice-operator" in str(refusal.value)


def test_an_upgrade_of_the_release_is_not_a_second_one(release: AnyLightCluster) -> None:
    assert "has been upgraded" in install(release, replicas=3)


def test_namespaced_releases_live_side_by_side(light_cluster: AnyLightCluster) -> None:
    for team in ("team-c", "team-d"):
        light_cluster.kubectl("create", "namespace", team)
    try:
        for team in ("team-c", "team-d"):
            assert "deployed" in install(light_cluster, "ops", team, watchNamespaces=[team])
        with pytest.raises(
            HelmError, match="namespace team-c is looked after by the release ops in namespace team-c"
        ):
            install(light_cluster, "more", "team-d", watchNamespaces=["team-c"])
        assert "upgraded" in install(light_cluster, "ops", "team-c", watchNamespaces=["team-c"], replicas=1)
    finally:
        for team in ("team-c", "team-d"):
            uninstall(light_cluster, "ops", team)
        light_cluster.kubectl("delete", "namespace", "team-c", "team-d", "--wait=false")


def test_an_upgrade_brings_the_new_crd(release: AnyLightCluster, tmp_path: Path) -> None:
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    crd = copy / "files" / "llmservices.yaml"
    crd.write_text(crd.read_text().replace("    - llmsvc\n", "    - llmsvc\n    - llms\n"))
    helm("upgrade", NAME, str(copy), "--namespace", NAMESPACE, "--force-conflicts", cluster=release)

    assert "llms" in release.kubectl("get", CRD, "-o", "jsonpath={.spec.names.shortNames}")


def test_services_outlive_the_release(light_cluster: AnyLightCluster) -> None:
    install(light_cluster)
    deploy.wait_for_crd(light_cluster)
    service = {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B"}},
    }
    light_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service))
    uninstall(light_cluster)
    try:
        assert "kept" in light_cluster.kubectl("get", "llmsvc", "-n", "default")
        assert "deployed" in install(light_cluster)
    finally:
        uninstall(light_cluster)
        light_cluster.kubectl("delete", "llmsvc", "kept", "-n", "default")


def test_the_operators_pod_is_restricted(release: AnyLightCluster) -> None:
    """The API server admits it into a namespace at Pod Security `restricted`."""
    release.kubectl(
        "label", "--overwrite", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"
    )
    text = release.kubectl("get", "deployment", NAME, "-n", NAMESPACE, "-o", "json")
    template = json.loads(text)["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "operator", "namespace": NAMESPACE},
        "spec": template["spec"],
    }

    assert "created" in release.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
