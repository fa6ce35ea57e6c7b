"""What we created by POST is turned over to our server-side apply before the first update.

A POST costs the API server about half of what an apply of the same new object does (measured on 1.36: a
Deployment 3.5 against 6.4 ms of CPU), and fails where the name is taken, so that nothing is ever merged into a
stranger's. It leaves our fields under `operation: Update`, which no later apply prunes. Renaming that entry to
`Apply` is how client-go's csaupgrade moves from the one to the other.
"""

from collections.abc import Mapping
from typing import Any

from llmservice_operator.api.labels import FIELD_MANAGER

Entry = Mapping[str, Any]


def created_by_post(observed: Mapping[str, Any]) -> bool:
    """Whether some of our fields still stand under `Update`."""
    return any(_is_ours(entry, "Update") for entry in _entries(observed))


def prunable(observed: Mapping[str, Any]) -> dict[str, Any]:
    """The object as `unwanted` should see it: with every field that we named once under `Apply`.

    Of what was posted only labels and annotations count. The rest of that entry has what the API server
    added by default, which we never named; where a spec names less than before, it differs in other fields too.
    """
    kept = [entry for entry in _entries(observed) if not _is_ours(entry, "Update")]
    for entry in _entries(observed):
        if _is_ours(entry, "Update"):
            metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
            named = {name: metadata[name] for name in ("f:annotations", "f:labels") if name in metadata}
            kept.append({**entry, "operation": "Apply", "fieldsV1": {"f:metadata": named}})
    return {**observed, "metadata": {**observed["metadata"], "managedFields": kept}}


def turn_over(live: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that puts all our fields under one `Apply` entry, for this very version of the object."""
    ours = [entry for entry in _entries(live) if _is_ours(entry, "Update") or _is_ours(entry, "Apply")]
    fields: dict[str, Any] = {}
    for entry in ours:
        fields = _union(fields, entry.get("fieldsV1") or {})
    merged = {**ours[-1], "operation": "Apply", "fieldsV1": fields}
    others = [entry for entry in _entries(live) if entry not in ours]
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": [merged, *others]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]


def _entries(observed: Mapping[str, Any]) -> list[Entry]:
    return list(observed.get("metadata", {}).get("managedFields") or ())


def _is_ours(entry: Entry, operation: str) -> bool:
    return (
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


def _union(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Both FieldsV1 trees in one."""
    merged = dict(left)
    for name, below in right.items():
        merged[name] = _union(merged.get(name) or {}, below or {})
    return merged
