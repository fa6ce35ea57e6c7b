"""The same assertions on the API server in memory and on the real one, through the operator's own client."""

import random
import uuid
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

from devcluster.api import Api
from devcluster.light import LightCluster
from fakes.kube import FakeKube
from llmservice_operator.clients.kube import JSON_PATCH, KINDS, ConflictError, KubeClient, NotFoundError
from llmservice_operator.clients.kube_connection import KubeConnection
from llmservice_operator.clients.kube_rest import RestKubeClient
from llmservice_operator.clock import SystemClock
from llmservice_operator.controller.managers import turn_over

MERGE = "application/merge-patch+json"
Object = dict[str, Any]


class Somebody(Protocol):
    """Another client of the same API server."""

    async def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object: ...


class RealSomebody:
    """Patches as field manager `somebody`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object:
        path = f"{KINDS[kind].path(namespace, name)}?fieldManager=somebody"
        patched: Object = self._api.request("PATCH", path, body, content_type=MERGE)
        return patched


class Server:
    """The client under test, somebody else's, and a namespace."""

    def __init__(self, kube: KubeClient, somebody: Somebody, namespace: str) -> None:
        self.kube = kube
        self.somebody = somebody
        self.namespace = namespace

    def deployment(self, *, image: str = "engine:1", replicas: int = 0, **labels: str) -> Object:
        selector = {"llmservice.dev/service": "chat"}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": self.namespace, "name": "chat", "labels": {**selector, **labels}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": {"labels": selector},
                    "spec": {
                        "containers": [
                            {"name": "engine", "image": image, "env": [{"name": "A", "value": "1"}]}
                        ]
                    },
                },
            },
        }

    def service(self, **spec: Any) -> Object:
        return {
            "apiVersion": "llmservice.dev/v1alpha1",
            "kind": "LLMService",
            "metadata": {"namespace": self.namespace, "name": "chat"},
            "spec": {"model": {"uri": "hf://org/model"}, "replicas": 1, **spec},
        }

    def lease(self, holder: str) -> Object:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self.namespace, "name": "lease"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }

    async def read(self, kind: str, name: str = "chat") -> Object:
        found = await self.kube.get(kind, self.namespace, name)
        assert found is not None
        return found


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.light)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    namespace = f"c-{uuid.uuid4().hex[:8]}"
    if request.param == "in memory":
        kube = FakeKube()
        yield Server(kube, kube.as_manager("somebody"), namespace)
        return
    api: Api = request.getfixturevalue("api")
    light: LightCluster = request.getfixturevalue("light_cluster")
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    connection = await KubeConnection.open(kubeconfig=str(light.kubeconfig), in_cluster=False)
    client = RestKubeClient(connection, clock=SystemClock(), random=random.random)
    yield Server(client, RealSomebody(api), namespace)
    await client.close()


async def test_apply_creates(server: Server) -> None:
    created = await server.kube.apply(server.deployment())

    assert created["metadata"]["generation"] == 1
    assert created["metadata"]["uid"]
    assert (await server.read("Deployment"))["spec"]["replicas"] == 0


async def test_applying_the_same_again_changes_nothing(server: Server) -> None:
    first = await server.kube.apply(server.deployment())

    again = await server.kube.apply(server.deployment())

    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_change_of_the_spec_counts_a_generation(server: Server) -> None:
    await server.kube.apply(server.deployment())

    changed = await server.kube.apply(server.deployment(replicas=3))

    assert (changed["metadata"]["generation"], changed["spec"]["replicas"]) == (2, 3)


async def test_a_change_of_labels_counts_a_version_and_no_generation(server: Server) -> None:
    first = await server.kube.apply(server.deployment())

    changed = await server.kube.apply(server.deployment(team="a"))

    assert changed["metadata"]["generation"] == 1
    assert int(changed["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_a_field_that_is_no_longer_applied_is_removed(server: Server) -> None:
    await server.kube.apply(server.deployment(team="a"))

    changed = await server.kube.apply(server.deployment())

    assert changed["metadata"]["labels"] == {"llmservice.dev/service": "chat"}


async def test_an_item_of_a_keyed_list_that_is_no_longer_applied_is_removed(server: Server) -> None:
    await server.kube.apply(server.deployment())
    without = server.deployment()
    without["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "B", "value": "2"}]

    changed = await server.kube.apply(without)

    assert changed["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "B", "value": "2"}]


async def test_what_somebody_else_added_stays(server: Server) -> None:
    await server.kube.apply(server.deployment())
    note = {"metadata": {"annotations": {"note": "mine"}}}
    await server.somebody.patch("Deployment", server.namespace, "chat", note)

    changed = await server.kube.apply(server.deployment(replicas=2))

    assert changed["metadata"]["annotations"]["note"] == "mine"


async def test_without_force_a_field_of_somebody_elses_is_a_conflict(server: Server) -> None:
    await server.kube.apply(server.deployment())
    await server.somebody.patch("Deployment", server.namespace, "chat", {"spec": {"replicas": 5}})

    with pytest.raises(ConflictError, match="replicas"):
        await server.kube.apply(server.deployment(), force=False)

    assert (await server.read("Deployment"))["spec"]["replicas"] == 5


async def test_with_force_the_field_is_taken_back(server: Server) -> None:
    await server.kube.apply(server.deployment())
    await server.somebody.patch("Deployment", server.namespace, "chat", {"spec": {"replicas": 5}})

    changed = await server.kube.apply(server.deployment())

    assert changed["spec"]["replicas"] == 0


async def test_without_force_an_equal_value_is_no_conflict(server: Server) -> None:
    await server.kube.apply(server.deployment())
    await server.somebody.patch("Deployment", server.namespace, "chat", {"spec": {"replicas": 0}})

    await server.kube.apply(server.deployment(), force=False)


async def test_managed_fields_name_us_and_our_fields(server: Server) -> None:
    created = await server.kube.apply(server.deployment())

    (entry,) = created["metadata"]["managedFields"]
    containers = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert (entry["manager"], entry["operation"]) == ("llmservice-operator", "Apply")
    assert "f:replicas" in entry["fieldsV1"]["f:spec"]
    assert "f:image" in containers['k:{"name":"engine"}']


async def test_managed_fields_name_who_else_set_replicas(server: Server) -> None:
    await server.kube.apply(server.deployment())

    changed = await server.somebody.patch("Deployment", server.namespace, "chat", {"spec": {"replicas": 5}})

    owners = [
        entry["manager"]
        for entry in changed["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert owners == ["somebody"]


async def test_the_status_is_apart_from_all_else(server: Server) -> None:
    await server.kube.apply(server.service())
    status = {"replicas": 1, "observedGeneration": 1}

    changed = await server.kube.apply_status({**server.service(), "status": status})

    assert changed["status"]["observedGeneration"] == 1
    assert changed["metadata"]["generation"] == 1


async def test_applying_the_object_leaves_its_status(server: Server) -> None:
    await server.kube.apply(server.service())
    await server.kube.apply_status({**server.service(), "status": {"observedGeneration": 1}})

    changed = await server.kube.apply(server.service(replicas=4))

    assert changed["status"]["observedGeneration"] == 1


async def test_a_status_field_that_is_no_longer_applied_is_removed(server: Server) -> None:
    await server.kube.apply(server.service())
    await server.kube.apply_status({**server.service(), "status": {"address": "http://x", "replicas": 1}})

    changed = await server.kube.apply_status({**server.service(), "status": {"replicas": 1}})

    assert "address" not in changed["status"]


async def test_the_status_of_nothing_is_not_found(server: Server) -> None:
    with pytest.raises(NotFoundError):
        await server.kube.apply_status({**server.service(), "status": {"replicas": 1}})


async def test_a_taken_name_is_a_conflict(server: Server) -> None:
    await server.kube.create(server.lease("a"))

    with pytest.raises(ConflictError):
        await server.kube.create(server.lease("b"))


async def test_replacing_with_the_current_version_works(server: Server) -> None:
    lease = await server.kube.create(server.lease("a"))

    await server.kube.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "b"}})

    assert (await server.read("Lease", "lease"))["spec"]["holderIdentity"] == "b"


async def test_replacing_with_an_old_version_is_a_conflict(server: Server) -> None:
    lease = await server.kube.create(server.lease("a"))
    await server.kube.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "b"}})

    with pytest.raises(ConflictError):
        await server.kube.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "c"}})


async def test_a_merge_patch_sets_and_removes(server: Server) -> None:
    await server.kube.apply(server.deployment(team="a"))

    changed = await server.kube.patch(
        "Deployment", server.namespace, "chat", {"metadata": {"labels": {"team": None, "tier": "1"}}}
    )

    assert changed["metadata"]["labels"] == {"llmservice.dev/service": "chat", "tier": "1"}


async def test_a_patch_of_nothing_is_not_found(server: Server) -> None:
    with pytest.raises(NotFoundError):
        await server.kube.patch("Deployment", server.namespace, "none", {"metadata": {"labels": {"a": "b"}}})


async def test_what_was_posted_and_turned_over_is_pruned_by_our_apply(server: Server) -> None:
    created = await server.kube.create(server.deployment(team="a"))
    await server.kube.patch(
        "Deployment", server.namespace, "chat", turn_over(created), content_type=JSON_PATCH
    )

    applied = await server.kube.apply(server.deployment())

    managers = [(entry["manager"], entry["operation"]) for entry in applied["metadata"]["managedFields"]]
    assert managers == [("llmservice-operator", "Apply")]
    assert applied["metadata"]["labels"] == {"llmservice.dev/service": "chat"}
    # The rest is as it was: what was taken off by the apply, the API server put back by default.
    assert applied["metadata"]["generation"] == 1
    assert applied["spec"] == created["spec"]


async def test_an_object_that_has_changed_is_not_turned_over(server: Server) -> None:
    created = await server.kube.create(server.deployment())
    await server.somebody.patch("Deployment", server.namespace, "chat", {"spec": {"replicas": 5}})

    with pytest.raises(ConflictError):
        await server.kube.patch(
            "Deployment", server.namespace, "chat", turn_over(created), content_type=JSON_PATCH
        )


async def test_a_get_of_nothing_is_none(server: Server) -> None:
    assert await server.kube.get("Deployment", server.namespace, "none") is None


async def test_a_list_is_selected_by_label_and_tells_the_kind(server: Server) -> None:
    await server.kube.apply(server.deployment())
    other = server.deployment()
    other["metadata"] = {"namespace": server.namespace, "name": "other", "labels": {"x": "y"}}
    await server.kube.apply(other)

    listed = await server.kube.list("Deployment", server.namespace, "llmservice.dev/service")

    assert [(obj["kind"], obj["apiVersion"], obj["metadata"]["name"]) for obj in listed] == [
        ("Deployment", "apps/v1", "chat")
    ]


async def test_a_metadata_list_has_no_spec(server: Server) -> None:
    await server.kube.apply(server.deployment())

    listed = [
        obj
        async for page in server.kube.pages("Deployment", server.namespace, metadata_only=True)
        for obj in page
    ]

    assert [obj["metadata"]["name"] for obj in listed] == ["chat"]
    assert "spec" not in listed[0]


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_list_of_nothing_is_empty(server: Server, metadata_only: bool) -> None:
    pages = server.kube.pages("Deployment", server.namespace, metadata_only=metadata_only)

    assert [obj async for page in pages for obj in page] == []


async def test_delete_minds_the_uid(server: Server) -> None:
    created = await server.kube.apply(server.deployment())

    with pytest.raises(ConflictError):
        await server.kube.delete("Deployment", server.namespace, "chat", uid="somebody-elses")
    await server.kube.delete("Deployment", server.namespace, "chat", uid=created["metadata"]["uid"])

    assert await server.kube.get("Deployment", server.namespace, "chat") is None


async def test_deleting_what_is_gone_is_no_error(server: Server) -> None:
    await server.kube.delete("Deployment", server.namespace, "none")


def test_the_clients_kinds_are_the_api_servers(api: Api) -> None:
    """Every path that the operator asks for exists, with the kind's own name."""
    for kind, where in KINDS.items():
        root = "/api/v1" if where.api_version == "v1" else f"/apis/{where.api_version}"
        served = {r["name"]: r for r in api.request("GET", root)["resources"]}
        assert (served[where.plural]["kind"], served[where.plural]["namespaced"]) == (kind, where.namespaced)
