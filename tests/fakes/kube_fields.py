"""Server-side apply on plain objects: field sets, conflicts, pruning.

The rules are those of the API server's documentation ("Server-Side Apply"): maps are granular, lists are atomic,
but for the keyed lists and the atomic maps named here (`x-kubernetes-list-map-keys`, `x-kubernetes-map-type`).
"""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

KEYED_LISTS: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
ATOMIC_MAPS = frozenset({"selector", "nodeSelector", "valueFrom", "regarding"})
SYSTEM_METADATA = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
)

Step = tuple[str, str]
"""("f", field name) or ("k", the item's keys as JSON)."""
Path = tuple[Step, ...]


def leaves(manifest: Mapping[str, Any], *, status: bool) -> dict[Path, Any]:
    """The fields that applying this manifest names, with their values. The status apart from all else."""
    named = {}
    for name, value in manifest.items():
        if name in ("apiVersion", "kind") or (name == "status") != status:
            continue
        below = value
        if name == "metadata":
            below = {k: v for k, v in value.items() if k not in SYSTEM_METADATA}
            if not below:
                continue
        if name == "data" and manifest["kind"] == "ControllerRevision":
            named[("f", name),] = value
            continue
        named.update(_leaves(name, below, (("f", name),)))
    return named


def _leaves(name: str, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and name not in ATOMIC_MAPS and value:
        for key, below in value.items():
            yield from _leaves(key, below, (*path, ("f", key)))
    elif isinstance(value, list) and (keys := list_keys(name, value)):
        for item in value:
            step = ("k", item_key(item, keys))
            for key, below in item.items():
                yield from _leaves(key, below, (*path, step, ("f", key)))
    else:
        yield path, value


def list_keys(name: str, items: list[Any]) -> tuple[str, ...] | None:
    if name == "ports" and items and isinstance(items[0], Mapping):
        return ("containerPort", "protocol") if "containerPort" in items[0] else ("port", "protocol")
    return KEYED_LISTS.get(name)


def item_key(item: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    named = {k: item.get(k, "TCP" if k == "protocol" else None) for k in keys}
    return json.dumps(named, separators=(",", ":"), sort_keys=True)


def put(obj: dict[str, Any], path: Path, value: Any) -> None:
    """Set one field, making what leads to it."""
    where: Any = obj
    for position, step in enumerate(path[:-1]):
        following = path[position + 1]
        where = _enter(where, step, [] if following[0] == "k" else {})
    where[path[-1][1]] = copy.deepcopy(value)


def _enter(where: Any, step: Step, empty: Any) -> Any:
    kind, name = step
    if kind == "f":
        if not isinstance(where.get(name), type(empty)):
            where[name] = empty
        return where[name]
    keys = json.loads(name)
    for item in where:
        if all(item.get(k, "TCP" if k == "protocol" else None) == v for k, v in keys.items()):
            return item
    where.append({k: v for k, v in keys.items() if v is not None})
    return where[-1]


def read(obj: Any, path: Path) -> Any:
    """The value of one field, or None."""
    for kind, name in path:
        if kind == "f":
            obj = obj.get(name) if isinstance(obj, Mapping) else None
        else:
            keys = json.loads(name)
            obj = next((i for i in obj or [] if all(i.get(k, "TCP") == v for k, v in keys.items())), None)
        if obj is None:
            return None
    return obj


def remove(obj: dict[str, Any], path: Path) -> None:
    """Take one field away, and the maps and list items that are empty without it."""
    chain: list[Any] = [obj, *(read(obj, path[: n + 1]) for n in range(len(path)))]
    if any(each is None for each in chain):
        return
    for position in range(len(path) - 1, -1, -1):
        where, (kind, name) = chain[position], path[position]
        if kind == "f":
            where.pop(name, None)
        else:
            # The very item: it may have lost the keys that it was found by.
            where[:] = [item for item in where if item is not chain[position + 1]]
        if where:
            return


def is_key(path: Path) -> bool:
    """Whether the field is one of those by which its list item is told from the others."""
    return len(path) > 1 and path[-2][0] == "k" and path[-1][1] in json.loads(path[-2][1])


def paths(fields: Mapping[str, Any]) -> set[Path]:
    """The paths of a `fieldsV1`."""
    found: set[Path] = set()
    for name, below in fields.items():
        kind, _, rest = name.partition(":")
        if name == ".":
            continue
        if not below:
            found.add(((kind, rest),))
        found |= {((kind, rest), *path) for path in paths(below)}
    return found


def fields_v1(named: set[Path]) -> dict[str, Any]:
    """The paths as `managedFields[].fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(named):
        where = tree
        for kind, name in path:
            where = where.setdefault(f"{kind}:{name}", {})
            if kind == "k":
                where.setdefault(".", {})
    return tree
