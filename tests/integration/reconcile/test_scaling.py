"""Replicas follow what engines do, on a real API server with real sockets.

The services of all tests are made at once, side by side: each takes the loop some ten seconds to know.
"""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import factories as make
import running
from devcluster.api import Api

from .engines import Engines
from .played import WAIT_SECONDS, Object, Played, RestartableOperator, condition_of

pytestmark = pytest.mark.light

POLICIES = "/apis/llmservice.dev/v1alpha1/scalingpolicies"
BRISK = {"leastStabilizationSeconds": 1, "mostStabilizationSeconds": 1, "scaleInPeriodSeconds": 1}
"""A policy that takes a replica once it is known that it can: `balanced` watches for two minutes."""
BUSY = {"rate": 20.0, "running": 256.0, "waiting": 400.0, "kv_use": 0.95}
QUIET = {"rate": 0.01, "running": 0.0}
DOWN = {**QUIET, "is_down": True}
LONG_SECONDS = 60.0


@dataclass
class Scene:
    """Services by what befalls them."""

    world: Played
    engines: Engines

    def serve(self, name: str, *pods: dict[str, Any], **scaling: Any) -> None:
        """A scaled service with so many ready pods, each with an engine that does this."""
        self.world.serve(
            name,
            slo={"ttft": {"p95": "1s"}},
            scaling={"maxReplicas": 4, **scaling},
            workload={"context": {"max": 2048}},
        )
        self.world.deployment_at(name)
        for number, engine in enumerate(pods):
            self.ready(name, f"{name}-{number}", **engine)

    def ready(self, service: str, pod: str, **engine: Any) -> None:
        """Another ready pod."""
        host = self.engines.add(**engine)
        self.world.add_pod(service, pod, {**make.running_pod(ready=True)["status"], "podIP": host})


@pytest.fixture(scope="module")
def scene(api: Api, operator: RestartableOperator, engines: Engines) -> Iterator[Scene]:
    """All services, with the operator at work."""
    operator.restart()
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    running.make_namespace(api, namespace)
    world = Played(api=api, namespace=namespace)
    world.create("ConfigMap", {"metadata": {"name": "tiny"}, "data": {"config.json": json.dumps(make.TINY)}})
    brisk = f"brisk-{namespace}"
    api.request("POST", POLICIES, policy(brisk, BRISK))
    scene = Scene(world, engines)
    scene.serve("busy", BUSY)
    scene.serve("quiet", QUIET, QUIET, minReplicas=2, policy=brisk)
    scene.serve("deaf", DOWN, DOWN, minReplicas=2, policy=brisk)
    scene.serve("foreign", QUIET)
    scene.serve("lawless", BUSY, policy=f"swift-{namespace}")
    yield scene
    for service in world.items("LLMService"):
        world.delete("LLMService", service["metadata"]["name"])
    api.request("DELETE", f"{POLICIES}/{brisk}")


def policy(name: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_a_busy_replica_gets_company_and_the_status_says_why(scene: Scene) -> None:
    world = scene.world

    deployment = world.wait("Deployment", "busy", lambda obj: obj["spec"]["replicas"] > 1, LONG_SECONDS)

    service = world.wait("LLMService", "busy", lambda obj: bool(scaling(obj).get("decisions")))
    newest = scaling(service)["decisions"][0]
    assert newest["from"] == 1
    assert newest["to"] == deployment["spec"]["replicas"]
    assert newest["reason"]
    assert "from 1 to" in event(world, "busy", "ScaledOut")["note"]


def test_quiet_replicas_go_and_those_that_say_nothing_stay(scene: Scene) -> None:
    world = scene.world
    for name in ("quiet", "deaf"):
        world.wait("Deployment", name, lambda obj: obj["spec"]["replicas"] == 2)
    world.wait("LLMService", "deaf", lambda obj: has(obj, "MetricsAvailable", "MetricsMissing"), LONG_SECONDS)
    for name in ("quiet", "deaf"):
        world.set_spec(name, scaling={"minReplicas": 1})

    world.wait("Deployment", "quiet", lambda obj: obj["spec"]["replicas"] == 1, LONG_SECONDS)

    deaf = world.get("Deployment", "deaf")
    assert deaf is not None
    assert deaf["spec"]["replicas"] == 2
    assert "from 2 to 1" in event(world, "quiet", "ScaledIn")["note"]


def test_an_autoscaler_beside_us_is_named_and_left_alone(scene: Scene) -> None:
    world = scene.world
    world.patch(
        "Deployment", "foreign", {"spec": {"replicas": 3}}, subresource="scale", manager="hpa-controller"
    )

    found = world.wait_condition("foreign", "ScalingActive", "False", "ReplicasOwnedByOther")

    deployment = world.get("Deployment", "foreign")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 3
    assert "hpa-controller" in found["message"]


def test_a_policy_that_is_not_there_is_named_and_taken_once_it_is(scene: Scene) -> None:
    world = scene.world
    missing = world.wait_condition("lawless", "ScalingActive", "False", "PolicyNotFound")
    held = world.get("Deployment", "lawless")
    assert held is not None
    assert held["spec"]["replicas"] == 1
    name = f"swift-{world.namespace}"
    assert name in missing["message"]

    world.api.request("POST", POLICIES, policy(name, {"scaleOutStep": 1}))

    world.wait("Deployment", "lawless", lambda obj: obj["spec"]["replicas"] > 1, LONG_SECONDS)
    world.api.request("DELETE", f"{POLICIES}/{name}")


def test_a_new_process_keeps_what_runs(scene: Scene, operator: RestartableOperator) -> None:
    """Nothing is known of the load at first; the decisions after it must hold."""
    world = scene.world
    before = world.wait("Deployment", "busy", lambda obj: obj["spec"]["replicas"] > 1, LONG_SECONDS)
    operator.restart()

    decided = f'llmservice_scaling_decision_timestamp_seconds{{name="busy",namespace="{world.namespace}"}}'
    running.wait_for(lambda: decided in operator.metrics(), "a decision of the new process", LONG_SECONDS)

    after = world.get("Deployment", "busy")
    assert after is not None
    assert after["spec"]["replicas"] >= before["spec"]["replicas"]


def test_the_series_of_a_service_go_with_it(scene: Scene, operator: RestartableOperator) -> None:
    world = scene.world
    mine = f'name="foreign",namespace="{world.namespace}"'
    running.wait_for(lambda: any(mine in each for each in operator.metrics()), "its series", LONG_SECONDS)

    world.delete("LLMService", "foreign")

    running.wait_for(lambda: not any(mine in each for each in operator.metrics()), "no more of its series")


def has(service: Object, kind: str, reason: str) -> bool:
    """Whether the condition has this reason."""
    found = condition_of(service, kind)
    return found is not None and found["reason"] == reason


def scaling(service: Object) -> Object:
    """`status.scaling`."""
    found: Object = (service.get("status") or {}).get("scaling") or {}
    return found


def event(world: Played, name: str, reason: str) -> Object:
    """The first Event of this reason about the service."""
    for found in world.api.events(world.path("Event"), deadline=time.monotonic() + WAIT_SECONDS):
        if found.get("reason") == reason and found.get("regarding", {}).get("name") == name:
            return found
    service = world.get("LLMService", name)
    told = None if service is None else condition_of(service, "ScalingActive")
    raise AssertionError(f"no Event {reason} of {name}; ScalingActive: {told}")
