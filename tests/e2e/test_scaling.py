"""The operator sets the number of replicas: more under load, no fewer while metrics lie, fewer once they are believed.

All faults side by side, and what a restart does, take minutes: `make chaos-scaling`.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import deploy
from devcluster.errors import CommandError
from e2e.conftest import Platform
from e2e.fleet import FAKE_ENGINE, Fleet, config_map
from load.generator import Request, Target
from load.pod import replay
from scaling_faults.services import POLICY, scaling_policy

pytestmark = pytest.mark.cluster

NAME = "chat"
SLOW = {
    "image": FAKE_ENGINE,
    "pin": {"maxNumSeqs": 2},
    "env": [{"name": "FAKE_ENGINE_TPOT_SECONDS", "value": "0.2"}],
}
"""Two requests at once, four seconds for each: half a request a second."""
RATE, LOAD_SECONDS = 2.0, 120.0
"""Longer than a second replica takes: the load ends when it is ready."""
LIE_SECONDS = 45.0
"""More than the half minute after which the policy takes a replica that isn't needed."""

POST_FAULT = """
import sys, urllib.request
address, fault = "http://127.0.0.1:8000/fake/fault", sys.argv[1].encode()
urllib.request.urlopen(urllib.request.Request(address, fault, method="POST"), timeout=10).read()
"""


@dataclass(frozen=True)
class Played:
    """What was seen in the course of it."""

    out_reason: str
    """Of the decision for two replicas."""
    during_lie: int
    """Replicas after the metrics had lied for longer than a needless replica lives."""
    told: str
    """Of MetricsAvailable, while they lied."""
    in_reason: str
    """Of the decision for one."""


@pytest.fixture(scope="module")
def played(platform: Platform, namespace: str) -> Iterator[Played]:
    """A load that one replica can't take, its end, lies, and the truth."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace), scaling_policy())
    scaling = {"policy": POLICY, "maxReplicas": 2}
    slo = {"ttft": {"p95": "2s"}}
    fleet.apply(NAME, engine=SLOW, drain={"timeout": "5s"}, scaling=scaling, slo=slo)
    fleet.wait_ready(NAME)
    requests = [Request(count / RATE, 0, 20, 20) for count in range(int(LOAD_SECONDS * RATE))]
    with replay(platform.cluster, namespace, [Target(f"{NAME}.{namespace}.svc", 8000, NAME)], requests):
        fleet.wait_ready(NAME, replicas=2)
        out = _last_decision(fleet)
    _lie(fleet, "metrics-nan:counters=yes")
    time.sleep(LIE_SECONDS)  # that nothing happens can't be watched for
    service = fleet.get("llmservice", NAME)
    replicas = fleet.get("deployment", NAME)["spec"]["replicas"]
    _lie(fleet, "")
    fleet.wait_ready(NAME, replicas=1)
    yield Played(
        out_reason=out,
        during_lie=replicas,
        told=deploy.condition(service, "MetricsAvailable").get("reason", ""),
        in_reason=_last_decision(fleet),
    )
    fleet.remove_all()
    platform.cluster.kubectl("delete", "scalingpolicy", POLICY)


def test_a_load_that_one_replica_cannot_take_brings_another(played: Played) -> None:
    assert played.out_reason.startswith("1 → 2: ")


def test_metrics_that_lie_take_no_replica(played: Played) -> None:
    assert played.during_lie == 2


def test_metrics_that_lie_are_told(played: Played) -> None:
    assert played.told == "MetricsInvalid"


def test_the_end_of_the_load_takes_the_replica_once_metrics_can_be_believed(played: Played) -> None:
    assert played.in_reason.startswith("2 → 1: ")


def test_a_scaled_service_is_not_scaled_by_hand(platform: Platform, namespace: str, played: Played) -> None:
    """The API server says what to change instead."""
    with pytest.raises(CommandError, match=r"spec\.replicas is not used while spec\.scaling is set"):
        platform.cluster.kubectl("-n", namespace, "scale", "llmservice", NAME, "--replicas=3")


def _last_decision(fleet: Fleet) -> str:
    decision = fleet.get("llmservice", NAME)["status"]["scaling"]["decisions"][0]
    return f"{decision['from']} → {decision['to']}: {decision['reason']}"


def _lie(fleet: Fleet, fault: str) -> None:
    pods = json.loads(fleet.kubectl("get", "pods", "-l", f"llmservice.dev/service={NAME}", "-o", "json"))
    for pod in pods["items"]:
        name = pod["metadata"]["name"]
        fleet.kubectl("exec", name, "-c", "engine", "--", "python3", "-c", POST_FAULT, fault)
