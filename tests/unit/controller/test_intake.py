"""Watch events: each fills the store and enqueues a key, and nothing else happens."""

from typing import Any

import pytest

from fakes.clock import FakeClock
from llmservice_operator.controller.intake import Intake, watched_kinds
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.store import Store

CHAT = Key("ns", "chat")


class Queue:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.added: list[Key] = []
        self.later: list[tuple[Key, float]] = []

    def add(self, key: Key) -> None:
        self.added.append(key)

    def add_after(self, key: Key, seconds: float) -> None:
        self.later.append((key, seconds))


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.queue: Any = Queue()
        self.swept: list[str] = []
        self.relists: list[str] = []
        self.intake = Intake(
            store=self.store, queue=self.queue, clock=self.clock, ask_sweep=self.swept.append, observer=self
        )
        self.version = 0

    def watched(self, kind: str) -> None:
        pass

    def relisted(self, kind: str) -> None:
        self.relists.append(kind)

    def event(self, kind: str, type_: str | None, **fields: Any) -> None:
        self.version += 1
        metadata = {"namespace": "ns", "name": "chat", "uid": kind, "resourceVersion": str(self.version)}
        if kind not in ("LLMService", "Node"):
            metadata["labels"] = {"llmservice.dev/service": "chat"}  # type: ignore[assignment]
        metadata.update(fields.pop("metadata", {}))
        self.intake.event(kind, type_, {"metadata": metadata, **fields})


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("kind", watched_kinds(namespaced=True))
@pytest.mark.parametrize("event_type", [None, "ADDED", "MODIFIED"])
def test_an_event_of_a_service_or_a_child_enqueues_the_service(
    scene: Scene, kind: str, event_type: str | None
) -> None:
    scene.event(kind, event_type)

    assert scene.queue.added == [CHAT]


def test_a_deleted_child_enqueues_its_service(scene: Scene) -> None:
    scene.event("Deployment", "ADDED")
    scene.event("Deployment", "DELETED")

    assert scene.queue.added == [CHAT, CHAT]
    assert not scene.store.has("Deployment", "ns", "chat")


def test_a_version_that_says_the_same_enqueues_nothing(scene: Scene) -> None:
    scene.event("Deployment", "ADDED", spec={"replicas": 1})
    scene.event("Deployment", "MODIFIED", spec={"replicas": 1})

    assert scene.queue.added == [CHAT]


def test_a_node_enqueues_only_services_that_wait_for_one(scene: Scene) -> None:
    waits = {"conditions": [{"type": "Planned", "status": "Unknown", "reason": "NoAcceleratorSeen"}]}
    scene.event("LLMService", "ADDED", status=waits)
    scene.event("LLMService", "ADDED", metadata={"name": "happy", "uid": "2"}, status={})

    scene.event("Node", "ADDED", metadata={"namespace": "", "name": "n1"})

    assert scene.queue.later == [(CHAT, 1.0)]


def test_a_service_that_no_longer_waits_is_not_enqueued_by_nodes(scene: Scene) -> None:
    waits = {"conditions": [{"type": "Planned", "status": "Unknown", "reason": "NoAcceleratorSeen"}]}
    scene.event("LLMService", "ADDED", status=waits)
    scene.event("LLMService", "MODIFIED", status={"conditions": []})

    scene.event("Node", "ADDED", metadata={"namespace": "", "name": "n1"})

    assert scene.queue.later == []


def test_in_namespaced_mode_nodes_are_not_watched() -> None:
    assert "Node" not in watched_kinds(namespaced=True)
    assert "Node" in watched_kinds(namespaced=False)


async def test_a_new_list_asks_for_a_sweep_once(scene: Scene) -> None:
    for number in range(3):
        scene.event("Pod", None, metadata={"name": f"p{number}", "uid": f"u{number}"})
    await scene.clock.advance(60)
    scene.event("Pod", None, metadata={"name": "p0", "uid": "u0"})

    assert (scene.swept, scene.relists) == (["Pod", "Pod"], ["Pod"])
