"""Running Helm on the chart, and reading what it renders."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

import deploy
from devcluster.fixtures import AnyLightCluster

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "llmservice-operator"
NAME = "llmservice-operator"
NAMESPACE = "llmservice-system"
MONITORING = "monitoring.coreos.com/v1"
"""The Prometheus operator's API, as `helm template` may be told of it."""


class HelmError(Exception):
    """Helm refused; the text is its own."""


def helm(*arguments: str, cluster: AnyLightCluster | None = None) -> str:
    """Run Helm, against the cluster if one is given, and return its output."""
    environ = deploy.direct_environment()
    if cluster is not None:
        environ["KUBECONFIG"] = str(cluster.kubeconfig)
    done = subprocess.run(
        [deploy.program("helm"), *arguments], env=environ, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def values_arguments(values: dict[str, Any]) -> list[str]:
    """The values as arguments of Helm."""
    return [
        argument for key, value in values.items() for argument in ("--set-json", f"{key}={json.dumps(value)}")
    ]


def render(*arguments: str, **values: Any) -> list[dict[str, Any]]:
    """The objects of a release with these values, without the pods of `helm test`."""
    text = helm(
        "template", NAME, str(CHART), "--namespace", NAMESPACE, "--skip-tests", *arguments, *values_arguments(values)
    )  # fmt: skip
    return [document for document in yaml.safe_load_all(text) if document]


def render_monitored(**values: Any) -> list[dict[str, Any]]:
    """The objects of a release where the Prometheus operator is."""
    return render("--api-versions", MONITORING, **values)


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The objects of this kind."""
    return [each for each in objects if each["kind"] == kind]


def operator_container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The operator's container."""
    (deployment,) = of_kind(objects, "Deployment")
    container: dict[str, Any]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def operator_environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    """The operator's variables that have a value of their own."""
    return {each["name"]: each["value"] for each in operator_container(objects)["env"] if "value" in each}
