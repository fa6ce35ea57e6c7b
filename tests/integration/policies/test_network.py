"""The NetworkPolicies that ship: taken by a real API server, and about the pods and ports that there really are.

That traffic is held to them is looked at by packets, in `network_policies/`.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.fixtures import AnyLightCluster
from llmservice_operator.api import labels

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "policies" / "network"
MANIFESTS = ROOT / "tests" / "golden" / "manifests"
POLICIES: list[dict[str, Any]] = [
    yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("engines-*.yaml"))
]


def engine_pod() -> dict[str, Any]:
    """The pod template of a service, as it is rendered."""
    objects = yaml.safe_load_all((MANIFESTS / "every-field.yaml").read_text())
    template: dict[str, Any] = next(
        each["spec"]["template"] for each in objects if each["kind"] == "Deployment"
    )
    return template


@pytest.mark.light
def test_the_api_server_takes_them(light_cluster: AnyLightCluster) -> None:
    said = light_cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-n", "default", "-k", str(FOLDER)
    )

    assert len(said.splitlines()) == len(POLICIES) == 5


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each["metadata"]["name"])
def test_they_select_engines_pods(policy: dict[str, Any]) -> None:
    selected = policy["spec"]["podSelector"]["matchLabels"]

    assert selected.items() <= engine_pod()["metadata"]["labels"].items()


def test_ports_are_the_engines_own() -> None:
    named = {
        port["port"]
        for policy in POLICIES
        for rule in policy["spec"].get("ingress", [])
        for port in rule["ports"]
    }
    (container,) = engine_pod()["spec"]["containers"]

    assert named == {port["name"] for port in container["ports"]}
    assert named == {labels.HTTP_PORT_NAME, labels.SUPERVISOR_PORT_NAME}
