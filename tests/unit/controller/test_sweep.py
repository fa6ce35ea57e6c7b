"""Sweeps: the store is filled before anything is decided, and heals what a watch missed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.kube import FakeKube
from llmservice_operator.clients.kube import KubeUnavailableError, NotFoundError
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.store import Store
from llmservice_operator.controller.sweep import Sweeper
from llmservice_operator.controller.workqueue import WorkQueue

CHAT = Key("ns", "chat")


def service(name: str = "chat", namespace: str = "ns") -> dict[str, Any]:
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicas": 1},
    }


def deployment(name: str = "chat", replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "ns", "name": name, "labels": {"llmservice.dev/service": name}},
        "spec": {"replicas": replicas},
    }


class Scene:
    def __init__(self, *namespaces: str, kinds: tuple[str, ...] = ("LLMService", "Deployment")) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube()
        self.store = Store()
        self.queue = WorkQueue(clock=self.clock, random=lambda: 0.5)
        self.sweeper = Sweeper(
            kube=self.kube,
            store=self.store,
            queue=self.queue,
            clock=self.clock,
            random=lambda: 0.5,
            kinds=kinds,
            namespaces=namespaces,
            period_seconds=600,
        )
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, coroutine: Any) -> "asyncio.Task[None]":
        self.tasks.append(asyncio.create_task(coroutine))
        return self.tasks[-1]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for task in scene.tasks:
        task.cancel()
    await asyncio.gather(*scene.tasks, return_exceptions=True)


async def test_filling_reads_everything_and_enqueues_every_service(scene: Scene) -> None:
    await scene.kube.create(service())
    await scene.kube.create(deployment())

    await scene.sweeper.fill()

    assert scene.store.synced.is_set()
    assert scene.store.has("Deployment", "ns", "chat")
    assert scene.queue.depth == 1


async def test_objects_without_the_services_label_are_not_read(scene: Scene) -> None:
    other = deployment("other")
    del other["metadata"]["labels"]
    await scene.kube.create(other)

    await scene.sweeper.fill()

    assert scene.store.count("Deployment") == 0


async def test_only_the_namespaces_that_are_looked_after_are_read() -> None:
    scene = Scene("ns")
    await scene.kube.create(service())
    await scene.kube.create(service("far", "elsewhere"))

    await scene.sweeper.fill()

    assert scene.store.services() == (CHAT,)


@pytest.mark.parametrize(
    "error", [NotFoundError(404, "NotFound", "no CRD"), KubeUnavailableError(0, "Unreachable", "away")]
)
async def test_filling_waits_for_the_crd_and_the_api_server(scene: Scene, error: Any) -> None:
    scene.kube.failures["list", "LLMService"] = [error] * 3
    filling = scene.start(scene.sweeper.fill())

    await scene.clock.advance(1)
    early = scene.store.synced.is_set()
    await scene.clock.advance(10)

    assert (early, filling.done(), scene.store.synced.is_set()) == (False, True, True)


async def test_services_are_reconciled_where_the_api_server_knows_no_policies() -> None:
    """The CRD of policies is younger than that of services: a cluster may have one without the other."""
    scene = Scene(kinds=("ScalingPolicy", "LLMService"))
    await scene.kube.create(service())
    scene.kube.failures["list", "ScalingPolicy"] = [NotFoundError(404, "NotFound", "no CRD")] * 9

    await asyncio.wait_for(scene.sweeper.fill(), timeout=5)

    assert (scene.store.services(), scene.queue.depth) == ((CHAT,), 1)


async def test_a_deletion_that_the_watch_missed_is_found(scene: Scene) -> None:
    await scene.kube.create(service())
    await scene.kube.create(deployment())
    await scene.sweeper.fill()
    await scene.kube.delete("Deployment", "ns", "chat")

    await scene.sweeper.compare("Deployment")

    assert not scene.store.has("Deployment", "ns", "chat")
    assert scene.queue.depth == 1


async def test_a_change_that_the_watch_missed_is_read(scene: Scene) -> None:
    await scene.kube.create(deployment())
    await scene.sweeper.fill()
    await scene.kube.apply(deployment(replicas=5))

    await scene.sweeper.compare("Deployment")

    read: Any = scene.store.get("Deployment", "ns", "chat")
    assert read["spec"]["replicas"] == 5
    assert scene.queue.depth == 1


async def test_when_nothing_was_missed_nothing_is_read_or_enqueued(scene: Scene) -> None:
    await scene.kube.create(deployment())
    await scene.sweeper.fill()
    scene.kube.requests.clear()

    await scene.sweeper.compare("Deployment")

    assert scene.kube.requests == {("list", "Deployment"): 1}
    assert scene.queue.depth == 0


async def test_everything_is_compared_once_a_period(scene: Scene) -> None:
    scene.start(scene.sweeper.run())
    await scene.clock.advance(1300)

    assert scene.kube.requests == {("list", "Deployment"): 2, ("list", "LLMService"): 2}


async def test_a_kind_that_was_asked_for_is_compared_soon(scene: Scene) -> None:
    scene.start(scene.sweeper.run())
    scene.sweeper.ask("Deployment")
    await scene.clock.advance(5)

    assert scene.kube.requests == {("list", "Deployment"): 1}


@pytest.mark.parametrize("error", [KubeUnavailableError(0, "Unreachable", "away"), KeyError("odd")])
async def test_a_failed_comparison_is_tried_again(scene: Scene, error: Any) -> None:
    scene.kube.failures["list", "Deployment"] = [error]
    scene.start(scene.sweeper.run())
    scene.sweeper.ask("Deployment")
    await scene.clock.advance(20)

    assert scene.kube.requests["list", "Deployment"] == 2
