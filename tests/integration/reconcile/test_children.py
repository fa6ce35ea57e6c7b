"""Children on a real API server: put back, brought back, left alone."""

import time
from typing import Any

import pytest

import factories as make

from .played import MERGE, Played, condition_of, revision_of

pytestmark = pytest.mark.light


def settled(world: Played, name: str = "chat", **fields: Any) -> dict[str, Any]:
    """The Deployment of a service whose children all stand."""
    world.serve(name, **fields)
    world.wait("PodDisruptionBudget", name, lambda _: True)
    world.wait("Service", name, lambda _: True)
    deployment = world.deployment_at(name)
    world.wait_condition(name, "Planned", "True")
    return deployment


def test_hand_edit_of_our_field_is_put_back(world: Played) -> None:
    settled(world)
    edit = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}

    world.patch("Deployment", "chat", edit)

    world.wait(
        "Deployment",
        "chat",
        lambda obj: (
            obj["metadata"]["generation"] > 2
            and obj["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 1
        ),
    )


def test_fields_of_others_are_left_alone(world: Played) -> None:
    settled(world)

    stamp = {
        "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}
    }
    world.patch("Deployment", "chat", stamp, manager="kubectl-rollout")
    world.patch("Service", "chat", {"metadata": {"labels": {"team": "a"}}})
    world.set_spec("chat", service={"port": 9000})
    service = world.wait("Service", "chat", lambda obj: obj["spec"]["ports"][0]["port"] == 9000)

    deployment = world.get("Deployment", "chat")
    assert deployment is not None
    template = deployment["spec"]["template"]["metadata"]
    assert template["annotations"]["kubectl.kubernetes.io/restartedAt"] == "now"
    assert service["metadata"]["labels"]["team"] == "a"


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
def test_deleted_child_comes_back(world: Played, kind: str) -> None:
    settled(world)
    before = world.get(kind, "chat")
    assert before is not None

    world.delete(kind, "chat")

    world.wait(kind, "chat", lambda obj: obj["metadata"]["uid"] != before["metadata"]["uid"])


def test_deleted_revision_comes_back_and_rolls_nothing(world: Played) -> None:
    deployment = settled(world)
    name = revision_of(deployment)
    before = world.get("ControllerRevision", name)
    assert before is not None

    world.delete("ControllerRevision", name)

    world.wait("ControllerRevision", name, lambda obj: obj["metadata"]["uid"] != before["metadata"]["uid"])
    after = world.get("Deployment", "chat")
    assert after is not None
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Service", {"ports": [{"port": 80}], "selector": {"llmservice.dev/service": "chat"}}),
        ("PodDisruptionBudget", {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}),
        (
            "Deployment",
            {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "x", "image": "x"}]},
                },
            },
        ),
    ],
)
def test_stranger_of_the_same_name_is_told_and_not_touched(
    world: Played, kind: str, spec: dict[str, Any]
) -> None:
    version = {"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}.get(kind, "v1")
    stranger = world.create(
        kind, {"apiVersion": version, "kind": kind, "metadata": {"name": "chat"}, "spec": spec}
    )

    world.serve("chat")

    stalled = world.wait_condition("chat", "Stalled", "True", "NameConflict")
    after = world.get(kind, "chat")
    assert after is not None
    assert f"delete {kind.lower()} chat" in stalled["message"]
    assert after["metadata"]["resourceVersion"] == stranger["metadata"]["resourceVersion"]


def test_name_that_becomes_free_is_taken(world: Played) -> None:
    world.create(
        "PodDisruptionBudget",
        {
            "metadata": {"name": "chat"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}},
        },
    )
    world.serve("chat")
    world.wait_condition("chat", "Stalled", "True", "NameConflict")

    world.delete("PodDisruptionBudget", "chat")
    world.annotate("chat", note="look again")

    world.wait_condition("chat", "Stalled", "False")


def test_hpa_that_has_not_written_yet_finds_five_replicas(world: Played) -> None:
    settled(world, replicas=5)
    world.add_pod("chat", "chat-1", make.running_pod(ready=True)["status"])
    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 5)
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat"},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        },
    }
    path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers"
    world.api.request("POST", path, hpa)

    world.set_spec("chat", service={"port": 9000})
    world.wait("Service", "chat", lambda obj: obj["spec"]["ports"][0]["port"] == 9000)

    deployment = world.get("Deployment", "chat")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 5


def test_replicas_that_another_manager_writes_are_its_own_and_it_is_named(world: Played) -> None:
    settled(world, replicas=1)

    path = world.path("Deployment", "chat") + "/scale?fieldManager=kube-controller-manager"
    world.api.request("PATCH", path, {"spec": {"replicas": 4}}, content_type=MERGE)
    scaling = world.wait_condition("chat", "ScalingActive", "False", "ReplicasOwnedByOther")
    world.set_spec("chat", service={"port": 9000})
    world.wait("Service", "chat", lambda obj: obj["spec"]["ports"][0]["port"] == 9000)

    deployment = world.get("Deployment", "chat")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 4
    assert "kube-controller-manager" in scaling["message"]


def test_scaling_bounds_are_held_and_what_lies_between_is_kept(world: Played) -> None:
    settled(world, scaling={"minReplicas": 2, "maxReplicas": 4})
    world.add_pod("chat", "chat-1", make.running_pod(ready=True)["status"])
    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 2)

    world.set_spec("chat", scaling={"minReplicas": 3, "maxReplicas": 4})

    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 3)


def test_zero_replicas_are_ready(world: Played) -> None:
    settled(world, replicas=0)

    world.wait_condition("chat", "Ready", "True", "ScaledToZero")


def test_scale_subresource_sets_replicas_and_reads_them(world: Played) -> None:
    settled(world, replicas=0)

    path = world.path("LLMService", "chat") + "/scale"
    world.api.request("PATCH", path, {"spec": {"replicas": 1}}, content_type=MERGE)

    world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] == 1)
    assert world.api.request("GET", path)["status"]["selector"] == "llmservice.dev/service=chat"


def test_cache_claim_is_made_grown_and_outlives_a_change_of_the_cache(world: Played) -> None:
    model = {"uri": "pvc://models/tiny", "configMap": "tiny"}
    created = {"create": {"size": "10Gi", "storageClassName": "fast"}}
    settled(world, model={**model, "cache": created})
    world.wait("PersistentVolumeClaim", "chat-cache", lambda _: True)

    world.set_spec("chat", model={"cache": {"create": None, "emptyDir": {"sizeLimit": "10Gi"}}})
    deployment = world.wait(
        "Deployment",
        "chat",
        lambda obj: all(
            (each.get("persistentVolumeClaim") or {}).get("claimName") != "chat-cache"
            for each in obj["spec"]["template"]["spec"]["volumes"]
        ),
    )

    claim = world.get("PersistentVolumeClaim", "chat-cache")
    assert deployment is not None
    assert claim is not None
    assert "deletionTimestamp" not in claim["metadata"]


def test_every_child_names_the_service_as_its_owner(world: Played) -> None:
    settled(world)
    service = world.get("LLMService", "chat")
    assert service is not None

    owners = {
        kind: [(ref["uid"], ref["controller"]) for ref in obj["metadata"]["ownerReferences"]]
        for kind in ("Deployment", "Service", "PodDisruptionBudget", "ControllerRevision")
        for obj in world.items(kind)
    }

    ours = [(service["metadata"]["uid"], True)]
    assert list(owners.values()) == [ours, ours, ours, ours]


def test_refused_pods_are_told_in_the_words_of_the_api_server(world: Played) -> None:
    settled(world)
    words = 'pods "chat-7d9-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    now = make.at(0)
    refused = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": words,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }

    world.patch("Deployment", "chat", {"status": {"conditions": [refused]}}, subresource="status")

    stalled = world.wait_condition("chat", "Stalled", "True", "PodRefused")
    assert "exceeded quota: gpus" in stalled["message"]
    assert "chat-7d9-x" not in stalled["message"]


def test_events_tell_what_happened(world: Played) -> None:
    settled(world)

    def planned(event: dict[str, Any]) -> bool:
        return event["reason"] == "Planned" and event["regarding"]["name"] == "chat"

    assert any(map(planned, world.api.events(world.path("Event"), deadline=time.monotonic() + 10)))


def test_service_of_a_new_uid_takes_over_nothing_of_the_old_one(world: Played) -> None:
    """The old one's children are for the garbage collector, which does not run here."""
    settled(world)
    world.delete("LLMService", "chat")

    world.serve("chat")

    service = world.wait_condition("chat", "Progressing", "False", "NameConflict")
    assert "LLMService chat" in service["message"]
    old = world.get("Deployment", "chat")
    assert old is not None
    assert condition_of(old, "Available") is None
