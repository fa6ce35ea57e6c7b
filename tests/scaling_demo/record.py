"""What is recorded: replicas asked for and ready, conditions, decisions, and the operator's own series."""

import threading
import time
from types import TracebackType
from typing import Any, Self

import deploy
from devcluster import Cluster
from soak.real import PAGE_SECONDS, read_page


class Recorder:
    """Looks every few seconds, between entry and exit."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        base = f"/namespaces/{namespace}"
        self._service = f"/apis/llmservice.dev/v1alpha1{base}/llmservices/{name}"
        self._deployment = f"/apis/apps/v1{base}/deployments/{name}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._points: list[dict[str, Any]] = []
        self._decisions: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(2 * PAGE_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(PAGE_SECONDS):
            self._look()

    def _look(self) -> None:
        service, api = self._cluster.api.request("GET", self._service), self._cluster.api
        deployment = api.request("GET", self._deployment)
        status = service.get("status", {})
        for decision in status.get("scaling", {}).get("decisions") or ():
            self._decisions.setdefault(str(decision["at"]), decision)
        conditions = ("MetricsAvailable", "ScalingActive", "SLOMet")
        self._points.append(
            {
                "at": round(time.time(), 1),
                "desired": deployment["spec"]["replicas"],
                "ready": deployment.get("status", {}).get("readyReplicas", 0),
                "reasons": [deploy.condition(service, each).get("reason", "") for each in conditions],
                "series": read_page(self._cluster),
            }
        )

    def as_json(self) -> dict[str, Any]:
        """All points, each change of replicas, and every decision seen."""
        changes: list[tuple[float, int]] = []
        for point in self._points:
            if not changes or changes[-1][1] != point["desired"]:
                changes.append((point["at"], point["desired"]))
        return {"points": self._points, "replicas": changes, "decisions": list(self._decisions.values())}
