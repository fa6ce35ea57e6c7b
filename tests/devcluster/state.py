"""What is written down of each cluster, and the locks that keep two commands from working on one at once."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.layout import SPEC_FILE, Layout, Spec
from devcluster.processes import ProcessId
from devcluster.slots import Slots


class Registry:
    """All clusters under one state folder."""

    def __init__(self, root: Path, *, slots: Slots | None = None) -> None:
        self.root = root
        self._slots = slots or Slots()

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Holds the lock of one cluster; the kernel frees it when its holder dies."""
        path = self.root / f".{name}.lock"
        while True:
            self.root.mkdir(parents=True, exist_ok=True)
            with path.open("w") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if not _same_file(handle.fileno(), path):
                    continue  # its last holder removed it while we waited: a lock that nobody else can see
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return

    def find(self, name: str) -> Spec | None:
        """The spec of a cluster that exists, running or not."""
        try:
            return Spec.from_json(json.loads((self.root / name / SPEC_FILE).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise DevclusterError(
                f"{self.root / name / SPEC_FILE} cannot be read ({error}); "
                f"if another version wrote it, run that version's `devcluster down --name {name}`"
            ) from None

    def all(self) -> list[Spec]:
        """Specs of all clusters, by name."""
        names = sorted(path.parent.name for path in self.root.glob(f"*/{SPEC_FILE}"))
        return [spec for name in names if (spec := self.find(name)) is not None]

    def claim(self, wanted: Spec, *, choose: Callable[[set[int]], int]) -> Spec:
        """Writes the spec down, with the slot that ``choose`` gives for those taken.

        A cluster that exists keeps its slot and what it has beyond what is wanted. Raises DevclusterError where it
        cannot become the wanted one.
        """
        with self.locked("registry"):
            folder = self.root / wanted.name
            found = self.find(wanted.name)
            if found is not None:
                spec = merge(found, wanted)
                if not self._slots.claim(spec.slot, folder):
                    raise DevclusterError(
                        f"the addresses of cluster {spec.name!r} (slot {spec.slot}) went to another cluster while it "
                        f"was down; run `devcluster down --name {spec.name}` and make it anew"
                    )
            else:
                folder.mkdir(parents=True, exist_ok=True)
                spec = replace(wanted, slot=self._claim_new(folder, choose))
            write_atomic(folder / SPEC_FILE, json.dumps(spec.to_json(), indent=2) + "\n")
            return spec

    def _claim_new(self, folder: Path, choose: Callable[[set[int]], int]) -> int:
        while True:
            slot = choose({spec.slot for spec in self.all()} | self._slots.taken())
            if self._slots.claim(slot, folder):
                return slot

    def release(self, spec: Spec) -> None:
        """Gives the slot of a cluster back whose folder has been removed."""
        self._slots.release(spec.slot, self.root / spec.name)

    def orphans(self) -> list[Spec]:
        """Clusters whose owning test process is gone."""
        return [spec for spec in self.all() if spec.owner and not ProcessId(*spec.owner).alive()]


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def merge(found: Spec, wanted: Spec) -> Spec:
    """What an existing cluster becomes: never less than it is, and accelerators only as it was made with."""
    mend = f"run `devcluster down --name {found.name}` first, or choose another --name"
    if found.light != wanted.light:
        kind = "the light form" if found.light else "a whole cluster"
        raise DevclusterError(f"cluster {found.name!r} exists as {kind}; {mend}")
    if wanted.gpus and (found.gpus, found.gpu_type) != (wanted.gpus, wanted.gpu_type):
        raise DevclusterError(
            f"cluster {found.name!r} has {found.gpus} {found.gpu_type} a node, "
            f"{wanted.gpus} {wanted.gpu_type} wanted; {mend}"
        )
    return replace(
        found,
        nodes=max(found.nodes, wanted.nodes),
        network_policies=found.network_policies or wanted.network_policies,
        owner=wanted.owner,
    )


def tokens(layout: Layout, users: list[str]) -> dict[str, str]:
    """One random token for each user, made at the first start and kept for the cluster's life."""
    path = layout.folder / "tokens.json"
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    new = {user: secrets.token_hex(16) for user in users if user not in known}
    if new:
        known |= new
        write_atomic(path, json.dumps(known, indent=2) + "\n", mode=0o600)
    return known


def write_atomic(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Writes a file so that a reader, or a killed writer, sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    partial.replace(path)
