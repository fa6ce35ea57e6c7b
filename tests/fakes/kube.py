"""An API server in memory: the KubeClient's methods with the real one's semantics where the operator relies on them.

Server-side apply with field ownership, conflicts and pruning; generation, resourceVersion and true no-ops; status
apart from the rest; preconditions of uid and resourceVersion; deletion of dependents. Held against the real API
server by tests/integration/operator/test_kube_contract.py.
"""

import copy
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fakes import kube_fields
from llmservice_operator.api import labels
from llmservice_operator.clients.kube import (
    KINDS,
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
)

Where = tuple[str, str, str]
Watcher = Callable[[str, str | None, Mapping[str, Any]], None]
NO_GENERATION = frozenset({"Service", "ControllerRevision", "ConfigMap", "Event", "Lease", "Node"})


@dataclass
class _Stored:
    obj: dict[str, Any]
    owners: dict[tuple[str, str, str], set[kube_fields.Path]] = field(default_factory=dict)
    """Paths by (manager, operation, subresource)."""


class FakeKube:
    """See the module. `manager` is who writes; `as_manager` gives a client of somebody else's on the same objects."""

    def __init__(self, manager: str = labels.FIELD_MANAGER, *, server: "FakeKube | None" = None) -> None:
        self.manager = manager
        self._objects: dict[Where, _Stored] = {} if server is None else server._objects
        self._state = {"version": 100, "uid": 0} if server is None else server._state
        self._watchers: list[Watcher] = [] if server is None else server._watchers
        self.requests: Counter[tuple[str, str]] = Counter()
        """How often each (verb, kind) was asked for."""
        self.failures: dict[tuple[str, str], list[KubeError]] = {}
        """Errors to raise, in order, for (verb, kind)."""

    def as_manager(self, manager: str) -> "FakeKube":
        """Another client of the same server."""
        return FakeKube(manager, server=self)

    def watch(self, watcher: Watcher) -> None:
        """Call this with (kind, event type, object) at every change."""
        self._watchers.append(watcher)

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        self._count("get", kind)
        stored = self._objects.get((kind, namespace or "", name))
        return None if stored is None else copy.deepcopy(stored.obj)

    async def list(
        self, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[dict[str, Any]]:
        self._count("list", kind)
        return [
            copy.deepcopy(stored.obj)
            for (of, where, _), stored in sorted(self._objects.items())
            if of == kind and namespace in (None, where) and _selected(stored.obj, label_selector)
        ]

    async def pages(
        self,
        kind: str,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        listed = await self.list(kind, namespace, label_selector)
        if metadata_only:
            listed = [{k: obj[k] for k in ("apiVersion", "kind", "metadata")} for obj in listed]
        yield listed

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True) -> dict[str, Any]:
        self._count("apply", manifest["kind"])
        return self._apply(manifest, force=force, status=False)

    async def apply_status(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._count("apply_status", manifest["kind"])
        if _where(manifest) not in self._objects:
            raise NotFoundError(404, "NotFound", f"{_where(manifest)} not found")
        return self._apply(manifest, force=True, status=True)

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._count("create", manifest["kind"])
        where = _where(manifest)
        if where in self._objects:
            raise ConflictError(409, "AlreadyExists", f"{where} already exists")
        stored = self._new(manifest)
        named = kube_fields.leaves(manifest, status=False)
        for path, value in named.items():
            kube_fields.put(stored.obj, path, value)
        stored.owners[self.manager, "Update", ""] = set(named)
        return self._commit(where, stored, "ADDED")

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._count("update", manifest["kind"])
        stored = self._existing(_where(manifest))
        self._check_preconditions(stored, manifest)
        updated = copy.deepcopy(dict(manifest))
        kept = {k: v for k, v in stored.obj["metadata"].items() if k in kube_fields.SYSTEM_METADATA}
        updated["metadata"] = {**updated["metadata"], **kept}
        if "status" in stored.obj:
            updated["status"] = stored.obj["status"]
        return self._update(_where(manifest), stored, updated, ("Update", ""))

    async def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> dict[str, Any]:
        self._count("patch", kind)
        where = (kind, namespace or "", name)
        stored = self._existing(where)
        if isinstance(body, Mapping):
            if content_type != "application/merge-patch+json":
                raise InvalidError(415, "UnsupportedMediaType", content_type)
            return self._update(where, stored, _merge(stored.obj, body), ("Update", ""))
        values = {step["path"]: step["value"] for step in body if step["op"] == "replace"}
        if set(values) != {"/metadata/managedFields", "/metadata/resourceVersion"}:
            raise InvalidError(
                422, "Invalid", "of JSON patches, this server takes those of managedFields only"
            )
        if values["/metadata/resourceVersion"] != stored.obj["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "the object has been modified")
        owners = {
            (entry["manager"], entry["operation"], entry.get("subresource", "")): kube_fields.paths(
                entry["fieldsV1"]
            )
            for entry in values["/metadata/managedFields"]
        }
        return self._commit(where, _Stored(copy.deepcopy(stored.obj), owners), "MODIFIED")

    async def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        self._count("delete", kind)
        stored = self._objects.get((kind, namespace or "", name))
        if stored is None:
            return
        if uid and stored.obj["metadata"]["uid"] != uid:
            raise ConflictError(409, "Conflict", f"the uid in the precondition ({uid}) is not the object's")
        self._remove((kind, namespace or "", name))

    def set_status(self, kind: str, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        """What a controller of the cluster's would write."""
        stored = self._existing((kind, namespace, name))
        self._update(
            (kind, namespace, name),
            stored,
            {**copy.deepcopy(stored.obj), "status": status},
            ("Update", "status"),
        )

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, manifest: Mapping[str, Any], *, force: bool, status: bool) -> dict[str, Any]:
        where = _where(manifest)
        stored = self._objects.get(where)
        fresh = stored is None
        stored = copy.deepcopy(stored) if stored else self._new(manifest)
        named = kube_fields.leaves(manifest, status=status)
        owner = (self.manager, "Apply", "status" if status else "")
        self._settle_conflicts(stored, named, owner, force=force)
        gone = stored.owners.get(owner, set()) - set(named)
        for path in sorted(gone, key=kube_fields.is_key):
            if not any(path in paths for other, paths in stored.owners.items() if other != owner):
                kube_fields.remove(stored.obj, path)
        for path, value in named.items():
            kube_fields.put(stored.obj, path, value)
        stored.owners[owner] = set(named)
        return self._commit(where, stored, "ADDED" if fresh else "MODIFIED")

    def _settle_conflicts(
        self,
        stored: _Stored,
        named: Mapping[kube_fields.Path, Any],
        owner: tuple[str, str, str],
        *,
        force: bool,
    ) -> None:
        conflicts = [
            (other, path)
            for other, paths in stored.owners.items()
            for path in paths & set(named)
            if other != owner and kube_fields.read(stored.obj, path) != named[path]
        ]
        if conflicts and not force:
            text = ", ".join(f"{o[0]}: .{'.'.join(s[1] for s in p)}" for o, p in conflicts)
            raise ConflictError(409, "Conflict", f"Apply failed with {len(conflicts)} conflict(s): {text}")
        for other, path in conflicts:
            stored.owners[other].discard(path)

    def _update(
        self, where: Where, stored: _Stored, updated: dict[str, Any], how: tuple[str, str]
    ) -> dict[str, Any]:
        before = {s: kube_fields.leaves(stored.obj, status=s) for s in (False, True)}
        after = {s: kube_fields.leaves(updated, status=s) for s in (False, True)}
        changed = {p for s in (False, True) for p, v in after[s].items() if before[s].get(p) != v}
        owners = {other: paths - changed for other, paths in stored.owners.items()}
        owners.setdefault((self.manager, *how), set()).update(changed)
        return self._commit(where, _Stored(updated, owners), "MODIFIED")

    def _commit(self, where: Where, stored: _Stored, event: str) -> dict[str, Any]:
        old = self._objects.get(where)
        metadata = stored.obj["metadata"]
        metadata["managedFields"] = [
            {
                "manager": manager,
                "operation": operation,
                "apiVersion": stored.obj["apiVersion"],
                **({"subresource": sub} if sub else {}),
                "fieldsType": "FieldsV1",
                "fieldsV1": kube_fields.fields_v1(paths),
            }
            for (manager, operation, sub), paths in stored.owners.items()
            if paths
        ]
        if old is not None and old.obj == stored.obj:
            return copy.deepcopy(old.obj)
        self._state["version"] += 1
        metadata["resourceVersion"] = str(self._state["version"])
        if where[0] not in NO_GENERATION and old is not None and _words(old.obj) != _words(stored.obj):
            metadata["generation"] += 1
        self._objects[where] = stored
        self._tell(where[0], event, stored.obj)
        return copy.deepcopy(stored.obj)

    def _new(self, manifest: Mapping[str, Any]) -> _Stored:
        self._state["uid"] += 1
        metadata = {k: v for k, v in manifest["metadata"].items() if k in ("name", "namespace")}
        metadata |= {"uid": f"uid-{self._state['uid']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if manifest["kind"] not in NO_GENERATION:
            metadata["generation"] = 1
        return _Stored({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata})

    def _existing(self, where: Where) -> _Stored:
        if where not in self._objects:
            raise NotFoundError(404, "NotFound", f"{where} not found")
        return self._objects[where]

    def _check_preconditions(self, stored: _Stored, manifest: Mapping[str, Any]) -> None:
        for name in ("uid", "resourceVersion"):
            wanted = manifest["metadata"].get(name)
            if wanted and wanted != stored.obj["metadata"][name]:
                raise ConflictError(409, "Conflict", f"the object has been modified: {name} is not {wanted}")

    def _remove(self, where: Where) -> None:
        stored = self._objects.pop(where)
        self._state["version"] += 1
        stored.obj["metadata"]["resourceVersion"] = str(self._state["version"])
        self._tell(where[0], "DELETED", stored.obj)
        uid = stored.obj["metadata"]["uid"]
        for other, dependent in list(self._objects.items()):
            owners = dependent.obj["metadata"].get("ownerReferences") or []
            if other in self._objects and any(owner.get("uid") == uid for owner in owners):
                self._remove(other)

    def _tell(self, kind: str, event: str, obj: Mapping[str, Any]) -> None:
        for watcher in self._watchers:
            watcher(kind, event, copy.deepcopy(dict(obj)))

    def _count(self, verb: str, kind: str) -> None:
        self.requests[verb, kind] += 1
        if self.failures.get((verb, kind)):
            raise self.failures[verb, kind].pop(0)


def _where(manifest: Mapping[str, Any]) -> Where:
    metadata = manifest["metadata"]
    if not KINDS[manifest["kind"]].namespaced:
        return (manifest["kind"], "", metadata["name"])
    return (manifest["kind"], metadata["namespace"], metadata["name"])


def _words(obj: Mapping[str, Any]) -> dict[str, Any]:
    """What the generation counts: all but metadata and status."""
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


def _merge(old: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(dict(old)) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _selected(obj: Mapping[str, Any], selector: str) -> bool:
    have = obj["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, equal, value = term.partition("=")
        if name not in have or (equal and have[name] != value):
            return False
    return True
