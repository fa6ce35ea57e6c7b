"""What is there: the objects of a namespace, without what differs between any two runs."""

import time
from collections import Counter
from typing import Any

import running
from devcluster.api import Api
from devcluster.light import LightCluster

Object = dict[str, Any]
COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
}
ONE_EACH = ("Deployment", "Service", "PodDisruptionBudget")
REVISION_LABEL = "llmservice.dev/revision"
HISTORY = 3
OWN_SPEC = ("clusterIP", "clusterIPs")
"""Fields of a spec that the API server chooses for each object."""


class World:
    """One namespace on one API server."""

    def __init__(self, cluster: LightCluster, namespace: str) -> None:
        self.cluster = cluster
        self.api: Api = cluster.api
        self.namespace = namespace

    def services(self) -> dict[str, Object]:
        items = self.api.request("GET", running.services_path(self.namespace))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def children(self, kind: str) -> list[Object]:
        items = self.api.request("GET", COLLECTIONS[kind].format(self.namespace))["items"]
        return [item for item in items if "llmservice.dev/service" in (item["metadata"].get("labels") or {})]

    def end_state(self) -> dict[str, Object]:
        """By service: its spec, what its status concludes, and its children's specs."""
        found: dict[str, Object] = {
            name: {"spec": service["spec"], "status": _conclusions(service), "children": {}}
            for name, service in self.services().items()
        }
        for kind in ONE_EACH:
            for child in self.children(kind):
                owner = found.get(child["metadata"]["labels"]["llmservice.dev/service"])
                if owner is not None:
                    spec = {k: v for k, v in child["spec"].items() if k not in OWN_SPEC}
                    owner["children"][kind] = {"spec": spec, "labels": child["metadata"]["labels"]}
        return found

    def faults(self) -> list[str]:
        """Duplicates, orphans, strays and statuses that lag behind; empty when all is in order."""
        services = self.services()
        uids = {service["metadata"]["uid"] for service in services.values()}
        faults = [
            f"{name}: status is of generation {service.get('status', {}).get('observedGeneration')}, "
            f"the object's is {service['metadata']['generation']}"
            for name, service in services.items()
            if service.get("status", {}).get("observedGeneration") != service["metadata"]["generation"]
        ]
        counts: Counter[tuple[str, str]] = Counter()
        for kind in COLLECTIONS:
            for child in self.children(kind):
                owners = [owner["uid"] for owner in child["metadata"].get("ownerReferences", [])]
                if not uids & set(owners):
                    faults.append(f"{kind} {child['metadata']['name']} is an orphan")
                counts[kind, child["metadata"]["labels"]["llmservice.dev/service"]] += 1
        for name in services:
            faults += [
                f"{name} has {counts[kind, name]} of {kind}" for kind in ONE_EACH if counts[kind, name] != 1
            ]
            if not 1 <= counts["ControllerRevision", name] <= HISTORY:
                faults.append(f"{name} has {counts['ControllerRevision', name]} revisions")
        return faults + self._wrong_revisions()

    def _wrong_revisions(self) -> list[str]:
        revisions = {revision["metadata"]["name"] for revision in self.children("ControllerRevision")}
        wanted = {
            deployment["metadata"]["name"]: deployment["spec"]["template"]["metadata"]["labels"][
                REVISION_LABEL
            ]
            for deployment in self.children("Deployment")
        }
        return [
            f"{name} runs {wanted[name]}, which is not kept"
            for name in wanted
            if wanted[name] not in revisions
        ]

    def writes(self, since: int) -> Counter[str]:
        """How often the operator wrote each resource here since a mark of the audit log."""
        return Counter(
            request.resource
            for request in self.cluster.audit.requests(since=since)
            if request.mutating
            and request.namespace == self.namespace
            and request.user_agent.startswith("llmservice-operator")
        )

    def clear(self) -> None:
        """Delete every service, and wait until the garbage collector has taken all that was theirs."""
        for name in self.services():
            self.api.request("DELETE", running.services_path(self.namespace, name))
        running.wait_for(
            lambda: not self.services() and not any(self.children(kind) for kind in COLLECTIONS),
            "everything to be gone",
            120,
        )

    def wait_quiet(self, seconds: float = 3.0) -> None:
        """Wait until the operator has written nothing but its Lease and Events for so long."""
        quiet_since, mark = time.monotonic(), self.cluster.audit.mark()
        deadline = time.monotonic() + 120
        while time.monotonic() - quiet_since < seconds:
            assert time.monotonic() < deadline, f"the operator writes on and on: {self.writes(mark)}"
            time.sleep(0.5)
            if set(self.writes(mark)) - {"events.k8s.io/events", "coordination.k8s.io/leases"}:
                quiet_since, mark = time.monotonic(), self.cluster.audit.mark()


def _conclusions(service: Object) -> Object:
    status = service.get("status", {})
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
    return {
        "conditions": conditions,
        "plan": status.get("plan"),
        "address": status.get("address"),
        "replicas": status.get("replicas"),
    }
