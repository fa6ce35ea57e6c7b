"""Who manages which field, from `metadata.managedFields` (the FieldsV1 format)."""

import json
from collections.abc import Iterator, Mapping
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
            found += [".".join(path) for path in _missing(entry.get("fieldsV1") or {}, desired, ())]
    return tuple(found)


def _holds(fields: Mapping[str, Any], path: _Path) -> bool:
    for name in path:
        if f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True


def _missing(fields: Mapping[str, Any], value: Any, path: _Path) -> Iterator[_Path]:
    """Leaves of a FieldsV1 tree that `value` has not got."""
    for name, below in fields.items():
        kind, _, rest = name.partition(":")
        if kind == "f":
            if not isinstance(value, Mapping) or rest not in value:
                yield (*path, rest)
            else:
                yield from _missing(below, value[rest], (*path, rest))
        elif kind == "k":
            keys = json.loads(rest)
            items = value if isinstance(value, (list, tuple)) else ()
            item = next((item for item in items if _matches(item, keys)), None)
            if item is None:
                yield (*path, "/".join(str(key) for key in keys.values()))
            else:
                yield from _missing(below, item, (*path, str(next(iter(keys.values())))))
        elif kind == "v":
            items = value if isinstance(value, (list, tuple)) else ()
            if json.loads(rest) not in items:
                yield (*path, rest)


def _matches(item: Any, keys: Mapping[str, Any]) -> bool:
    if not isinstance(item, Mapping):
        return False
    return all(item.get(name, "TCP" if name == "protocol" else None) == value for name, value in keys.items())
