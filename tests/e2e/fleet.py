"""LLMServices on the fake engine, and what to look at to tell a roll from none."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import deploy
from devcluster.fixtures import AnyCluster

Object = dict[str, Any]
FAKE_ENGINE = "ghcr.io/llmservice/fake-engine:0.32.0"
CONFIG_MAP = "smollm2-config"
LITTLE = {"requests": {"cpu": "10m", "memory": "64Mi"}}
WAIT_SECONDS = 120.0
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
"""The Deployment controller counts the pod templates here: one more is one roll."""

ASK = """
import json, sys, urllib.request
body = json.dumps({"model": sys.argv[2], "prompt": "The capital of France is", "max_tokens": 8}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["text"])
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What runs of one service: equal before and after where nothing was restarted."""

    pods: tuple[str, ...]
    """uids of the pods, those on their way out left out."""
    restarts: int
    """Of all their containers."""
    templates: int
    """Pod templates that the Deployment has had."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The services of one namespace."""

    cluster: AnyCluster
    namespace: str

    def apply(self, name: str, **spec: Any) -> None:
        """`kubectl apply` of a service; `spec` over the defaults of `llmservice`."""
        deploy.apply(self.cluster, llmservice(name, self.namespace, **spec))

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        """`kubectl patch --type=merge`, as a user would."""
        self.kubectl("patch", kind, name, "--type=merge", "--patch", json.dumps(body))

    def kubectl(self, *arguments: str, timeout_seconds: float = WAIT_SECONDS) -> str:
        """`kubectl` in the namespace; its output."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, timeout_seconds=timeout_seconds)

    def get(self, kind: str, name: str) -> Object:
        """The object as it is now."""
        found: Object = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def run(self, name: str) -> Run:
        """What runs of the service now."""
        text = self.kubectl("get", "pods", "-l", f"llmservice.dev/service={name}", "-o", "json")
        pods = [each for each in json.loads(text)["items"] if "deletionTimestamp" not in each["metadata"]]
        statuses = [
            status
            for pod in pods
            for status in (
                *pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())
            )
        ]  # fmt: skip
        deployment = self.get("deployment", name)
        return Run(
            pods=tuple(sorted(pod["metadata"]["uid"] for pod in pods)),
            restarts=sum(status["restartCount"] for status in statuses),
            templates=int(deployment["metadata"]["annotations"][REVISION_ANNOTATION]),
        )

    def wait(
        self, name: str, wanted: Callable[[Object], bool], *, timeout_seconds: float = WAIT_SECONDS
    ) -> Object:
        """The service, once it is as wanted and its status speaks of what its user says now."""
        path = deploy.llmservice_path(self.namespace, name)

        def told(service: Object) -> bool:
            seen = service.get("status", {}).get("observedGeneration")
            return bool(seen == service["metadata"]["generation"] and wanted(service))

        return deploy.wait_until(self.cluster, path, told, timeout_seconds=timeout_seconds)

    def wait_ready(self, name: str, *, replicas: int = 1) -> Object:
        """The service, once so many replicas of the newest revision serve and nothing is left to do."""
        return self.wait(
            name,
            lambda service: (
                deploy.condition(service, "Ready").get("status") == "True"
                and deploy.condition(service, "Progressing").get("reason") == "Complete"
                and service["status"]["readyReplicas"] == service["status"]["replicas"] == replicas
            ),
        )

    def wait_run(self, name: str, before: Run, *, templates: int) -> Run:
        """What runs once the Deployment has had so many templates and every pod that ran before is gone."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments?fieldSelector=metadata.name%3D{name}"
        deploy.wait_until(
            self.cluster, path, lambda each: rolled(each, templates), timeout_seconds=WAIT_SECONDS
        )
        self.wait_ready(name, replicas=len(before.pods))
        return self.run(name)

    def ask(self, name: str) -> str:
        """An answer through the Service's address, asked from an engine's pod: the operator may be away."""
        address = f"http://{name}.{self.namespace}.svc:8000/v1/completions"
        target = f"deployment/{name}"
        return self.kubectl("exec", target, "-c", "engine", "--", "python3", "-c", ASK, address, name).strip()

    def remove_all(self) -> None:
        """Delete all services and wait for their pods' end.

        A namespace that is deleted while pods stop is looked at again only after half their grace period: minutes.
        """
        self.kubectl("delete", "llmservice", "--all", "--wait=true")
        self.kubectl(
            "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=llmservice", "--timeout=110s"
        )

    def touch(self, name: str, text: str) -> None:
        """An edit that concerns no pod, and wait until the operator has seen it, and so all before it."""
        self.patch(
            "llmservice", name, {"spec": {"service": {"annotations": {"e2e.llmservice.dev/touched": text}}}}
        )
        self.wait(name, lambda _: True)


def llmservice(name: str, namespace: str, **spec: Any) -> Object:
    """SmolLM2's plan on the CPU row, served by the fake engine."""
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "pvc://models/smollm2", "configMap": CONFIG_MAP},
            "engine": {"image": FAKE_ENGINE},
            "accelerator": {"types": ["cpu"]},
            "workload": {"context": {"max": 2048}},
            "podTemplate": {"resources": LITTLE},
            **spec,
        },
    }


def config_map(namespace: str) -> Object:
    """The model's config.json, by which it is planned."""
    config = (deploy.build_model() / "config.json").read_text()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": {"config.json": config},
    }


def rolled(deployment: Object, templates: int) -> bool:
    """Whether the Deployment has had so many templates and runs none but the last."""
    metadata, status = deployment["metadata"], deployment.get("status", {})
    wanted = deployment["spec"]["replicas"]
    return (
        int(metadata.get("annotations", {}).get(REVISION_ANNOTATION, "0")) >= templates
        and status.get("observedGeneration", 0) >= metadata["generation"]
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )
