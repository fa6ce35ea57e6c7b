"""The store: newest wins, late events change nothing, copies are reduced and packed."""

from typing import Any

import pytest

from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.reduce import ServiceNote
from llmservice_operator.controller.store import Store

KEY = Key("ns", "chat")


def obj(
    kind: str = "Deployment",
    *,
    name: str = "chat",
    uid: str = "u1",
    version: int = 1,
    service: str | None = "chat",
    **fields: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version)}
    if service:
        metadata["labels"] = {"llmservice.dev/service": service}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


@pytest.fixture
def store() -> Store:
    return Store()


def test_an_object_comes_back_as_it_was_put(store: Store) -> None:
    put = obj(spec={"replicas": 0, "text": "ü" * 5000})

    store.put("Deployment", put)

    assert store.get("Deployment", "ns", "chat") == put


def test_what_was_read_can_be_changed_without_changing_the_store(store: Store) -> None:
    store.put("Deployment", obj(spec={"replicas": 1}))
    read: Any = store.get("Deployment", "ns", "chat")
    read["spec"]["replicas"] = 5

    again: Any = store.get("Deployment", "ns", "chat")

    assert again["spec"]["replicas"] == 1


def test_an_older_event_does_not_replace_our_own_newer_write(store: Store) -> None:
    store.put("Deployment", obj(version=7, spec={"replicas": 2}))

    news = store.put("Deployment", obj(version=5, spec={"replicas": 1}))

    assert (news, store.get("Deployment", "ns", "chat")) == (False, obj(version=7, spec={"replicas": 2}))


def test_versions_compare_as_numbers(store: Store) -> None:
    store.put("Deployment", obj(version=99))

    assert store.put("Deployment", obj(version=100, spec={"replicas": 1}))


def test_the_echo_of_our_own_write_is_no_news(store: Store) -> None:
    store.put("Deployment", obj(version=7))

    assert not store.put("Deployment", obj(version=7))


def test_a_new_version_that_says_the_same_is_no_news_but_is_kept(store: Store) -> None:
    store.put("Deployment", obj(version=7, spec={"replicas": 1}))

    news = store.put("Deployment", obj(version=8, spec={"replicas": 1}))

    assert (news, store.versions("Deployment")) == (False, {("ns", "chat"): ("u1", 8)})


def test_an_object_made_anew_under_the_same_name_replaces_the_old_one(store: Store) -> None:
    store.put("Deployment", obj(uid="u1", version=7))

    assert store.put("Deployment", obj(uid="u2", version=9))


def test_the_late_deletion_of_the_old_one_does_not_drop_the_new_one(store: Store) -> None:
    store.put("Deployment", obj(uid="u2", version=9))

    store.drop("Deployment", obj(uid="u1", version=8))

    assert store.has("Deployment", "ns", "chat")


def test_a_late_event_does_not_bring_a_deleted_object_back(store: Store) -> None:
    store.put("Deployment", obj(version=7))
    store.drop("Deployment", obj(version=9))

    news = store.put("Deployment", obj(version=8))

    assert (news, store.has("Deployment", "ns", "chat")) == (False, False)


def test_children_are_found_by_the_service_label(store: Store) -> None:
    store.put("Pod", obj("Pod", name="chat-1", uid="p1"))
    store.put("Pod", obj("Pod", name="chat-0", uid="p0"))
    store.put("Pod", obj("Pod", name="other-0", uid="p2", service="other"))

    assert [pod["metadata"]["name"] for pod in store.owned("Pod", KEY)] == ["chat-0", "chat-1"]


def test_a_child_whose_label_changed_belongs_to_the_other_service(store: Store) -> None:
    store.put("Pod", obj("Pod", name="p", version=1))
    store.put("Pod", obj("Pod", name="p", version=2, service="other"))

    assert (store.owned("Pod", KEY), len(store.owned("Pod", Key("ns", "other")))) == ((), 1)


def test_a_dropped_child_is_no_longer_owned(store: Store) -> None:
    store.put("Pod", obj("Pod", name="p"))
    store.drop("Pod", obj("Pod", name="p", version=2))

    assert store.owned("Pod", KEY) == ()


def test_a_sweep_drops_what_is_not_listed(store: Store) -> None:
    store.put("Pod", obj("Pod", name="gone", uid="u1"))
    store.put("Pod", obj("Pod", name="kept", uid="u2"))

    concerned = store.drop_missing("Pod", store.versions("Pod"), ["u2"])

    assert (concerned, store.count("Pod"), store.has("Pod", "ns", "kept")) == ((KEY,), 1, True)


def test_a_sweep_leaves_what_came_after_its_list_began(store: Store) -> None:
    before = store.versions("Pod")
    store.put("Pod", obj("Pod", name="new", uid="u9"))

    store.drop_missing("Pod", before, [])

    assert store.has("Pod", "ns", "new")


def test_a_sweep_leaves_what_changed_after_its_list_began(store: Store) -> None:
    store.put("Pod", obj("Pod", name="p", version=1, uid="u1"))
    before = store.versions("Pod")
    store.put("Pod", obj("Pod", name="p", version=5, uid="u1", spec={"nodeName": "n"}))

    store.drop_missing("Pod", before, [])

    assert store.has("Pod", "ns", "p")


def managed(manager: str, fields: dict[str, Any], operation: str = "Apply") -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def kept_managers(store: Store, entries: list[dict[str, Any]]) -> list[Any]:
    put = obj()
    put["metadata"]["managedFields"] = entries
    store.put("Deployment", put)
    read: Any = store.get("Deployment", "ns", "chat")
    return [(e["manager"], e["fieldsV1"]) for e in read["metadata"].get("managedFields", [])]


def test_our_own_managed_fields_are_kept_whole(store: Store) -> None:
    fields = {"f:spec": {"f:template": {}}}

    assert kept_managers(store, [managed("llmservice-operator", fields)]) == [("llmservice-operator", fields)]


def test_of_others_only_the_ownership_of_replicas_is_kept(store: Store) -> None:
    hpa = managed("kube-controller-manager", {"f:spec": {"f:replicas": {}, "f:paused": {}}}, "Update")
    kubectl = managed("kubectl", {"f:metadata": {"f:labels": {}}}, "Update")

    assert kept_managers(store, [hpa, kubectl]) == [
        ("kube-controller-manager", {"f:spec": {"f:replicas": {}}})
    ]


def test_of_a_pod_status_and_images_are_kept_and_the_rest_of_its_spec_is_not(store: Store) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "engine", "image": "i", "env": [{"name": "A"}]}]}
    store.put("Pod", obj("Pod", spec=spec, status={"phase": "Running"}))

    read: Any = store.get("Pod", "ns", "chat")

    assert read["spec"] == {"nodeName": "n1", "containers": [{"name": "engine", "image": "i"}]}
    assert read["status"] == {"phase": "Running"}


def test_a_nodes_heartbeat_is_no_news(store: Store) -> None:
    def node(version: int, beat: str) -> dict[str, Any]:
        return {
            "metadata": {
                "name": "n1",
                "uid": "n",
                "resourceVersion": str(version),
                "labels": {"gpu": "h200"},
            },
            "status": {
                "allocatable": {"nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "lastHeartbeatTime": beat}],
            },
        }

    store.put("Node", node(1, "10:00"))

    assert not store.put("Node", node(2, "10:05"))


def test_nodes_tell_labels_and_allocatable(store: Store) -> None:
    store.put(
        "Node",
        {
            "metadata": {"name": "n1", "uid": "n", "resourceVersion": "1", "labels": {"gpu": "h200"}},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "images": [{"names": ["x"]}]},
        },
    )

    (node,) = store.nodes()

    assert node["metadata"]["labels"] == {"gpu": "h200"}
    assert node["status"] == {"allocatable": {"nvidia.com/gpu": "8"}}


def gpu_pod(name: str, amount: str = "2", **status: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": amount, "memory": "8Gi", "cpu": "2"}
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "engine", "resources": {"limits": limits, "requests": limits}}],
    }
    return obj("Pod", name=name, uid=name, spec=spec, status={"phase": "Running", **status})


def test_devices_that_pods_hold_are_counted_by_node(store: Store) -> None:
    store.put("Pod", gpu_pod("a"))
    store.put("Pod", gpu_pod("b", "1"))

    assert store.claimed() == {"n1": {"nvidia.com/gpu": 3}}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_no_device(store: Store, phase: str) -> None:
    store.put("Pod", gpu_pod("a", phase=phase))

    assert store.claimed() == {}


def test_a_pod_that_is_gone_holds_no_device(store: Store) -> None:
    store.put("Pod", gpu_pod("a"))
    store.drop("Pod", gpu_pod("a"))

    assert store.claimed() == {}


def test_a_service_s_state_is_told_with_the_accelerators_that_its_pods_hold(store: Store) -> None:
    plan = {"accelerator": "nvidia-h200", "acceleratorsPerReplica": 2, "resourceName": "nvidia.com/gpu"}
    status = {"plan": plan, "replicas": 3, "readyReplicas": 1, "desiredReplicas": 4}

    store.put("LLMService", obj("LLMService", service=None, status=status))

    (state,) = store.service_states()
    assert (state.accelerator, state.accelerators) == ("nvidia-h200", 6)
    assert (state.desired, state.ready) == (4, 1)


def test_services_are_noted_with_their_ready_condition_also_from_our_own_writes(store: Store) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
    store.put("LLMService", obj("LLMService", service=None))
    store.put("LLMService", obj("LLMService", service=None, version=2, status=ready))
    store.put("LLMService", obj("LLMService", name="new", uid="u2", service=None))
    store.put("LLMService", obj("LLMService", name="gone", uid="u3", service=None))
    store.drop("LLMService", obj("LLMService", name="gone", uid="u3", service=None, version=3))

    assert dict(store.notes()) == {
        KEY: ServiceNote("True", "Ready", waits_for_node=False, conditions=(("Ready", "True", "Ready"),)),
        Key("ns", "new"): ServiceNote("Unknown", "New", waits_for_node=False),
    }


def test_plan_and_report_of_a_service_are_noted_until_it_goes(store: Store) -> None:
    rows = [
        {"name": "weights", "plannedBytes": 10, "actualBytes": 12},
        {"name": "kv_cache", "actualBytes": 7},
    ]
    service = obj("LLMService", service=None, status={"engine": {"memory": rows}})
    store.put("LLMService", service)
    noted = dict(store.notes())[KEY].memory
    store.drop("LLMService", obj("LLMService", service=None, version=2))

    assert noted == (("weights", 10, 12), ("kv_cache", None, 7))
    assert dict(store.notes()) == {}
