"""Whose business the number of replicas is, and what goes on while the operator is away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import deploy
from e2e.conftest import Platform
from e2e.fleet import WAIT_SECONDS, Fleet, config_map

pytestmark = pytest.mark.cluster

CHILDREN = "deployment,service,poddisruptionbudget,controllerrevision,replicaset,pod"
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def fleet(platform: Platform, namespace: str) -> Iterator[Fleet]:
    """`held`: five replicas that an autoscaler will hold; `fixed`: one. Both ready."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace))
    fleet.apply("held", replicas=5, drain={"timeout": "5s"})
    fleet.apply("fixed", drain={"timeout": "5s"})
    fleet.wait_ready("held", replicas=5)
    fleet.wait_ready("fixed")
    yield fleet
    fleet.remove_all()


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
SERVICE = {"apiVersion": "llmservice.dev/v1alpha1", "kind": "LLMService"}


def autoscaler(
    namespace: str, name: str = "held", *, target: dict[str, str] = DEPLOYMENT, least: int = 1, most: int
) -> dict[str, Any]:
    """An autoscaler without metrics: it writes nothing while the replicas are within its bounds."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {**target, "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def test_an_autoscaler_that_has_not_written_yet_changes_nothing(fleet: Fleet) -> None:
    before = fleet.run("held")

    deploy.apply(fleet.cluster, autoscaler(fleet.namespace, most=10))
    fleet.kubectl("wait", "--for=jsonpath={.status.currentReplicas}=5", "hpa/held", "--timeout=60s")
    fleet.touch("held", "the autoscaler has looked")

    assert fleet.get("deployment", "held")["spec"]["replicas"] == 5
    assert fleet.run("held") == before


def test_an_autoscaler_that_writes_holds_the_replicas_and_is_followed(fleet: Fleet) -> None:
    """Three at most: the autoscaler itself takes the Deployment from five to three."""
    deploy.apply(fleet.cluster, autoscaler(fleet.namespace, most=3))

    service = fleet.wait_ready("held", replicas=3)
    fleet.touch("held", "the autoscaler has written")

    told = deploy.condition(service, "ScalingActive")
    assert fleet.get("deployment", "held")["spec"]["replicas"] == 3
    assert service["status"]["desiredReplicas"] == 3
    assert (told["status"], told["reason"]) == ("False", "ReplicasOwnedByOther")
    assert "kube-controller-manager" in told["message"]


def test_kubectl_scale_scales_the_service_and_leaves_what_runs(fleet: Fleet) -> None:
    before = fleet.run("fixed")

    fleet.kubectl("scale", "llmservice", "fixed", "--replicas=2")
    fleet.wait_ready("fixed", replicas=2)
    after = fleet.run("fixed")

    assert set(before.pods) < set(after.pods)
    assert after.templates == before.templates


def test_an_autoscaler_on_the_service_itself_scales_it_and_nobody_else_holds_the_replicas(
    fleet: Fleet,
) -> None:
    """Three at least: the autoscaler takes the service from two to three, and the operator its Deployment."""
    deploy.apply(fleet.cluster, autoscaler(fleet.namespace, "fixed", target=SERVICE, least=3, most=5))

    service = fleet.wait_ready("fixed", replicas=3)
    fleet.kubectl("delete", "hpa", "fixed")

    assert service["spec"]["replicas"] == 3
    assert deploy.condition(service, "ScalingActive") == {}


def test_kubectl_scale_to_zero_leaves_no_pod_and_is_ready(fleet: Fleet) -> None:
    fleet.kubectl("scale", "llmservice", "fixed", "--replicas=0")

    service = fleet.wait(
        "fixed",
        lambda each: (
            each["status"]["replicas"] == 0
            and deploy.condition(each, "Ready").get("reason") == "ScaledToZero"
        ),
    )

    assert deploy.condition(service, "Ready")["status"] == "True"


def test_engines_serve_and_are_deleted_while_the_operator_is_away(fleet: Fleet) -> None:
    before = fleet.run("held")

    with operator_away(fleet):
        answer, during = fleet.ask("held"), fleet.run("held")
        fleet.kubectl("delete", "hpa", "held", "--ignore-not-found")
        fleet.kubectl("delete", "llmservice", "held", "--wait=true")
        selector = "llmservice.dev/service=held"
        fleet.kubectl("wait", "--for=delete", "pod", "-l", selector, "--timeout=110s")
        fleet.kubectl("wait", "--for=delete", CHILDREN, "-l", selector, "--timeout=60s")
        left = json.loads(fleet.kubectl("get", CHILDREN, "-l", selector, "-o", "json"))["items"]

    assert answer == ANSWER
    assert during == before
    assert left == []


@contextmanager
def operator_away(fleet: Fleet) -> Iterator[None]:
    """No operator runs; it is back in the end."""
    cluster, target = fleet.cluster, f"deployment/{deploy.RELEASE}"
    operators = ("-n", deploy.OPERATOR_NAMESPACE)
    before = cluster.kubectl("get", target, *operators, "-o", "jsonpath={.spec.replicas}")
    cluster.kubectl("scale", target, *operators, "--replicas=0")
    selector = f"app.kubernetes.io/instance={deploy.RELEASE}"
    cluster.kubectl("wait", "--for=delete", "pod", "-l", selector, *operators, "--timeout=60s")
    try:
        yield
    finally:
        cluster.kubectl("scale", target, *operators, f"--replicas={before}")
        cluster.kubectl(
            "rollout", "status", target, *operators, "--timeout=90s", timeout_seconds=WAIT_SECONDS
        )
