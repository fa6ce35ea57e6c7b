"""Events: counted when repeated, cut when too many, never in a reconcile's way."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.kube import FakeKube
from llmservice_operator.clients.kube import ForbiddenError
from llmservice_operator.controller.recorder import EventLimits, Recorder

CHAT = {
    "apiVersion": "llmservice.dev/v1alpha1",
    "kind": "LLMService",
    "namespace": "ns",
    "name": "chat",
    "uid": "u1",
}


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube()
        self.told: Counter[str] = Counter()
        self.recorder = Recorder(
            kube=self.kube, clock=self.clock, instance="op-1", observer=self, limits=EventLimits(queue=50)
        )
        self.task = asyncio.create_task(self.recorder.run())

    def recorded(self, result: str) -> None:
        self.told[result] += 1

    async def events(self) -> list[dict[str, Any]]:
        return await self.kube.list("Event", "ns")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    scene.task.cancel()
    await asyncio.gather(scene.task, return_exceptions=True)


async def test_an_event_is_posted_with_what_the_api_asks_for(scene: Scene) -> None:
    scene.recorder.event(CHAT, "Warning", "DoesNotFit", "3 GiB short")
    await scene.clock.advance(1)

    (event,) = await scene.events()

    told = {k: event[k] for k in ("type", "reason", "note", "regarding", "reportingInstance", "eventTime")}
    assert told == {
        "type": "Warning",
        "reason": "DoesNotFit",
        "note": "3 GiB short",
        "regarding": CHAT,
        "reportingInstance": "op-1",
        "eventTime": "2026-09-21T14:13:20.000000Z",
    }


async def test_the_same_words_again_are_counted_on_the_first_event(scene: Scene) -> None:
    for _ in range(30):
        scene.recorder.event(CHAT, "Warning", "DoesNotFit", "3 GiB short")
        await scene.clock.advance(10)

    (event,) = await scene.events()

    assert 20 <= event["series"]["count"] <= 30


async def test_a_count_is_written_once_a_minute_at_most(scene: Scene) -> None:
    for _ in range(300):
        scene.recorder.event(CHAT, "Warning", "DoesNotFit", "3 GiB short")
        await scene.clock.advance(1)

    assert scene.kube.requests["patch", "Event"] <= 5


async def test_after_ten_minutes_of_silence_it_is_a_new_event(scene: Scene) -> None:
    scene.recorder.event(CHAT, "Warning", "DoesNotFit", "3 GiB short")
    await scene.clock.advance(601)
    scene.recorder.event(CHAT, "Warning", "DoesNotFit", "3 GiB short")
    await scene.clock.advance(1)

    assert len(await scene.events()) == 2


async def test_an_object_that_talks_too_much_is_cut(scene: Scene) -> None:
    for number in range(100):
        scene.recorder.event(CHAT, "Normal", "Changed", f"number {number}")
    await scene.clock.advance(20)

    assert (len(await scene.events()), scene.told["limited"]) == (10, 90)


async def test_one_objects_flood_does_not_silence_another(scene: Scene) -> None:
    for number in range(100):
        scene.recorder.event(CHAT, "Normal", "Changed", f"number {number}")
    scene.recorder.event({**CHAT, "name": "other", "uid": "u2"}, "Normal", "Ready", "ready")
    await scene.clock.advance(20)

    assert "other" in {event["regarding"]["name"] for event in await scene.events()}


async def test_a_full_queue_drops_and_says_so(scene: Scene) -> None:
    for number in range(80):
        scene.recorder.event({**CHAT, "uid": f"u{number}"}, "Normal", "Ready", "ready")

    assert scene.told["dropped"] == 30


async def test_an_event_that_cannot_be_posted_is_let_go(scene: Scene) -> None:
    scene.kube.failures["create", "Event"] = [ForbiddenError(403, "Forbidden", "no")]
    scene.recorder.event(CHAT, "Normal", "A", "a")
    scene.recorder.event(CHAT, "Normal", "B", "b")
    await scene.clock.advance(1)

    assert [event["reason"] for event in await scene.events()] == ["B"]


async def test_a_note_is_cut_at_the_apis_limit(scene: Scene) -> None:
    scene.recorder.event(CHAT, "Normal", "Long", "x" * 5000)
    await scene.clock.advance(1)

    (event,) = await scene.events()

    assert len(event["note"]) == 1024


async def test_a_wrong_reference_never_raises(scene: Scene) -> None:
    scene.recorder.event({}, "Normal", "A", "a")
    await scene.clock.advance(1)

    assert await scene.events() == []


async def test_what_still_waits_is_posted_at_the_end(scene: Scene) -> None:
    scene.task.cancel()
    scene.recorder.event(CHAT, "Normal", "Stopping", "bye")

    await scene.recorder.flush()

    assert len(await scene.events()) == 1
