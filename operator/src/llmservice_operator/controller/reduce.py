"""What is kept of the objects that the API server sends: enough to reconcile, little enough for thousands."""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from llmservice_operator.api import labels
from llmservice_operator.api.conditions import Reason

KEPT_POD_SPEC = ("nodeName", "schedulerName", "terminationGracePeriodSeconds")
DROPPED_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)


WAITS_FOR_NODE = frozenset({Reason.NO_ACCELERATOR_SEEN, Reason.UNSCHEDULABLE})
"""Reasons of conditions that a new or changed node may end."""


class ServiceNote(NamedTuple):
    """What is asked of all services at once, and so is kept beside each packed one."""

    ready: str
    """Status of its Ready condition."""
    reason: str
    """Reason of its Ready condition; `New` where it has none yet."""
    waits_for_node: bool
    memory: tuple[tuple[str, int | None, int | None], ...] = ()
    """(term, planned bytes, actual bytes) of the last report that the status tells of."""
    conditions: tuple[tuple[str, str, str], ...] = ()
    """(type, status, reason)."""
    desired: int = 0
    ready_replicas: int = 0
    accelerator: str = ""
    accelerators: int = 0
    """Held by its pods; 0 on CPUs."""


class Claim(NamedTuple):
    """What a pod takes of its node's devices."""

    node_name: str
    amounts: tuple[tuple[str, int], ...]
    """(resource, amount), such as `nvidia.com/gpu`."""


def claim_of(pod: Mapping[str, Any]) -> Claim | None:
    """The devices that a pod holds on its node; None where it holds none, or has ended.

    Extended resources are requested and limited alike, and an init container's are given to the others later.
    """
    spec, phase = pod.get("spec", {}), pod.get("status", {}).get("phase")
    node = spec.get("nodeName", "")
    if not node or phase in ("Succeeded", "Failed"):
        return None
    amounts: dict[str, int] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            if "/" in name and str(amount).isdecimal():
                amounts[name] = amounts.get(name, 0) + int(amount)
    return Claim(node, tuple(sorted(amounts.items()))) if amounts else None


def note_of(service: Mapping[str, Any]) -> ServiceNote:
    """The note of an LLMService."""
    conditions = service.get("status", {}).get("conditions") or ()
    ready: Mapping[str, str] = next((c for c in conditions if c.get("type") == "Ready"), {})
    waits = any(c.get("reason") in WAITS_FOR_NODE for c in conditions)
    engine = service.get("status", {}).get("engine") or {}
    memory = tuple(
        (row.get("name", ""), row.get("plannedBytes"), row.get("actualBytes"))
        for row in engine.get("memory") or ()
    )
    status = service.get("status", {})
    plan = status.get("plan") or {}
    each_takes = plan.get("acceleratorsPerReplica", 0) if plan.get("resourceName") else 0
    return ServiceNote(
        ready=ready.get("status", "Unknown"),
        reason=ready.get("reason", "New"),
        waits_for_node=waits,
        memory=memory,
        conditions=tuple(
            (
                sys.intern(c.get("type", "")),
                sys.intern(c.get("status", "")),
                sys.intern(c.get("reason", "")),
            )
            for c in conditions
        ),
        desired=status.get("desiredReplicas", 0),
        ready_replicas=status.get("readyReplicas", 0),
        accelerator=plan.get("accelerator", ""),
        accelerators=each_takes * status.get("replicas", 0),
    )


def reduce_object(kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the object without what no decision depends on. The input is not changed.

    - managedFields: only our own entries, and those of others that own `spec.replicas` (cut to that).
    - Pods: metadata, status, node and the containers' names and images.
    - Nodes: labels and allocatable.
    """
    metadata = _reduce_metadata(kind, obj.get("metadata", {}))
    if kind == "Node":
        allocatable = obj.get("status", {}).get("allocatable", {})
        unschedulable = bool(obj.get("spec", {}).get("unschedulable", False))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                k: metadata[k] for k in ("name", "uid", "resourceVersion", "labels") if k in metadata
            },
            "spec": {"unschedulable": unschedulable},
            "status": {"allocatable": allocatable},
        }
    reduced = {**obj, "metadata": metadata, "kind": kind}
    if kind == "Pod":
        reduced["spec"] = _reduce_pod_spec(obj.get("spec", {}))
    return reduced


def _reduce_metadata(kind: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    reduced = dict(metadata)
    fields = _reduce_managed_fields(metadata.get("managedFields") or [])
    if fields and kind not in ("Pod", "Node", "ControllerRevision"):
        reduced["managedFields"] = fields
    else:
        reduced.pop("managedFields", None)
    annotations = metadata.get("annotations")
    if annotations:
        reduced["annotations"] = {k: v for k, v in annotations.items() if k not in DROPPED_ANNOTATIONS}
    return reduced


def _reduce_managed_fields(entries: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for entry in entries:
        fields = entry.get("fieldsV1", {})
        if entry.get("manager") == labels.FIELD_MANAGER:
            kept.append({k: v for k, v in entry.items() if k not in ("time", "fieldsType")})
        elif "f:replicas" in fields.get("f:spec", {}):
            kept.append(
                {
                    **{
                        k: entry[k]
                        for k in ("manager", "operation", "subresource", "apiVersion")
                        if k in entry
                    },
                    "fieldsV1": {"f:spec": {"f:replicas": {}}},
                }
            )
    return kept


def _reduce_pod_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    reduced = {k: spec[k] for k in KEPT_POD_SPEC if k in spec}
    for group in ("initContainers", "containers"):
        if group in spec:
            reduced[group] = [{"name": c.get("name"), "image": c.get("image")} for c in spec[group]]
    return reduced
