"""What the chart's ServiceMonitor and PodMonitor find on a cluster, as files that Prometheus discovers targets from.

The Prometheus of the tests has no discovery of Kubernetes; its file discovery is told the same `__meta_` labels here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deploy
from devcluster import Cluster
from observability.stage.live import endpoints, job_of, monitor_documents, monitors, sanitized

Object = dict[str, Any]
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """One endpoint of a monitor: which port of what."""

    job: str
    is_of_services: bool
    """A ServiceMonitor's, which finds pods behind Services; else a PodMonitor's."""
    labels: Mapping[str, str]
    namespaces: tuple[str, ...]
    """Empty: any."""
    port: str


def selections() -> Iterator[Selection]:
    """Of the chart as `deploy.install_operator` installs it."""
    for monitor in monitor_documents(deploy.RELEASE, deploy.OPERATOR_NAMESPACE):
        for endpoint in endpoints(monitor):
            yield Selection(
                job=job_of(endpoint),
                is_of_services=monitor["kind"] == "ServiceMonitor",
                labels=monitor["spec"]["selector"]["matchLabels"],
                namespaces=tuple(monitor["spec"]["namespaceSelector"].get("matchNames", ())),
                port=endpoint["port"],
            )


class Targets:
    """The targets of all monitors, in a file for each in this folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._selections = tuple(selections())
        self._written: dict[str, str] = {}

    def scrapes(self) -> list[Object]:
        """scrape_configs, with the monitors' own relabelling."""
        asked = monitors()
        return [
            {
                "job_name": each.job,
                "file_sd_configs": [{"files": [str(self._file(each))], "refresh_interval": "5s"}],
                **asked[each.job],
            }
            for each in self._selections
        ]

    def refresh(self) -> None:
        """Look at the cluster, and write the files that have changed."""
        for each in self._selections:
            found = self._behind_services(each) if each.is_of_services else self._pods(each)
            text = json.dumps(list(found), sort_keys=True)
            if self._written.get(each.job) != text:
                partial = self._file(each).with_suffix(".partial")
                partial.write_text(text)
                partial.rename(self._file(each))
                self._written[each.job] = text

    def _file(self, selection: Selection) -> Path:
        return self._folder / f"{selection.job}.json"

    def _pods(self, selection: Selection) -> Iterator[Object]:
        """Each pod's port of that name, as long as the pod runs."""
        for pod in self._list("/api/v1/{}pods", selection):
            address = pod["status"].get("podIP")
            if not address or pod["status"]["phase"] in _OVER:
                continue
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                for port in container.get("ports", ()):
                    if port.get("name") == selection.port:
                        yield _target(f"{address}:{port['containerPort']}", _of_pod(pod["metadata"]))

    def _behind_services(self, selection: Selection) -> Iterator[Object]:
        """The pods behind each Service that has a port of that name."""
        for service in self._list("/api/v1/{}services", selection):
            name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
            slices = Selection(
                job=selection.job,
                is_of_services=False,
                labels={"kubernetes.io/service-name": name},
                namespaces=(namespace,),
                port=selection.port,
            )
            for each in self._list("/apis/discovery.k8s.io/v1/{}endpointslices", slices):
                ports = [port["port"] for port in each["ports"] if port.get("name") == selection.port]
                for endpoint in each["endpoints"] or ():
                    pod = {"name": endpoint["targetRef"]["name"], "namespace": namespace}
                    for port in ports:
                        yield _target(f"{endpoint['addresses'][0]}:{port}", _of_pod(pod))

    def _list(self, path: str, selection: Selection) -> Iterator[Object]:
        """Objects with the labels; `path` has a place for the namespace."""
        selector = quote(",".join(f"{name}={value}" for name, value in selection.labels.items()))
        for place in [f"namespaces/{each}/" for each in selection.namespaces] or [""]:
            yield from self._cluster.api.request("GET", f"{path.format(place)}?labelSelector={selector}")[
                "items"
            ]


def _target(address: str, labels: Object) -> Object:
    return {"targets": [address], "labels": labels}


def _of_pod(metadata: Mapping[str, Any]) -> Object:
    """What discovery knows of a pod."""
    labels = {sanitized(name): value for name, value in metadata.get("labels", {}).items()}
    return {
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        **{f"__meta_kubernetes_pod_label_{name}": value for name, value in labels.items()},
    }
