"""Whose an object is. One that is not the service's own is never adopted, changed or deleted."""

from collections.abc import Mapping
from typing import Any

from llmservice_operator.resources.types import Identity


def is_ours(observed: Mapping[str, Any], identity: Identity) -> bool:
    """Whether this very service controls the object.

    The controller's uid decides. Names and labels prove nothing (anybody can write them), and an earlier
    service of the same name had another uid: what it left is for the garbage collector. A label that was
    taken off by hand does not make the object a stranger; the next apply puts it back.
    """
    references = observed.get("metadata", {}).get("ownerReferences") or ()
    return any(
        reference.get("controller") and reference.get("uid") == identity.uid for reference in references
    )


def not_ours_message(kind: str, observed: Mapping[str, Any], identity: Identity) -> str:
    """What stands in the way, and how to mend it."""
    metadata = observed.get("metadata", {})
    name = metadata.get("name", "")
    owner = next((ref for ref in metadata.get("ownerReferences") or () if ref.get("controller")), None)
    whose = f"it belongs to {owner.get('kind')} {owner.get('name')}" if owner else "no LLMService owns it"
    return (
        f"{kind} {identity.namespace}/{name} is not this service's ({whose}) and is left alone: delete it "
        f"(kubectl -n {identity.namespace} delete {kind.lower()} {name}), or give the LLMService another name"
    )
