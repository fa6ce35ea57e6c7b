"""The objects that a service owns."""

import pytest

from llmservice_operator.resources.children import (
    render_cache_claim,
    render_deployment,
    render_pdb,
    render_service,
)
from llmservice_operator.resources.revision import pack
from llmservice_operator.resources.types import Manifest
from unit.resources.samples import IDENTITY, spec
from unit.resources.test_revision import revision

CACHED = {"uri": "hf://a/b", "cache": {"create": {"size": "50Gi"}}}
CHILDREN = [
    render_deployment(IDENTITY, revision(), 2),
    render_service(IDENTITY, spec()),
    render_pdb(IDENTITY),
    render_cache_claim(IDENTITY, spec(model=CACHED)) or {},
    pack(IDENTITY, revision()),
]


@pytest.mark.parametrize("child", CHILDREN, ids=lambda child: child["kind"])
def test_children_go_with_their_service(child: Manifest) -> None:
    (owner,) = child["metadata"]["ownerReferences"]

    assert owner == {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "name": "qwen3-8b",
        "uid": "2b1f6a5e-0000-4000-8000-000000000001",
        "controller": True,
        "blockOwnerDeletion": True,
    }


@pytest.mark.parametrize("child", CHILDREN, ids=lambda child: child["kind"])
def test_children_are_found_by_label(child: Manifest) -> None:
    labels = child["metadata"]["labels"]

    assert labels["llmservice.dev/service"] == "qwen3-8b"
    assert labels["app.kubernetes.io/managed-by"] == "llmservice-operator"


@pytest.mark.parametrize("child", CHILDREN[:3], ids=lambda child: child["kind"])
def test_children_are_named_after_the_service(child: Manifest) -> None:
    assert (child["metadata"]["name"], child["metadata"]["namespace"]) == ("qwen3-8b", "team-a")


def test_a_roll_asks_for_no_accelerator_that_is_not_there() -> None:
    strategy = CHILDREN[0]["spec"]["strategy"]

    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def test_a_long_load_is_no_failed_roll() -> None:
    assert CHILDREN[0]["spec"]["progressDeadlineSeconds"] == 24 * 3600


def test_pods_tell_their_revision() -> None:
    metadata = CHILDREN[0]["spec"]["template"]["metadata"]

    assert metadata["labels"]["llmservice.dev/revision"] == revision().name
    assert metadata["annotations"]["llmservice.dev/revision"] == revision().name


def test_the_revision_is_no_part_of_the_selector() -> None:
    """A Deployment's selector can never be changed."""
    assert CHILDREN[0]["spec"]["selector"] == {"matchLabels": {"llmservice.dev/service": "qwen3-8b"}}


def test_stamping_leaves_the_stored_template_alone() -> None:
    stored = revision()
    render_deployment(IDENTITY, stored, 1)

    assert "llmservice.dev/revision" not in stored.template["metadata"]["labels"]


@pytest.mark.parametrize("replicas", [0, 3])
def test_replicas_are_written(replicas: int) -> None:
    assert render_deployment(IDENTITY, revision(), replicas)["spec"]["replicas"] == replicas


def test_replicas_of_another_manager_are_left_out() -> None:
    assert "replicas" not in render_deployment(IDENTITY, revision(), None)["spec"]


def test_a_rollout_restart_survives() -> None:
    """`kubectl rollout restart` owns its annotation on the template; ours does not name it."""
    assert (
        "kubectl.kubernetes.io/restartedAt" not in CHILDREN[0]["spec"]["template"]["metadata"]["annotations"]
    )


def test_one_replica_at_a_time_may_be_evicted_and_broken_ones_always() -> None:
    assert render_pdb(IDENTITY)["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"llmservice.dev/service": "qwen3-8b"}},
    }


def test_the_service_goes_by_port_name() -> None:
    assert render_service(IDENTITY, spec(service={"port": 80}))["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    ]


def test_the_service_is_the_users_to_shape() -> None:
    wanted = {"type": "LoadBalancer", "annotations": {"lb": "internal"}, "labels": {"team": "a"}}
    service = render_service(IDENTITY, spec(service=wanted))

    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"lb": "internal"}
    assert service["metadata"]["labels"]["team"] == "a"


def test_a_cache_claim_is_made() -> None:
    create = {"size": "50Gi", "storageClassName": "fast", "accessMode": "ReadWriteMany"}
    claim = render_cache_claim(IDENTITY, spec(model={"uri": "hf://a/b", "cache": {"create": create}}))

    assert claim is not None
    assert claim["metadata"]["name"] == "qwen3-8b-cache"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "50Gi"}},
        "storageClassName": "fast",
    }


@pytest.mark.parametrize("cache", [None, {"claim": "own"}, {"emptyDir": {"sizeLimit": "1Gi"}}])
def test_other_caches_need_no_claim(cache: Manifest | None) -> None:
    assert render_cache_claim(IDENTITY, spec(model={"uri": "hf://a/b", "cache": cache})) is None
