"""The applier: needed writes only, strangers untouched. The API server is one in memory."""

from typing import Any

import pytest

from fakes.kube import FakeKube
from llmservice_operator.clients.kube import ConflictError
from llmservice_operator.controller.applier import Applier, ApplyResult, NotOursError
from llmservice_operator.controller.store import Store
from llmservice_operator.resources.types import Identity

OURS = Identity(name="chat", namespace="ns", uid="service-uid")


def child(kind: str = "Deployment", *, image: str = "engine:1", **labels: str) -> dict[str, Any]:
    api = {"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}.get(kind, "v1")
    owner = {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "name": "chat",
        "controller": True,
    }
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "namespace": "ns",
            "name": "chat",
            "labels": {"llmservice.dev/service": "chat", **labels},
            "ownerReferences": [{**owner, "uid": OURS.uid}],
        },
        "spec": {"selector": {"llmservice.dev/service": "chat"}, "template": {"image": image}},
    }


class Scene:
    def __init__(self) -> None:
        self.kube = FakeKube()
        self.somebody = self.kube.as_manager("somebody")
        self.store = Store()
        self.applier = Applier(self.kube, self.store)

    def writes(self) -> int:
        return sum(n for (verb, _), n in self.kube.requests.items() if verb not in ("get", "list"))


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_what_is_not_there_is_created(scene: Scene) -> None:
    applied = await scene.applier.apply(child(), OURS)

    assert applied.result is ApplyResult.CREATED
    assert await scene.kube.get("Deployment", "ns", "chat") is not None


async def test_the_answer_is_in_the_store_before_any_watch_event(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)

    assert scene.store.has("Deployment", "ns", "chat")


async def test_what_is_as_desired_is_not_written(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)
    before = scene.writes()

    applied = await scene.applier.apply(child(), OURS)

    assert (applied.result, scene.writes()) == (ApplyResult.UNCHANGED, before)


async def test_what_differs_is_written_and_told(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)

    applied = await scene.applier.apply(child(image="engine:2"), OURS)

    assert (applied.result, applied.differences) == (ApplyResult.UPDATED, ("spec.template.image",))


async def test_a_change_by_hand_is_put_back(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)
    changed = await scene.somebody.patch(
        "Deployment", "ns", "chat", {"spec": {"template": {"image": "evil"}}}
    )
    scene.store.put("Deployment", changed)

    await scene.applier.apply(child(), OURS)

    after = await scene.kube.get("Deployment", "ns", "chat")
    assert after is not None
    assert after["spec"]["template"]["image"] == "engine:1"


async def test_a_field_of_others_is_left_alone(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)
    noted = await scene.somebody.patch(
        "Deployment", "ns", "chat", {"metadata": {"annotations": {"note": "x"}}}
    )
    scene.store.put("Deployment", noted)
    before = scene.writes()

    await scene.applier.apply(child(), OURS)

    assert scene.writes() == before


async def test_a_field_that_we_no_longer_want_is_removed(scene: Scene) -> None:
    await scene.applier.apply(child(team="a"), OURS)

    await scene.applier.apply(child(), OURS)

    after = await scene.kube.get("Deployment", "ns", "chat")
    assert after is not None
    assert after["metadata"]["labels"] == {"llmservice.dev/service": "chat"}


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
async def test_a_strangers_object_of_the_same_name_is_not_touched(scene: Scene, kind: str) -> None:
    theirs = child(kind)
    theirs["metadata"] = {"namespace": "ns", "name": "chat"}
    theirs["spec"]["selector"] = {"app": "theirs"}
    created = await scene.somebody.create(theirs)

    with pytest.raises(NotOursError, match="is not this service's"):
        await scene.applier.apply(child(kind), OURS)

    assert await scene.kube.get(kind, "ns", "chat") == created


async def test_a_strangers_service_that_looks_like_ours_is_not_adopted(scene: Scene) -> None:
    theirs = child("Service")
    del theirs["metadata"]["ownerReferences"]
    created = await scene.somebody.create(theirs)

    with pytest.raises(NotOursError):
        await scene.applier.apply(child("Service"), OURS)

    assert await scene.kube.get("Service", "ns", "chat") == created


async def test_an_object_of_an_earlier_service_of_the_same_name_is_not_ours(scene: Scene) -> None:
    earlier = child()
    earlier["metadata"]["ownerReferences"][0]["uid"] = "earlier-uid"
    scene.store.put("Deployment", await scene.kube.apply(earlier))

    with pytest.raises(NotOursError):
        await scene.applier.apply(child(), OURS)


async def test_our_own_object_that_the_watch_has_not_shown_yet_is_updated(scene: Scene) -> None:
    await scene.kube.apply(child(image="engine:0"))
    await scene.somebody.patch("Deployment", "ns", "chat", {"spec": {"template": {"image": "engine:x"}}})

    applied = await scene.applier.apply(child(), OURS)

    assert applied.result is ApplyResult.UPDATED


async def test_only_the_very_object_that_was_seen_is_deleted(scene: Scene) -> None:
    seen = (await scene.applier.apply(child(), OURS)).observed
    await scene.kube.delete("Deployment", "ns", "chat")
    await scene.kube.apply(child())

    with pytest.raises(ConflictError):
        await scene.applier.delete(seen, OURS)


async def test_a_strangers_object_is_never_deleted(scene: Scene) -> None:
    theirs = child()
    theirs["metadata"]["ownerReferences"] = []
    created = await scene.somebody.create(theirs)

    with pytest.raises(NotOursError):
        await scene.applier.delete(created, OURS)


SERVICE = {
    "apiVersion": "llmservice.dev/v1alpha1",
    "kind": "LLMService",
    "metadata": {"namespace": "ns", "name": "chat"},
}


async def test_a_status_that_stands_already_is_not_written(scene: Scene) -> None:
    scene.store.put("LLMService", await scene.somebody.create({**SERVICE, "spec": {"replicas": 1}}))
    status = {**SERVICE, "status": {"replicas": 1}}

    results = [await scene.applier.apply_status(status) for _ in range(2)]

    assert results == [ApplyResult.UPDATED, ApplyResult.UNCHANGED]


async def test_the_status_of_a_service_that_is_gone_is_no_error(scene: Scene) -> None:
    scene.store.put("LLMService", await scene.somebody.create({**SERVICE, "spec": {"replicas": 1}}))
    await scene.somebody.delete("LLMService", "ns", "chat")

    assert await scene.applier.apply_status({**SERVICE, "status": {"replicas": 1}}) is ApplyResult.UNCHANGED


async def test_the_first_update_turns_what_was_posted_over_to_our_apply(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)

    await scene.applier.apply(child(image="engine:2"), OURS)

    after = await scene.kube.get("Deployment", "ns", "chat")
    assert after is not None
    assert [(e["manager"], e["operation"]) for e in after["metadata"]["managedFields"]] == [
        ("llmservice-operator", "Apply")
    ]


async def test_later_updates_are_one_write_each(scene: Scene) -> None:
    await scene.applier.apply(child(), OURS)
    await scene.applier.apply(child(image="engine:2"), OURS)
    before = scene.writes()

    await scene.applier.apply(child(image="engine:3"), OURS)

    assert scene.writes() == before + 1
