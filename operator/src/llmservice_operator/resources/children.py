"""The objects that a service owns, ready for server-side apply.

Only what we mean to own is in them: fields that the API server defaults, and fields of others, are left out.
"""

from llmservice_operator.api.labels import HTTP_PORT_NAME, REVISION_LABEL, SERVICE_LABEL
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.resources.metadata import child_metadata
from llmservice_operator.resources.revision import Revision
from llmservice_operator.resources.types import Identity, Manifest
from llmservice_operator.resources.volumes import cache_claim_name

PROGRESS_DEADLINE_SECONDS = 86_400
"""The supervisor holds the start budget; the Deployment's own deadline must not call a long load a
failure."""
REVISION_HISTORY_LIMIT = 2
"""Old ReplicaSets kept by the Deployment; what can be gone back to is in the ControllerRevisions."""


def stamp(template: Manifest, revision_name: str) -> Manifest:
    """The pod template with its revision's name on it, as label and annotation."""
    metadata = dict(template["metadata"])
    for name in ("labels", "annotations"):
        metadata[name] = {**metadata.get(name, {}), REVISION_LABEL: revision_name}
    return {**template, "metadata": metadata}


def render_deployment(identity: Identity, revision: Revision, replicas: int | None) -> Manifest:
    """The Deployment at this revision. `replicas` None leaves the field to whoever else manages it.

    A surge would ask for an accelerator that a full cluster has not got, and wait for it for ever; so one pod
    goes before another comes.
    """
    spec: Manifest = {
        "selector": {"matchLabels": {SERVICE_LABEL: identity.name}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "progressDeadlineSeconds": PROGRESS_DEADLINE_SECONDS,
        "revisionHistoryLimit": REVISION_HISTORY_LIMIT,
        "template": stamp(revision.template, revision.name),
    }
    if replicas is not None:
        spec["replicas"] = replicas
    annotations = {REVISION_LABEL: revision.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(identity, identity.name, annotations=annotations),
        "spec": spec,
    }


def render_service(identity: Identity, spec: LLMServiceSpec) -> Manifest:
    """The Service in front of the replicas. It goes by the port's name, whatever the engine's port is."""
    service = spec.service
    fields: Manifest = {"labels": dict(service.labels)}
    if service.annotations:
        fields["annotations"] = dict(service.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(identity, identity.name, **fields),
        "spec": {
            "type": service.type,
            "selector": {SERVICE_LABEL: identity.name},
            "ports": [
                {
                    "name": HTTP_PORT_NAME,
                    "port": service.port,
                    "targetPort": HTTP_PORT_NAME,
                    "protocol": "TCP",
                }
            ],
        },
    }


def render_pdb(identity: Identity) -> Manifest:
    """The PodDisruptionBudget: one replica at a time, and a broken one never blocks a drain.

    `minAvailable: 1` would block the drain of a node for ever where there is one replica.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(identity, identity.name),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {SERVICE_LABEL: identity.name}},
        },
    }


def render_cache_claim(identity: Identity, spec: LLMServiceSpec) -> Manifest | None:
    """The claim for `spec.model.cache.create`; None where none is asked for.

    All of a claim's spec but the requested size is fixed once it stands, and the size can only grow.
    """
    cache = spec.model.cache
    if cache is None or cache.create is None:
        return None
    claim: Manifest = {
        "accessModes": [cache.create.access_mode],
        "resources": {"requests": {"storage": cache.create.size}},
    }
    if cache.create.storage_class_name is not None:
        claim["storageClassName"] = cache.create.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": child_metadata(identity, cache_claim_name(identity)),
        "spec": claim,
    }
