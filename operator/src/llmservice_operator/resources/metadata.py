"""Metadata of the objects that a service owns."""

from typing import Any

from llmservice_operator.api.labels import API_VERSION, KIND, child_labels
from llmservice_operator.resources.types import Identity, Manifest


def owner_reference(identity: Identity) -> Manifest:
    """The reference by which a child is found to be ours, and goes when the service goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": identity.name,
        "uid": identity.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child_metadata(identity: Identity, name: str, **fields: Any) -> Manifest:
    """Metadata of a child: our labels over those given, and the owner reference."""
    labels = {**fields.pop("labels", {}), **child_labels(identity.name)}
    return {
        "name": name,
        "namespace": identity.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(identity)],
        **fields,
    }
