"""What restarts an engine, and what never does: edits, upgrades of the operator, hands, and a full cluster."""

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from devcluster.fixtures import AnyCluster
from e2e.conftest import Platform
from e2e.fleet import FAKE_ENGINE, LITTLE, Fleet, config_map

pytestmark = pytest.mark.cluster

HUB_MODEL = "hf://HuggingFaceTB/SmolLM2-135M-Instruct"
OTHER_TAG = "0.1.0-other"
OTHER_HUB = "https://hub.example.internal"
OTHER_ROW = {
    "name": "nvidia-h200",
    "memoryGiB": 139.8,
    "memoryBandwidthBytesPerSecond": 4_800_000_000_000,
    "bf16FlopsPerSecond": 989_400_000_000_000,
    "fp8FlopsPerSecond": 1_978_900_000_000_000,
    "computeCapability": "9.0",
    "costPerHour": 3.5,
    "maxPerNode": 8,
    "deviceNameContains": ["H200"],
    "nodeLabels": {"nvidia.com/gpu.product": ["NVIDIA-H200", "NVIDIA-H200-NVL"]},
    "evidence": "datasheet",
    "sources": {"memory": "tests", "speed": "tests", "cost": "tests"},
}
"""The built-in row at another price, and for nodes with other labels."""

ON_H200 = {
    "accelerator": {"types": ["nvidia-h200"]},
    "engine": {"image": FAKE_ENGINE, "env": [{"name": "FAKE_ENGINE_DEVICE", "value": "cuda"}]},
}

STREAMS = """
import http.client, json, select, sys, time
host, model = sys.argv[1:]
body = json.dumps({"model": model, "prompt": "Once", "max_tokens": 300, "stream": True, "ignore_eos": True})
headers = {"Content-Type": "application/json"}
connection = http.client.HTTPConnection(host, 8000, timeout=60)
count = {"whole": 0, "cut": 0, "reconnects": 0}

def send():
    connection.request("POST", "/v1/completions", body, headers)
    return connection.getresponse()

def stream():
    try:
        response = send()
    except (http.client.HTTPException, OSError):
        # Closed while it was idle, before a byte of an answer: every client connects anew then.
        connection.close()
        count["reconnects"] += 1
        response = send()
    if response.status == 200 and b"data: [DONE]" in response.read():
        count["whole"] += 1
    else:
        count["cut"] += 1
        connection.close()

while True:
    try:
        stream()
    except (http.client.HTTPException, OSError):
        count["cut"] += 1
        connection.close()
    print(json.dumps(count), flush=True)
    # A pause between two requests, or the end: the input is closed.
    if select.select([sys.stdin], [], [], 3)[0]:
        break
"""


@pytest.fixture(scope="module")
def fleet(platform: Platform, namespace: str) -> Iterator[Fleet]:
    """`web`: two replicas of a model on a volume; `hub`: one of a model of the hub. Both ready."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace))
    fleet.apply("web", replicas=2)
    fleet.apply("hub", model={"uri": HUB_MODEL, "configMap": "smollm2-config"})
    fleet.wait_ready("web", replicas=2)
    fleet.wait_ready("hub")
    yield fleet
    fleet.remove_all()


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"workload": {"inputTokens": {"p50": 100, "p95": 400}}}, id="a hint on lengths"),
        pytest.param({"service": {"annotations": {"example.com/team": "search"}}}, id="the Service"),
        pytest.param({"accelerator": {"parallelism": {"tensor": "auto"}}}, id="a default written down"),
        pytest.param({"workload": {"context": {"min": 512}}}, id="a floor that the plan holds already"),
    ],
)
def test_an_edit_that_changes_no_knob_restarts_nothing(fleet: Fleet, spec: dict[str, Any]) -> None:
    before = fleet.run("web")

    fleet.patch("llmservice", "web", {"spec": spec})
    fleet.wait("web", lambda _: True)

    assert fleet.run("web") == before


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("service", {"spec": {"ports": [{"port": 8000, "targetPort": 9999}]}}, "spec.ports[0].targetPort"),
        ("poddisruptionbudget", {"spec": {"maxUnavailable": 0}}, "spec.maxUnavailable"),
        ("deployment", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}}, "spec.strategy"),
    ],
)
def test_a_hand_edit_of_an_owned_field_is_put_back_without_a_restart(
    fleet: Fleet, kind: str, body: dict[str, Any], field: str
) -> None:
    before, value = fleet.run("web"), _spec(fleet.get(kind, "web"))

    fleet.patch(kind, "web", body)
    deploy.wait_until(
        fleet.cluster,
        _path(fleet, kind, "web"),
        lambda each: _spec(each) == value,
        timeout_seconds=30,
    )

    assert fleet.run("web") == before


@pytest.mark.parametrize("kind", ["service", "poddisruptionbudget"])
def test_a_deleted_child_comes_back_without_a_restart(fleet: Fleet, kind: str) -> None:
    before, old = fleet.run("web"), fleet.get(kind, "web")["metadata"]["uid"]

    fleet.kubectl("delete", kind, "web", "--wait=false")
    deploy.wait_until(
        fleet.cluster,
        _path(fleet, kind, "web"),
        lambda each: not each.get("deleted") and each["metadata"]["uid"] != old,
        timeout_seconds=30,
    )

    assert fleet.run("web") == before


def test_a_paused_service_is_not_written_to_until_the_pause_ends(fleet: Fleet) -> None:
    before, value = fleet.run("web"), _spec(fleet.get("poddisruptionbudget", "web"))
    fleet.kubectl("annotate", "llmservice", "web", "llmservice.dev/paused=true")
    fleet.wait("web", lambda each: deploy.condition(each, "Progressing").get("reason") == "Paused")

    fleet.patch("poddisruptionbudget", "web", {"spec": {"maxUnavailable": 0}})
    fleet.patch("llmservice", "web", {"spec": {"workload": {"context": {"max": 1536}}}})
    fleet.wait("web", lambda each: deploy.condition(each, "Progressing").get("reason") == "Paused")
    paused = fleet.get("poddisruptionbudget", "web")["spec"]["maxUnavailable"], fleet.run("web")
    fleet.patch("llmservice", "web", {"spec": {"workload": {"context": {"max": 2048}}}})
    fleet.kubectl("annotate", "llmservice", "web", "llmservice.dev/paused-")
    deploy.wait_until(
        fleet.cluster,
        _path(fleet, "poddisruptionbudget", "web"),
        lambda each: _spec(each) == value,
        timeout_seconds=30,
    )

    assert paused == (0, before)
    assert fleet.run("web") == before


def test_an_edit_that_changes_a_knob_rolls_once_and_cuts_no_stream(fleet: Fleet) -> None:
    before = fleet.run("web")

    with streams(fleet, "web") as client:
        fleet.patch("llmservice", "web", {"spec": {"workload": {"context": {"max": 1024}}}})
        after = fleet.wait_run("web", before, templates=before.templates + 1)
        counted = _end(client)
    fleet.touch("web", "after the edit")

    print(f"\nstreams: {counted}")
    assert counted["cut"] == 0
    assert counted["whole"] > 0
    assert set(after.pods).isdisjoint(before.pods)
    assert (after.templates, after.restarts) == (before.templates + 1, 0)
    assert fleet.run("web") == after


def test_kubectl_rollout_restart_rolls_once(fleet: Fleet) -> None:
    before = fleet.run("hub")

    fleet.kubectl("rollout", "restart", "deployment/hub")
    after = fleet.wait_run("hub", before, templates=before.templates + 1)
    fleet.touch("hub", "after the restart")

    assert set(after.pods).isdisjoint(before.pods)
    assert after.templates == before.templates + 1
    assert fleet.run("hub") == after


def test_a_full_cluster_rolls_in_place(fleet: Fleet) -> None:
    """One accelerator is left on the node, and one pod holds it: a surge would wait for ever."""
    with one_accelerator_left(fleet) as node:
        fleet.apply(
            "full",
            **ON_H200,
            podTemplate={"resources": LITTLE, "nodeSelector": {"kubernetes.io/hostname": node}},
        )
        fleet.wait_ready("full")
        before = fleet.run("full")

        fleet.patch("llmservice", "full", {"spec": {"engine": {"args": {"seed": "7"}}}})
        after = fleet.wait_run("full", before, templates=before.templates + 1)
        fleet.kubectl("delete", "llmservice", "full", "--wait=true")

    assert set(after.pods).isdisjoint(before.pods)
    assert after.templates == before.templates + 1


@pytest.fixture(scope="module")
def upgraded(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What ran before an upgrade that differs in image, in an environment variable and in the catalogue."""
    folder = tmp_path_factory.mktemp("upgrade")
    archive = deploy.build_images("operator")["operator"]
    fleet.cluster.load_image(retagged(archive, folder / "operator.tar"))
    fleet.apply("gpu", **ON_H200)
    fleet.wait_ready("gpu")
    before = {name: fleet.run(name) for name in ("web", "hub", "gpu")}
    values = {"image": {"tag": OTHER_TAG}, "hub": {"endpoint": OTHER_HUB}, "accelerators": [OTHER_ROW]}
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    try:
        deploy.helm(
            fleet.cluster, "upgrade", deploy.RELEASE, str(deploy.CHART), "--namespace", deploy.OPERATOR_NAMESPACE,
            "--reuse-values", "--values", str(file), "--wait", "--timeout", "120s",
        )  # fmt: skip
        yield before
    finally:
        deploy.install_operator(fleet.cluster, archive)


def test_an_upgrade_of_the_operator_restarts_nothing(fleet: Fleet, upgraded: dict[str, Any]) -> None:
    told = {name: _wait_up_to_date(fleet, name, "False")["message"] for name in upgraded}

    assert {name: fleet.run(name) for name in upgraded} == upgraded
    assert OTHER_TAG in told["web"]
    assert "HF_ENDPOINT" in told["hub"]
    assert "affinity" in told["gpu"]


def test_an_edit_that_changes_no_knob_brings_no_upgrade_with_it(
    fleet: Fleet, upgraded: dict[str, Any]
) -> None:
    fleet.patch("llmservice", "hub", {"spec": {"workload": {"inputTokens": {"p50": 50, "p95": 200}}}})
    _wait_up_to_date(fleet, "hub", "False")

    assert fleet.run("hub") == upgraded["hub"]


def test_the_upgrade_is_taken_on_request_in_one_roll(fleet: Fleet, upgraded: dict[str, Any]) -> None:
    before = fleet.run("hub")

    fleet.kubectl("annotate", "llmservice", "hub", "llmservice.dev/refresh=now")
    after = fleet.wait_run("hub", before, templates=before.templates + 1)
    _wait_up_to_date(fleet, "hub", "True")
    fleet.touch("hub", "after the refresh")

    template = fleet.get("deployment", "hub")["spec"]["template"]
    assert template["spec"]["initContainers"][0]["image"].endswith(f":{OTHER_TAG}")
    assert after.templates == before.templates + 1
    assert fleet.run("hub") == after


def _wait_up_to_date(fleet: Fleet, name: str, status: str) -> dict[str, Any]:
    found = fleet.wait(name, lambda each: deploy.condition(each, "UpToDate").get("status") == status)
    return deploy.condition(found, "UpToDate")


def _spec(obj: dict[str, Any]) -> Any:
    return obj["spec"]


def _path(fleet: Fleet, kind: str, name: str) -> str:
    group, plural = {
        "service": ("/api/v1", "services"),
        "poddisruptionbudget": ("/apis/policy/v1", "poddisruptionbudgets"),
        "deployment": ("/apis/apps/v1", "deployments"),
    }[kind]
    return f"{group}/namespaces/{fleet.namespace}/{plural}?fieldSelector=metadata.name%3D{name}"


def retagged(archive: Path, target: Path) -> Path:
    """The same image under another tag: the archive says its name in manifest.json, or in OCI's index.json."""
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = old.extractfile(member) if member.isfile() else None
            if content is not None and Path(member.name).name in {"index.json", "manifest.json"}:
                data = content.read().replace(b"operator:0.1.0", f"operator:{OTHER_TAG}".encode())
                member.size, content = len(data), io.BytesIO(data)
            new.addfile(member, content)
    return target


@contextmanager
def streams(fleet: Fleet, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A client with one connection kept alive that streams again and again, from the operator's pod."""
    command = deploy.kubectl_command(
        fleet.cluster, "exec", "-i", "-n", deploy.OPERATOR_NAMESPACE, f"deployment/{deploy.RELEASE}", "--",
        "python3", "-c", STREAMS, f"{name}.{fleet.namespace}.svc", name,
    )  # fmt: skip
    environ = deploy.direct_environment()
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert json.loads(client.stdout.readline())["whole"] == 1
        try:
            yield client
        finally:
            client.kill()


def _end(client: "subprocess.Popen[str]") -> dict[str, int]:
    """End the client after the stream that runs; what it counted."""
    output, _ = client.communicate(timeout=60)
    counted: dict[str, int] = json.loads(output.strip().splitlines()[-1])
    return counted


@contextmanager
def one_accelerator_left(fleet: Fleet) -> Iterator[str]:
    """A node of which a pod holds all accelerators but one."""
    cluster: AnyCluster = fleet.cluster
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    node = next(each for each in nodes if int(each["status"]["allocatable"].get("nvidia.com/gpu", 0)) > 1)
    name = node["metadata"]["name"]
    count = str(int(node["status"]["allocatable"]["nvidia.com/gpu"]) - 1)
    container = {
        "name": "holder",
        "image": FAKE_ENGINE,
        "command": ["sleep", "3600"],
        "resources": {"limits": {"nvidia.com/gpu": count}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 2000, "seccompProfile": {"type": "RuntimeDefault"}}
    holder = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder", "namespace": fleet.namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": name},
            "containers": [container],
            "securityContext": security,
            "terminationGracePeriodSeconds": 0,
        },
    }
    deploy.apply(cluster, holder)
    fleet.kubectl("wait", "--for=condition=Ready", "pod/holder", "--timeout=60s")
    yield name
    fleet.kubectl("delete", "pod", "holder")
