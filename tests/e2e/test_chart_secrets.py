"""Secrets reach the engine and nothing else: they are planted, and looked for in all that the product says."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

import deploy
from devcluster.errors import CommandError
from e2e.conftest import Platform
from e2e.fleet import FAKE_ENGINE, Fleet, config_map

pytestmark = pytest.mark.cluster

HUB_MODEL = "hf://HuggingFaceTB/SmolLM2-135M-Instruct"
PAGES = (8000, "/metrics"), (9410, "/metrics"), (9410, "/report"), (9410, "/startup"), (9410, "/ready")
READ = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        answer = urllib.request.urlopen(url, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    print(url, answer.status, answer.read().decode())
"""
KINDS = (
    "llmservices,pods,deployments,replicasets,controllerrevisions,services,configmaps,poddisruptionbudgets,"
    "events.events.k8s.io"
)


class Planted:
    """Three services' worth of secrets, each value like no other text."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.values = {key: f"planted-{key}-{uuid4().hex}" for key in ("api-key", "token", "password")}

    def plant(self) -> None:
        """A service that uses all of them and serves, and one whose engine ends with an error."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "planted", "namespace": self._fleet.namespace},
            "stringData": self.values,
        }
        deploy.apply(self._fleet.cluster, secret, config_map(self._fleet.namespace))
        environment = [
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "planted", "key": "password"}}}
        ]
        said = {
            "model": {"uri": HUB_MODEL, "configMap": "smollm2-config", "tokenSecret": {"name": "planted"}},
            "drain": {"timeout": "5s"},
            "engine": {
                "image": FAKE_ENGINE,
                "apiKeySecret": {"name": "planted"},
                "env": environment,
            },
        }
        self._fleet.apply("good", **said)
        fault = {"name": "FAKE_ENGINE_FAULT", "value": "die:step=load,code=3"}
        self._fleet.apply("bad", **(said | {"engine": said["engine"] | {"env": [*environment, fault]}}))
        self._fleet.wait_ready("good")
        self._fleet.wait(
            "bad",
            lambda service: (
                deploy.condition(service, "Stalled").get("status") == "True"
                or "3" in deploy.condition(service, "Ready").get("message", "")
            ),
        )

    def seen(self) -> dict[str, str]:
        """All that is said about the services, by where it is said."""
        fleet, operator = self._fleet, ("-n", deploy.OPERATOR_NAMESPACE)
        pods = json.loads(fleet.kubectl("get", "pods", "-o", "json"))["items"]
        said = {
            "objects": fleet.kubectl("get", KINDS, "-o", "json"),
            "operator's objects": fleet.cluster.kubectl("get", KINDS, *operator, "-o", "json"),
            "operator's log": fleet.cluster.kubectl(
                "logs", f"deployment/{deploy.RELEASE}", *operator, "--tail=-1"
            ),
            "description": fleet.kubectl("describe", "llmservices"),
        }
        for pod in pods:
            name = pod["metadata"]["name"]
            for previous in ("false", "true"):
                arguments = ("logs", name, "--all-containers", "--ignore-errors", f"--previous={previous}")
                said[f"log of {name}, previous={previous}"] = self._log(*arguments)
        urls = [
            f"http://{pod['status']['podIP']}:{port}{path}"
            for pod in pods
            if pod["metadata"]["labels"]["llmservice.dev/service"] == "good"
            for port, path in PAGES
        ]
        urls.append("http://127.0.0.1:8080/metrics")
        target = f"deployment/{deploy.RELEASE}"
        said["pages"] = fleet.cluster.kubectl("exec", *operator, target, "--", "python3", "-c", READ, *urls)
        return said

    def _log(self, *arguments: str) -> str:
        try:
            return self._fleet.kubectl(*arguments)
        except CommandError:
            return ""  # a container that has not run before


@pytest.fixture(scope="module")
def planted(platform: Platform, namespace: str) -> Iterator[Planted]:
    """The services, after what is to be said of them has been said."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    found = Planted(fleet)
    found.plant()
    yield found
    fleet.remove_all()


def test_the_engine_has_them(planted: Planted) -> None:
    """Else the search below would prove nothing."""
    code = "import os; print(os.environ['PASSWORD'], os.environ['HF_TOKEN'], os.environ['VLLM_API_KEY'])"
    held = planted._fleet.kubectl("exec", "deployment/good", "-c", "engine", "--", "python3", "-c", code)

    assert set(held.split()) == set(planted.values.values())


def test_nothing_tells_them(planted: Planted) -> None:
    leaks = [
        (where, key)
        for where, text in planted.seen().items()
        for key, value in planted.values.items()
        if value in text
    ]

    assert leaks == []
