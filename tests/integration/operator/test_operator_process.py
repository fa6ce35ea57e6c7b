"""The whole operator as a process on a real API server: what it writes, how it starts and how it ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import running
from devcluster.api import Api
from devcluster.light import LightCluster

pytestmark = pytest.mark.light
Object = dict[str, Any]
CHILDREN = {
    "deployments": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "services": "/api/v1/namespaces/{}/services/{}",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}",
}


class World:
    """A namespace and what is asked of it."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def create(self, name: str, **spec: Any) -> Object:
        body = running.service_manifest(name, **spec)
        created: Object = self.api.request("POST", running.services_path(self.namespace), body)
        return created

    def service(self, name: str) -> Object:
        found = running.get(self.api, running.services_path(self.namespace, name))
        assert found is not None
        return found

    def child(self, plural: str, name: str) -> Object | None:
        return running.get(self.api, CHILDREN[plural].format(self.namespace, name))

    def wait_child(self, plural: str, name: str) -> Object:
        return running.wait_for(lambda: self.child(plural, name), f"{plural}/{name}")

    def wait_ready(self, name: str, status: str = "True") -> Object:
        def look() -> Object | None:
            found = self.service(name)
            return found if running.condition(found, "Ready").get("status") == status else None

        return running.wait_for(look, f"{name} to be Ready={status}")

    def lease(self, name: str = "llmservice-operator") -> Object:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"
        found: Object = self.api.request("GET", path)
        return found


@pytest.fixture
def world(api: Api, namespace: str) -> World:
    return World(api, namespace)


@pytest.fixture
def standby(light_cluster: LightCluster, namespace: str, tmp_path: Path) -> Any:
    second = running.OperatorProcess(
        light_cluster.kubeconfig,
        tmp_path,
        name=f"standby-{namespace}",
        LLMSERVICE_NAMESPACE=namespace,
        LLMSERVICE_WATCH_NAMESPACES=namespace,
    )
    yield second
    second.kill()


@pytest.fixture
def written(light_cluster: LightCluster) -> Callable[[int, str], list[tuple[str, str]]]:
    """Verb and resource of what operators wrote in a namespace since a mark of the audit log."""

    def look(since: int, namespace: str) -> list[tuple[str, str]]:
        return [
            (request.verb, request.resource)
            for request in light_cluster.audit.requests(since=since)
            if request.mutating
            and request.namespace == namespace
            and request.user_agent.startswith("llmservice-operator")
        ]

    return look


def test_a_service_gets_its_children_and_its_status(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    created = world.create("chat")

    ready = world.wait_ready("chat")

    assert all(world.child(plural, "chat") for plural in CHILDREN)
    assert ready["status"]["observedGeneration"] == created["metadata"]["generation"]
    assert running.condition(ready, "Ready")["reason"] == "ScaledToZero"


def test_what_stood_there_before_the_operator_started_is_served_too(
    operator: running.OperatorProcess, world: World
) -> None:
    world.create("chat")

    operator.start_ready()

    assert world.wait_ready("chat")


def test_no_finalizer_and_no_annotation_is_put_on_users_objects(
    operator: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    world.create("chat")

    metadata = world.wait_ready("chat")["metadata"]

    assert "finalizers" not in metadata
    assert "annotations" not in metadata


def test_a_deleted_child_comes_back(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    world.create("chat")
    world.wait_ready("chat")
    before = world.wait_child("services", "chat")

    world.api.request("DELETE", CHILDREN["services"].format(world.namespace, "chat"))

    def look() -> bool:
        found = world.child("services", "chat")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    assert running.wait_for(look, "the Service to come back", 10)


def test_a_change_by_hand_is_put_back(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    world.create("chat")
    world.wait_ready("chat")
    path = CHILDREN["deployments"].format(world.namespace, "chat") + "?fieldManager=kubectl-edit"
    body = {"spec": {"minReadySeconds": 77, "strategy": {"rollingUpdate": {"maxUnavailable": 3}}}}

    world.api.request("PATCH", path, body, content_type="application/merge-patch+json")

    def look() -> bool:
        spec = world.wait_child("deployments", "chat")["spec"]
        return bool(spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 1)

    assert running.wait_for(look, "maxUnavailable to be 1 again", 10)
    # A field that is not ours stays as somebody else set it.
    assert world.wait_child("deployments", "chat")["spec"]["minReadySeconds"] == 77


def test_a_label_taken_off_by_hand_is_put_back(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    world.create("chat")
    world.wait_ready("chat")
    path = CHILDREN["services"].format(world.namespace, "chat")
    body = {"metadata": {"labels": {"llmservice.dev/service": None}}}

    world.api.request("PATCH", path, body, content_type="application/merge-patch+json")

    def look() -> bool:
        labels = world.wait_child("services", "chat")["metadata"]["labels"]
        return bool(labels.get("llmservice.dev/service") == "chat")

    assert running.wait_for(look, "the label to be back", 10)


def test_a_strangers_service_of_the_same_name_is_left_alone(
    operator: running.OperatorProcess, world: World
) -> None:
    theirs = {"metadata": {"name": "chat"}, "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}}
    before = world.api.request("POST", f"/api/v1/namespaces/{world.namespace}/services", theirs)
    operator.start_ready()
    world.create("chat")

    def look() -> Object | None:
        found = running.condition(world.service("chat"), "Stalled")
        return found if found.get("status") == "True" else None

    stalled = running.wait_for(look, "the conflict to be told")

    assert "Service" in stalled["message"]
    assert world.child("services", "chat") == before


def test_other_namespaces_are_not_touched_in_namespaced_mode(
    operator: running.OperatorProcess, world: World, api: Api
) -> None:
    elsewhere = World(api, f"{world.namespace}-other")
    running.make_namespace(api, elsewhere.namespace)
    operator.start_ready()
    elsewhere.create("far")
    world.create("chat")

    world.wait_ready("chat")

    assert elsewhere.child("deployments", "far") is None


def test_when_all_is_well_nothing_is_written_but_the_lease(
    operator: running.OperatorProcess,
    world: World,
    light_cluster: LightCluster,
    written: Callable[[int, str], list[tuple[str, str]]],
) -> None:
    operator.start_ready()
    for name in ("a", "b", "c"):
        world.create(name)
    for name in ("a", "b", "c"):
        world.wait_ready(name)
    posted = 'llmservice_events_total{result="posted"}'
    running.wait_for(lambda: operator.metrics().get(posted, 0) >= 3, "the events to be posted")
    time.sleep(2)
    mark = light_cluster.audit.mark()

    time.sleep(12)

    writes = written(mark, world.namespace)
    assert set(writes) == {("update", "coordination.k8s.io/leases")}
    assert len(writes) <= 3


def test_sigterm_ends_it_within_ten_seconds_and_gives_the_lease_back(
    operator: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    held_by = world.lease()["spec"]["holderIdentity"]
    started = time.monotonic()

    code = operator.terminate()

    assert (code, held_by) == (0, f"op-{world.namespace}")
    assert time.monotonic() - started < 10
    assert world.lease()["spec"]["holderIdentity"] == ""


def test_a_standby_is_ready_and_takes_over_when_the_leader_stops(
    operator: running.OperatorProcess, standby: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    standby.start_ready("standby")
    state = standby.state()

    operator.terminate()
    standby.wait_state("working", seconds=8)
    world.create("chat")

    assert state == "standby"
    assert world.wait_ready("chat")


def test_a_standby_takes_over_from_a_leader_that_was_killed(
    operator: running.OperatorProcess, standby: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    standby.start_ready("standby")

    operator.kill()
    started = time.monotonic()
    standby.wait_state("working", seconds=25)

    # Not before the Lease's 15 s have passed since its last renewal, which was up to 6 s before the kill.
    assert time.monotonic() - started > 8
    assert world.lease()["spec"]["leaseTransitions"] == 1


def test_restarted_under_the_same_identity_it_goes_on_at_once(
    operator: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    operator.kill()

    seconds = operator.start_ready()
    operator.wait_state("working", seconds=5)

    assert seconds < 10
    assert world.lease()["spec"]["leaseTransitions"] == 0


def test_a_stolen_lease_ends_the_process(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases/llmservice-operator"

    world.api.request(
        "PATCH", path, {"spec": {"holderIdentity": "thief"}}, content_type="application/merge-patch+json"
    )

    assert operator.wait_end(15) == 1
    assert world.lease()["spec"]["holderIdentity"] == "thief"


def test_a_short_absence_of_the_api_server_is_survived(
    operator: running.OperatorProcess, world: World, light_cluster: LightCluster
) -> None:
    operator.start_ready()
    with light_cluster.faults.stopped("kube-apiserver"):
        time.sleep(5)
        health, ready = operator.page("/healthz")[0], operator.page("/readyz")[0]
    world.create("chat")

    assert (health, ready) == (200, 200)
    assert world.wait_ready("chat")


def test_without_the_api_server_it_stays_alive_until_the_lease_is_lost(
    operator: running.OperatorProcess, light_cluster: LightCluster
) -> None:
    operator.start_ready()
    with light_cluster.faults.stopped("kube-apiserver"):
        stopped = time.monotonic()
        code = operator.wait_end(30)
        lived = time.monotonic() - stopped

    assert code == 1
    assert lived > 4
    assert any("was not renewed" in line.get("error", "") for line in operator.lines())


def test_a_crd_that_goes_ends_the_process_and_the_next_one_waits_for_it(
    operator: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    try:
        world.api.request("DELETE", f"{running.CRDS}/llmservices.llmservice.dev")

        assert operator.wait_end(40) == 1
        operator.start()
        assert operator.wait_state("filling") == "filling"
    finally:
        running.install_crds(world.api)
    operator.wait_state("working")
    world.create("late")

    world.wait_child("deployments", "late")


def test_metrics_tell_of_requests_reconciles_and_services(
    operator: running.OperatorProcess, world: World
) -> None:
    operator.start_ready()
    world.create("chat")
    world.wait_ready("chat")
    ready = 'llmservice_services{ready="True",reason="ScaledToZero"}'

    running.wait_for(lambda: operator.metrics().get(ready) == 1, "the service to be counted")
    metrics = operator.metrics()

    assert metrics["llmservice_leader"] == 1
    assert metrics['llmservice_reconciles_total{result="success"}'] >= 1
    assert metrics['llmservice_reconciles_total{result="error"}'] == 0
    assert metrics['llmservice_applies_total{kind="Deployment",result="created"}'] == 1
    written = [value for sample, value in metrics.items() if 'requests_total{code="201"' in sample]
    assert sum(written) >= 4
    assert metrics['llmservice_objects{kind="LLMService"}'] == 1


def test_every_reconcile_leaves_one_line(operator: running.OperatorProcess, world: World) -> None:
    operator.start_ready()
    world.create("chat")
    world.wait_ready("chat")
    operator.terminate()

    lines = [line for line in operator.lines() if line["msg"] == "reconcile"]
    counted = json.dumps([line["service"] for line in lines])

    assert lines, counted
    assert {line["service"] for line in lines} == {f"{world.namespace}/chat"}
    assert {line["result"] for line in lines} == {"success"}


def test_wrong_settings_end_the_start_with_words(tmp_path: Path) -> None:
    environ = {**os.environ, "LLMSERVICE_WORKERS": "none", "KUBECONFIG": str(tmp_path / "none")}

    ended = subprocess.run(
        [sys.executable, "-c", running.COMMAND], env=environ, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert "LLMSERVICE_WORKERS is 'none'; it takes a whole number from 1 to 256" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "none"), "LLMSERVICE_HTTP_PORT": "0"}

    ended = subprocess.run(
        [sys.executable, "-c", running.COMMAND], env=environ, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    assert f"kubeconfig {tmp_path / 'none'} gives no way to an API server" in ended.stderr
    assert "Traceback" not in ended.stderr
