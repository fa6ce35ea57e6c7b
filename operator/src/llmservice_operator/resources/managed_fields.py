"""Who manages which field, from `metadata.managedFields` (the FieldsV1 format)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from llmservice_operator.api.labels import FIELD_MANAGER

_Path = tuple[str, ...]


def other_managers(observed: Mapping[str, Any], *path: str) -> tuple[str, ...]:
    """The other managers of a field, such as `("spec", "replicas")`, with the subresource they used."""
    found = []
    for entry in observed.get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER or not _holds(entry.get("fieldsV1") or {}, path):
            continue
        subresource = entry.get("subresource")
        found.append(f"{entry.get('manager')} ({subresource})" if subresource else str(entry.get("manager")))
    return tuple(found)


def unwanted(desired: Mapping[str, Any], observed: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of fields that we applied once and that are no longer desired: an apply would remove them."""
    found = []
    for entry in observed.get("metadata", {}).get("managedFields") or ():
        ours = entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
        if ours and not entry.get("subresource"):
            found += [".".join(path) for path in _missing(entry.get("fieldsV1") or {}, desired)]
    return tuple(found)


def _holds(fields: Mapping[str, Any], path: _Path) -> bool:
    for name in path:
        if f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True


def _missing(fields: Mapping[str, Any], value: Any) -> list[_Path]:
    """Leaves of a FieldsV1 tree that `value` has not got."""
    found: list[_Path] = []
    for name, below in fields.items():
        kind, text = name[:2], name[2:]
        if kind == "f:":
            step, present, held = text, isinstance(value, Mapping) and text in value, None
            if present:
                held = value[text]
        elif kind == "k:":
            keys = _parsed(text)
            step = "/".join(str(key) for key in keys.values())
            held = _item(value, keys)
            present = held is not None
        elif kind == "v:":
            step, held = text, None
            present = isinstance(value, (list, tuple)) and _parsed(text) in value
        else:
            continue
        if not present:
            found.append((step,))
        elif below:
            found += [(step, *path) for path in _missing(below, held)]
    return found


def _item(value: Any, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The item of a list that has these keys. A port's protocol may be left to the API server's default."""
    if not isinstance(value, (list, tuple)):
        return None
    for item in value:
        if isinstance(item, Mapping) and all(
            item.get(name, "TCP" if name == "protocol" else None) == wanted for name, wanted in keys.items()
        ):
            return item
    return None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """A key of a list's item, or a value of a set: the same few in every object."""
    return json.loads(text)
