"""The calibration is kept over restarts and beside other writers, written seldom, and never in the way."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from fakes.clock import FakeClock
from llmservice_operator.clients.kube import (
    ConflictError,
    ForbiddenError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    NotLeaderError,
)
from llmservice_operator.controller.calibration import READ_SECONDS, WRITE_SECONDS, CalibrationStore
from llmservice_operator.controller.starts import Measurement
from llmservice_operator.perfmodel.calibration import Start
from llmservice_operator.perfmodel.memory import MIB
from llmservice_operator.resources.calibration import MAX_ENTRIES

NAME = "llmservice-operator-calibration"
KEY = "0123456789abcdef"


class Maps:
    """An API server with at most one ConfigMap in it."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        self.requests: list[str] = []
        self.error: KubeError | None = None
        self.error_of_writes: KubeError | None = None
        self.before_write: Any = None
        self._version = 0

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == ("ConfigMap", "llmservice-system", NAME)
        self._begin("get")
        return deepcopy(self.found)

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._begin("create")
        if self.found is not None:
            raise ConflictError(409, "AlreadyExists", "it is there already")
        return self.put(manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._begin("replace")
        if self.found is None:
            raise NotFoundError(404, "NotFound", "it is gone")
        if manifest["metadata"]["resourceVersion"] != self.found["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "it has changed")
        return self.put(manifest)

    def put(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.found = deepcopy(dict(manifest))
        self.found["metadata"] |= {"resourceVersion": str(self._version), "uid": "uid-1"}
        return self.found

    def _begin(self, request: str) -> None:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        if request != "get":
            act, self.before_write = self.before_write, None
            if act is not None:
                act()
            if self.error_of_writes is not None:
                raise self.error_of_writes


class Said:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, obj_ref: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        assert (obj_ref["kind"], obj_ref["name"], type_) == ("ConfigMap", NAME, "Warning")
        self.events.append((reason, message))


class Scene:
    def __init__(self) -> None:
        self.maps, self.clock, self.said = Maps(), FakeClock(), Said()

    def store(self) -> CalibrationStore:
        """As an operator has it that starts now."""
        return CalibrationStore(
            kube=self.maps,
            clock=self.clock,
            recorder=self.said,
            namespace="llmservice-system",
            name=NAME,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def measurement(number: int, key: str = KEY) -> Measurement:
    start = Start(
        start=f"{number:08x}",
        service=f"{number:08x}",
        ready_at=1_790_000_000 + number,
        catalogue_size=True,
        taken=20_000 * MIB,
        activation=(2_000 + number) * MIB,
    )
    return Measurement(key=key, start=start, what="vLLM 0.26.0", planned={"activation": 2_000 * MIB})


def starts_of(store: CalibrationStore, key: str = KEY) -> list[int]:
    entry = store.calibration.entry(key)
    return [] if entry is None else [int(each.start, 16) for each in entry.starts]


async def test_start_is_known_at_once(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))

    assert starts_of(store) == [1]


async def test_start_is_known_to_the_next_operator(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))
    await store.write()

    later = scene.store()
    await later.read()

    assert later.calibration == store.calibration


async def test_many_starts_are_written_once_a_minute(scene: Scene) -> None:
    store = scene.store()
    async with store.running():
        for number in range(50):
            store.note(measurement(number, f"{number:016x}"))
            await scene.clock.advance(1)
        await scene.clock.advance(2 * WRITE_SECONDS)

    assert [each for each in scene.maps.requests if each != "get"] == ["create"]


async def test_nothing_new_is_nothing_written(scene: Scene) -> None:
    store = scene.store()
    async with store.running():
        store.note(measurement(1))
        await scene.clock.advance(WRITE_SECONDS + 1)
        store.note(measurement(1))
        await scene.clock.advance(5 * WRITE_SECONDS)

    assert [each for each in scene.maps.requests if each != "get"] == ["create"]


async def test_end_of_the_operator_writes_what_is_new(scene: Scene) -> None:
    store = scene.store()
    async with store.running():
        store.note(measurement(1))

    assert scene.maps.requests[-1] == "create"


async def test_two_writers_keep_what_both_know(scene: Scene) -> None:
    one, other = scene.store(), scene.store()
    one.note(measurement(1))
    other.note(measurement(2))
    await one.write()
    await other.write()
    await one.read()

    assert starts_of(one) == starts_of(other) == [1, 2]


async def test_writer_that_got_ahead_is_written_on_top_of(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))
    await store.write()
    store.note(measurement(2))
    ahead = deepcopy(scene.maps.found)
    assert ahead is not None
    scene.maps.before_write = lambda: scene.maps.put(ahead)

    await store.write()

    assert starts_of(store) == [1, 2]
    assert scene.maps.requests.count("replace") == 2


async def test_lost_write_is_made_up_for(scene: Scene) -> None:
    store = scene.store()
    scene.maps.error_of_writes = KubeUnavailableError(500, "InternalError", "etcd is away")
    async with store.running():
        store.note(measurement(1))
        await scene.clock.advance(WRITE_SECONDS + 1)
        assert scene.maps.found is None
        scene.maps.error_of_writes = None
        await scene.clock.advance(WRITE_SECONDS)
        assert scene.maps.found is not None


@pytest.mark.parametrize(
    "error",
    [
        KubeUnavailableError(0, "Unreachable", "no answer"),
        ForbiddenError(403, "Forbidden", "not allowed"),
        NotLeaderError(0, "NotLeader", "somebody else is"),
        NotFoundError(404, "NotFound", "no such namespace"),
    ],
)
async def test_api_server_that_says_no_is_no_end(scene: Scene, error: KubeError) -> None:
    scene.maps.error = error
    store = scene.store()
    async with store.running():
        store.note(measurement(1))
        await scene.clock.advance(3 * WRITE_SECONDS)

    assert starts_of(store) == [1]


async def test_deleted_map_is_forgotten(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))
    await store.write()
    scene.maps.found = None
    async with store.running():
        await scene.clock.advance(READ_SECONDS + WRITE_SECONDS)

    assert starts_of(store) == []


async def test_what_was_deleted_does_not_come_back_with_what_is_new(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))
    await store.write()
    scene.maps.found = None
    store.note(measurement(2))
    await store.write()

    assert starts_of(store) == [2]


async def test_no_more_is_kept_than_is_written(scene: Scene) -> None:
    store = scene.store()
    for number in range(MAX_ENTRIES + 30):
        store.note(measurement(number, f"{number:016x}"))

    assert len(store.calibration.entries) == MAX_ENTRIES
    assert store.calibration.entry(f"{0:016x}") is None


async def test_map_that_is_deleted_while_it_is_written_is_made_anew(scene: Scene) -> None:
    store = scene.store()
    store.note(measurement(1))
    await store.write()
    store.note(measurement(2))

    def delete() -> None:
        scene.maps.found = None

    scene.maps.before_write = delete
    await store.write()

    assert 2 in starts_of(store)
    assert scene.maps.found is not None


async def test_corrupt_map_is_an_event_once_and_is_mended_by_the_next_write(scene: Scene) -> None:
    labels = {"app.kubernetes.io/part-of": "llmservice-operator"}
    scene.maps.put({"metadata": {"name": NAME, "labels": labels}, "data": {KEY: "{", "note": "hello"}})
    store = scene.store()
    for _ in range(3):
        await store.read()
    store.note(measurement(1))
    await store.write()
    await store.read()

    assert [reason for reason, _ in scene.said.events] == ["CalibrationUnreadable"]
    assert "no JSON" in scene.said.events[0][1]
    assert starts_of(store) == [1]
    assert scene.maps.found is not None
    assert set(scene.maps.found["data"]) == {KEY}


async def test_map_of_somebody_else_is_never_written(scene: Scene) -> None:
    foreign = {"metadata": {"name": NAME}, "data": {"mine": "yes"}}
    scene.maps.put(foreign)
    store = scene.store()
    store.note(measurement(1))
    await store.write()

    assert scene.maps.requests == ["get"]
    assert starts_of(store) == [1]
    assert "is not the operator's" in scene.said.events[0][1]


async def test_labels_and_annotations_of_others_stay(scene: Scene) -> None:
    labels = {"app.kubernetes.io/part-of": "llmservice-operator", "team": "serving"}
    scene.maps.put({"metadata": {"name": NAME, "labels": labels, "annotations": {"a": "b"}}, "data": {}})
    store = scene.store()
    store.note(measurement(1))
    await store.write()

    assert scene.maps.found is not None
    metadata = scene.maps.found["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]) == ("serving", {"a": "b"})
