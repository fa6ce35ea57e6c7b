"""Pages over HTTP, and the scrapes that the chart's monitors ask for."""

import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from devcluster.binaries import Binaries
from llmservice_operator.api.labels import child_labels
from observability.rules import ROOT
from observability.stage.cluster import Target
from observability.stage.samples import line

CHART = ROOT / "charts" / "llmservice-operator"


class Live:
    """Serves each target's page as it is at the moment that has come. Ends with `close`."""

    def __init__(self, frames: Iterable[Iterable[Target]], *, seconds_each: float) -> None:
        self._frames = [{_path(target): target for target in frame} for frame in frames]
        self._each = seconds_each
        self._began = time.monotonic()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str) -> str | None:
        """The page of a target; None while there is no such target."""
        place = int((time.monotonic() - self._began) / self._each)
        target = self._frames[min(len(self._frames) - 1, place)].get(path)
        return None if target is None else "".join(f"{line(sample)}\n" for sample in target.samples)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        live = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = live.page(self.path)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write((page or "").encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def scrapes(self) -> list[dict[str, Any]]:
        """scrape_configs of the chart's monitors, for every target that ever comes."""
        targets = {path: dict(target.labels) for frame in self._frames for path, target in frame.items()}
        by_job: dict[str, list[dict[str, Any]]] = {}
        for path, labels in targets.items():
            config = {"targets": [f"127.0.0.1:{self.port}"], "labels": _discovered(labels, path)}
            by_job.setdefault(labels["job"], []).append(config)
        monitored = monitors()
        others = {"honor_labels": True}  # DCGM's exporter names the pods of its GPUs itself
        return [
            {"job_name": job, "static_configs": configs, **monitored.get(job, others)}
            for job, configs in by_job.items()
        ]


def _path(target: Target) -> str:
    labels = dict(target.labels)
    return f"/{labels['job']}/{labels['instance'].replace(':', '/')}/metrics"


def _discovered(labels: Mapping[str, str], path: str) -> dict[str, str]:
    """What service discovery would know of the target."""
    found = {"__metrics_path__": path, "instance": labels["instance"]}
    for name in ("namespace", "pod"):
        if name in labels:
            found[f"__meta_kubernetes_{'pod_name' if name == 'pod' else name}"] = labels[name]
    if "llmservice" in labels:
        for name, value in child_labels(labels["llmservice"]).items():
            found[f"__meta_kubernetes_pod_label_{sanitized(name)}"] = value
    return found


def sanitized(label: str) -> str:
    """As Prometheus' discovery writes a label's name."""
    return "".join(each if each.isalnum() else "_" for each in label)


def monitors() -> dict[str, dict[str, Any]]:
    """honor_labels and relabel_configs by job, from the chart's ServiceMonitor and PodMonitor."""
    found = {}
    for document in monitor_documents():
        for endpoint in endpoints(document):
            found[job_of(endpoint)] = {
                "honor_labels": endpoint.get("honorLabels", False),
                "relabel_configs": [*_GIVEN, *(_snake(each) for each in endpoint["relabelings"])],
            }
    return found


def monitor_documents(release: str = "release", namespace: str = "default") -> list[dict[str, Any]]:
    """The chart's ServiceMonitor and PodMonitor, as a release of this name has them."""
    programs = Binaries()
    programs.ensure(("helm",))
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    versions = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in kinds]
    command = (
        *(str(programs.path("helm")), "template", release, str(CHART), f"--namespace={namespace}"),
        *("--kube-version=1.36.0", *versions),
    )
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    documents = (document for document in yaml.safe_load_all(text) if document)
    return [each for each in documents if each["kind"] in {"ServiceMonitor", "PodMonitor"}]


def endpoints(monitor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a monitor asks to be scraped."""
    spec = monitor["spec"]
    return list(spec.get("endpoints") or spec["podMetricsEndpoints"])


def job_of(endpoint: Mapping[str, Any]) -> str:
    """The label `job` of what an endpoint yields."""
    return next(str(each["replacement"]) for each in endpoint["relabelings"] if each["targetLabel"] == "job")


_GIVEN = (
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
)
"""What the Prometheus operator adds to every monitor."""


def _snake(relabeling: Mapping[str, Any]) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(name, name): value for name, value in relabeling.items()}
