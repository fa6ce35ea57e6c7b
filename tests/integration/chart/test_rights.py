"""The operator's own process, with the chart's variables and no more than the chart's rights."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from devcluster.fixtures import AnyLightCluster
from integration.chart.releases import (
    CHART,
    NAME,
    NAMESPACE,
    ROOT,
    helm,
    operator_environment,
    render,
    values_arguments,
)
from ports import free_port

pytestmark = pytest.mark.light

CHILDREN = ("deployment", "service", "poddisruptionbudget", "controllerrevision")
WITHIN_SECONDS = 60


def account_kubeconfig(cluster: AnyLightCluster, path: Path) -> Path:
    """A kubeconfig of the operator's ServiceAccount."""
    token = cluster.kubectl("create", "token", NAME, "-n", NAMESPACE).strip()
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))
    return path


class OperatorProcess:
    """The operator as a process of this machine; its log is what it told."""

    def __init__(self, cluster: AnyLightCluster, folder: Path, **values: Any) -> None:
        self.port = free_port()
        self._log = folder / "operator.log"
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("LLMSERVICE_", "KUBE"))
        }
        environ |= operator_environment(render(**values))
        environ |= {
            "KUBECONFIG": str(account_kubeconfig(cluster, folder / "kubeconfig")),
            "LLMSERVICE_NAMESPACE": NAMESPACE,
            "LLMSERVICE_IDENTITY": "operator-0",
            "LLMSERVICE_HTTP_PORT": str(self.port),
            "NO_PROXY": "127.0.0.0/8,10.0.0.0/8",
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "llmservice_operator", "run"], env=environ, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + WITHIN_SECONDS
        url = f"http://127.0.0.1:{self.port}/readyz"
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise AssertionError(f"the operator is not ready:\n{self.log}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


def create_service(cluster: AnyLightCluster, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", str(ROOT / "crds" / "samples" / "smollm2.yaml"))


def wait_for_status(cluster: AnyLightCluster, namespace: str) -> None:
    """Until the operator has told what it makes of the service."""
    cluster.kubectl(
        "wait", "--for=condition=Planned", "llmsvc/smollm2", "-n", namespace, f"--timeout={WITHIN_SECONDS}s",
        timeout_seconds=WITHIN_SECONDS + 30,
    )  # fmt: skip


def owned(cluster: AnyLightCluster, namespace: str) -> set[str]:
    """Kinds of the children of the service."""
    selector = "llmservice.dev/service=smollm2"
    text = cluster.kubectl("get", ",".join(CHILDREN), "-n", namespace, "-l", selector, "-o", "json")
    return {each["kind"].lower() for each in json.loads(text)["items"]}


@pytest.fixture(params=["everywhere", "one namespace"])
def running(
    request: pytest.FixtureRequest, light_cluster: AnyLightCluster, tmp_path: Path
) -> Iterator[tuple[AnyLightCluster, OperatorProcess, str]]:
    """The operator at work, and a namespace that it looks after."""
    namespace = "work-" + request.param.replace(" ", "-")
    values = {} if request.param == "everywhere" else {"watchNamespaces": [namespace]}
    light_cluster.kubectl("create", "namespace", namespace)
    light_cluster.kubectl("apply", "-f", str(ROOT / "crds" / "llmservices.yaml"))
    deploy.wait_for_crd(light_cluster)
    # The CRD stands already, as beside any namespaced release.
    arguments = values_arguments({**values, "crds": {"install": False}})
    helm(
        "install", NAME, str(CHART), "--namespace", NAMESPACE, "--create-namespace", *arguments,
        cluster=light_cluster,
    )  # fmt: skip
    process = OperatorProcess(light_cluster, tmp_path, **values)
    try:
        yield light_cluster, process, namespace
    finally:
        process.stop()
        helm("uninstall", NAME, "--namespace", NAMESPACE, cluster=light_cluster)
        light_cluster.kubectl("delete", "llmsvc", "--all", "-n", namespace)
        light_cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def test_the_charts_rights_are_enough(running: tuple[AnyLightCluster, OperatorProcess, str]) -> None:
    cluster, operator, namespace = running
    operator.wait_until_ready()
    create_service(cluster, namespace)
    wait_for_status(cluster, namespace)

    assert owned(cluster, namespace) == set(CHILDREN)
    assert "forbidden" not in operator.log.lower()
