"""A namespace on a real API server in which the test plays controllers, scheduler and kubelet."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import factories as make
from devcluster.api import Api, ApiError
from running import OperatorProcess

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS = 20.0
PATHS = {
    "LLMService": "/apis/llmservice.dev/v1alpha1/namespaces/{}/llmservices",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass
class Played:
    """One namespace. Every wait is a watch."""

    api: Api
    namespace: str
    reports: dict[str, Object] = field(default_factory=dict)
    """What the supervisor at each pod address says."""

    def path(self, kind: str, name: str = "") -> str:
        path = PATHS[kind].format(self.namespace)
        return f"{path}/{name}" if name else path

    def get(self, kind: str, name: str) -> Object | None:
        try:
            found: Object = self.api.request("GET", self.path(kind, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def items(self, kind: str) -> list[Object]:
        items: list[Object] = self.api.request("GET", self.path(kind))["items"]
        return items

    def create(self, kind: str, body: Object) -> Object:
        created: Object = self.api.request("POST", self.path(kind), body)
        return created

    def patch(
        self, kind: str, name: str, body: Any, *, subresource: str = "", manager: str = "tester"
    ) -> Object:
        path = self.path(kind, name) + (f"/{subresource}" if subresource else "")
        patched: Object = self.api.request(
            "PATCH", f"{path}?fieldManager={manager}", body, content_type=MERGE
        )
        return patched

    def delete(self, kind: str, name: str) -> None:
        self.api.request("DELETE", self.path(kind, name), {"gracePeriodSeconds": 0})

    def wait(
        self, kind: str, name: str, until: Callable[[Object], bool], seconds: float = WAIT_SECONDS
    ) -> Object:
        """The object, as soon as it is as wanted."""
        last: Object | None = None
        for obj in self.api.events(self.path(kind), deadline=time.monotonic() + seconds):
            if obj.get("metadata", {}).get("name") != name:
                continue
            last = obj
            if until(obj):
                return obj
        shown = json.dumps((last or {}).get("status") or (last or {}).get("spec"), indent=1)
        raise AssertionError(f"{kind} {name} did not become as wanted within {seconds} s; last seen: {shown}")

    def wait_condition(self, name: str, condition_type: str, status: str, reason: str = "") -> Object:
        """The condition, once it has this status and reason for the service's generation."""

        def met(obj: Object) -> bool:
            found = condition_of(obj, condition_type)
            return (
                found is not None
                and found["status"] == status
                and reason in ("", found["reason"])
                and obj["status"]["observedGeneration"] == obj["metadata"]["generation"]
            )

        service = self.wait("LLMService", name, met)
        found = condition_of(service, condition_type)
        assert found is not None
        return found

    def serve(
        self, name: str, spec: Object | None = None, *, annotations: Object | None = None, **fields: Any
    ) -> Object:
        """Create an LLMService on the `cpu` row, of the model in the ConfigMap `tiny`."""
        return self.create("LLMService", self.service(name, spec, annotations=annotations, **fields))

    def service(
        self, name: str, spec: Object | None = None, *, annotations: Object | None = None, **fields: Any
    ) -> Object:
        body = spec or {
            "model": {"uri": "pvc://models/tiny", "configMap": "tiny"},
            "accelerator": {"types": ["cpu"]},
            **fields,
        }
        return {
            "apiVersion": "llmservice.dev/v1alpha1",
            "kind": "LLMService",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": body,
        }

    def set_spec(self, name: str, **fields: Any) -> Object:
        return self.patch("LLMService", name, {"spec": fields})

    def annotate(self, name: str, **annotations: str | None) -> Object:
        named = {f"llmservice.dev/{key}": value for key, value in annotations.items()}
        return self.patch("LLMService", name, {"metadata": {"annotations": named}})

    def deployment_at(self, name: str, revision: str = "", *, other_than: str = "") -> Object:
        """The Deployment, once it runs this revision, or another one than that."""

        def there(obj: Object) -> bool:
            found = revision_of(obj)
            return bool(found) and revision in ("", found) and found != other_than

        return self.wait("Deployment", name, there)

    # ── the parts of controllers, scheduler and kubelet ─────────────────────────────────────────────────────

    def add_pod(self, service: str, pod_name: str, status: Object | None = None) -> Object:
        """A pod of the service's Deployment as it is now, with this status."""
        deployment = self.get("Deployment", service)
        assert deployment is not None
        template = deployment["spec"]["template"]
        spec = template["spec"] | {"nodeName": "played-node"}
        metadata = {**template["metadata"], "name": pod_name}
        self.create("Pod", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return self.set_pod(pod_name, status or make.running_pod()["status"])

    def set_pod(self, pod_name: str, status: Object) -> Object:
        return self.patch("Pod", pod_name, {"status": status}, subresource="status")


def condition_of(obj: Object, condition_type: str) -> Object | None:
    """One condition of an object."""
    conditions: list[Object] = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == condition_type), None)


def revision_of(deployment: Object) -> str:
    """The revision that a Deployment runs."""
    labels = deployment["spec"]["template"]["metadata"].get("labels") or {}
    return str(labels.get("llmservice.dev/revision", ""))


class RestartableOperator:
    """The operator as a process of its own, which tests may start anew with other settings."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder
        self._process: OperatorProcess | None = None

    def restart(self, **environ: str) -> None:
        """End what runs, as a rollout would, and start with these variables."""
        self.stop()
        self._process = OperatorProcess(self._kubeconfig, self._folder, **environ)
        self._process.start_ready()

    def metrics(self) -> dict[str, float]:
        """What it tells on its metrics page."""
        assert self._process is not None
        return self._process.metrics()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate(seconds=30)
            self._process = None


class Supervisors:
    """Stands for the supervisors of all pods: each pod address on the loopback net is one, on port 9410."""

    def __init__(self) -> None:
        self.reports: dict[str, Object] = {}
        supervisors = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = supervisors.reports.get(self.connection.getsockname()[0])
                body = json.dumps(found or {}).encode()
                self.send_response(200 if found and self.path == "/report" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("0.0.0.0", 9410), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
