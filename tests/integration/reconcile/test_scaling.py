"""Replicas follow what engines do, on a real API server with real sockets."""

import time

import pytest

import factories as make

from .engines import Engines, PlayedEngine
from .played import WAIT_SECONDS, Object, Played

pytestmark = pytest.mark.light

SCALED = {
    "slo": {"ttft": {"p95": "1s"}},
    "scaling": {"minReplicas": 1, "maxReplicas": 4},
    "workload": {"context": {"max": 2048}},
}


def test_busy_replica_gets_company_and_the_status_says_why(world: Played, engines: Engines) -> None:
    world.serve("chat", **SCALED)
    _ready(world, engines, "chat", "chat-1", rate=20.0, running=256.0, waiting=400.0, kv_use=0.95)

    deployment = world.wait("Deployment", "chat", lambda obj: obj["spec"]["replicas"] > 1, seconds=40)

    service = world.wait("LLMService", "chat", lambda obj: bool(_scaling(obj).get("decisions")))
    newest = _scaling(service)["decisions"][0]
    assert newest["from"] == 1
    assert newest["to"] == deployment["spec"]["replicas"]
    assert newest["reason"]
    assert "from 1 to" in _event(world, "chat", "ScaledOut")["note"]


def _ready(world: Played, engines: Engines, service: str, pod: str, **engine: float) -> PlayedEngine:
    """A ready pod of the service, with an engine that does this."""
    world.deployment_at(service)
    host, played = engines.add(**engine)
    world.add_pod(service, pod, {**make.running_pod(ready=True)["status"], "podIP": host})
    return played


def _scaling(service: Object) -> Object:
    found: Object = (service.get("status") or {}).get("scaling") or {}
    return found


def _event(world: Played, name: str, reason: str) -> Object:
    """The first Event of this reason about the service."""
    for event in world.api.events(world.path("Event"), deadline=time.monotonic() + WAIT_SECONDS):
        if event.get("reason") == reason and event.get("regarding", {}).get("name") == name:
            return event
    raise AssertionError(f"no Event {reason} of {name}")
