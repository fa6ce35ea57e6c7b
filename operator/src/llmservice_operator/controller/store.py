"""The informer's view of the cluster: filled by watches, by sweeps and by the responses of our own writes.

Objects are kept as packed JSON: a thousand services' children as Python dicts would be hundreds of megabytes.
The newest resourceVersion wins, so that a watch event that is older than our own write changes nothing.
"""

import asyncio
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.api import labels
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.reduce import Claim, ServiceNote, claim_of, note_of, reduce_object
from llmservice_operator.telemetry.metrics import PlanTerm
from llmservice_operator.telemetry.scaling import ServiceState

PACK_ABOVE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    uid: str
    resource_version: int
    owner: Key | None
    data: bytes
    note: ServiceNote | None = None
    claim: Claim | None = None


_Where = tuple[str, str]


class Store:
    """Objects by kind, namespace and name, and by the service they belong to."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set once every watched kind has been listed; nothing may be decided from absence before."""
        self._objects: dict[str, dict[_Where, _Entry]] = {}
        self._owned: dict[str, dict[Key, set[_Where]]] = {}
        self._gone: dict[str, int] = {}
        """The last resourceVersion of uids deleted lately: a late event must not bring them back."""

    def put(self, kind: str, obj: Mapping[str, Any]) -> bool:
        """Keep this object unless a newer one of its name is known. True if more than the version changed."""
        metadata = obj.get("metadata", {})
        where = (metadata.get("namespace", ""), metadata["name"])
        uid, version = metadata.get("uid", ""), _version(obj)
        old = self._objects.setdefault(kind, {}).get(where)
        if old is not None and old.resource_version >= version:
            return False
        if self._gone.get(uid, -1) >= version:
            return False
        reduced = reduce_object(kind, obj)
        data = _pack(reduced)
        owner = None if kind == labels.KIND else _owner(reduced)
        note = note_of(reduced) if kind == labels.KIND else None
        claim = claim_of(obj) if kind == "Pod" else None
        if old is not None:
            self._unlink(kind, where, old)
        self._objects[kind][where] = _Entry(uid, version, owner, data, note, claim)
        if owner is not None:
            self._owned.setdefault(kind, {}).setdefault(owner, set()).add(where)
        return old is None or not _same(old.data, data, reduced)

    def drop(self, kind: str, obj: Mapping[str, Any]) -> bool:
        """Forget this object, unless another of the same name (a different uid) has taken its place."""
        metadata = obj.get("metadata", {})
        where = (metadata.get("namespace", ""), metadata["name"])
        uid = metadata.get("uid", "")
        self._remember_gone(uid, _version(obj))
        old = self._objects.get(kind, {}).get(where)
        if old is None or (uid and old.uid != uid):
            return False
        self._unlink(kind, where, old)
        del self._objects[kind][where]
        return True

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object, or None. A fresh copy each time."""
        entry = self._objects.get(kind, {}).get((namespace, name))
        return None if entry is None else _unpack(entry.data)

    def has(self, kind: str, namespace: str, name: str) -> bool:
        """Whether the object is known."""
        return (namespace, name) in self._objects.get(kind, {})

    def version(self, kind: str, namespace: str, name: str) -> tuple[str, int] | None:
        """The object's uid and resourceVersion, without unpacking it; None where it isn't known."""
        entry = self._objects.get(kind, {}).get((namespace, name))
        return None if entry is None else (entry.uid, entry.resource_version)

    def owned(self, kind: str, key: Key) -> tuple[Mapping[str, Any], ...]:
        """The objects of this kind that carry the service's label in its namespace, by name."""
        objects = self._objects.get(kind, {})
        wheres = sorted(self._owned.get(kind, {}).get(key, ()))
        return tuple(_unpack(objects[where].data) for where in wheres)

    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        """All nodes, reduced to labels, allocatable and unschedulable, by name."""
        nodes = self._objects.get("Node", {})
        return tuple(_unpack(nodes[where].data) for where in sorted(nodes))

    def claimed(self) -> dict[str, dict[str, int]]:
        """By node: devices that known pods hold, without unpacking one. Pods of others are not known."""
        taken: dict[str, dict[str, int]] = {}
        for entry in self._objects.get("Pod", {}).values():
            if entry.claim is None:
                continue
            of_node = taken.setdefault(entry.claim.node_name, {})
            for name, amount in entry.claim.amounts:
                of_node[name] = of_node.get(name, 0) + amount
        return taken

    def services(self) -> tuple[Key, ...]:
        """All LLMServices."""
        return tuple(Key(*where) for where in self._objects.get(labels.KIND, {}))

    def notes(self) -> Iterator[tuple[Key, ServiceNote]]:
        """Every LLMService with its note, without unpacking one."""
        for where, entry in self._objects.get(labels.KIND, {}).items():
            if entry.note is not None:
                yield Key(*where), entry.note

    def plan_terms(self) -> Iterator[PlanTerm]:
        """Plan and report of every LLMService, as far as its status tells of them."""
        for key, note in self.notes():
            for row in note.memory:
                yield PlanTerm(key.namespace, key.name, *row)

    def service_states(self) -> Iterator[ServiceState]:
        """Every LLMService as its status tells it."""
        for key, note in self.notes():
            yield ServiceState(
                namespace=key.namespace,
                name=key.name,
                conditions=note.conditions,
                desired=note.desired,
                ready=note.ready_replicas,
                accelerator=note.accelerator,
                accelerators=note.accelerators,
            )

    def count(self, kind: str) -> int:
        """How many objects of this kind are known."""
        return len(self._objects.get(kind, {}))

    def versions(self, kind: str) -> dict[_Where, tuple[str, int]]:
        """The uid and resourceVersion of every object of the kind, by (namespace, name)."""
        return {where: (e.uid, e.resource_version) for where, e in self._objects.get(kind, {}).items()}

    def drop_missing(
        self, kind: str, before: Mapping[_Where, tuple[str, int]], listed: Iterable[str]
    ) -> tuple[Key, ...]:
        """Forget what stood here before a list began and is not in it; returns the services concerned.

        `before` is `versions(kind)` taken before the list, `listed` the uids in it. An object that has
        changed since is left alone: the watch knows better.
        """
        uids = set(listed)
        owners: list[Key] = []
        for where, (uid, version) in before.items():
            entry = self._objects.get(kind, {}).get(where)
            if uid in uids or entry is None or (entry.uid, entry.resource_version) != (uid, version):
                continue
            self._unlink(kind, where, entry)
            del self._objects[kind][where]
            owners.append(entry.owner or Key(*where))
        return tuple(owners)

    def _unlink(self, kind: str, where: _Where, entry: _Entry) -> None:
        if entry.owner is None:
            return
        owned = self._owned[kind][entry.owner]
        owned.discard(where)
        if not owned:
            del self._owned[kind][entry.owner]

    def _remember_gone(self, uid: str, version: int) -> None:
        if not uid:
            return
        self._gone[uid] = max(version, self._gone.get(uid, -1))
        if len(self._gone) > 4096:
            self._gone.pop(next(iter(self._gone)))


def owner_key(obj: Mapping[str, Any]) -> Key | None:
    """The service that a child belongs to by its label."""
    return _owner(obj)


def _owner(obj: Mapping[str, Any]) -> Key | None:
    metadata = obj.get("metadata", {})
    name = (metadata.get("labels") or {}).get(labels.SERVICE_LABEL)
    return Key(metadata.get("namespace", ""), name) if name else None


def _version(obj: Mapping[str, Any]) -> int:
    """The resourceVersions of one kind compare as whole numbers (Kubernetes API concepts, since 1.35)."""
    text = str(obj.get("metadata", {}).get("resourceVersion", "0"))
    return int(text) if text.isdecimal() else 0


def _pack(obj: Mapping[str, Any]) -> bytes:
    data = json.dumps(obj, separators=(",", ":")).encode()
    return zlib.compress(data, 1) if len(data) > PACK_ABOVE_BYTES else data


def _unpack(data: bytes) -> dict[str, Any]:
    # A zlib stream begins with 0x78, JSON text of an object with `{`.
    loaded: dict[str, Any] = json.loads(zlib.decompress(data) if data[0] == 0x78 else data)
    return loaded


def _same(old: bytes, new: bytes, reduced: Mapping[str, Any]) -> bool:
    """Whether two versions of an object say the same but for the resourceVersion."""
    if len(old) > 0 and old == new:
        return True
    before = _unpack(old)
    return _without_version(before) == _without_version(reduced)


def _without_version(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k != "resourceVersion"}
    return {**obj, "metadata": metadata}
