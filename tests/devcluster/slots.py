"""Which slots of the machine's addresses are taken, over all state folders and users.

A claim is a small file that names the cluster's folder; once the folder is gone, the claim counts no more.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MACHINE_WIDE = Path("/run/lock")
_PREFIX = "devcluster-slot-"


class Slots:
    """Claims in one folder that every user of the machine can write to."""

    def __init__(self, folder: Path = MACHINE_WIDE) -> None:
        self._folder = folder

    def taken(self) -> set[int]:
        """Slots whose cluster's folder exists."""
        found = set()
        for path in self._folder.glob(f"{_PREFIX}*"):
            number = path.name.removeprefix(_PREFIX)
            if number.isdigit() and self._owner(path) is not None:
                found.add(int(number))
        return found

    def claim(self, slot: int, cluster: Path) -> bool:
        """Takes the slot for the cluster's folder, which must exist; False if another one has it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{_PREFIX}{slot}"
        for _ in range(2):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                owner = self._owner(path)
                if owner is not None:
                    return owner == cluster
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    path.unlink()
                continue
            with os.fdopen(descriptor, "w") as handle:
                handle.write(str(cluster))
            return True
        return False

    def release(self, slot: int, cluster: Path) -> None:
        """Gives the slot back if it is this cluster's."""
        path = self._folder / f"{_PREFIX}{slot}"
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if path.read_text() == str(cluster):
                path.unlink()

    def _owner(self, path: Path) -> Path | None:
        """The folder that a claim names if it exists; a claim that is just being written counts as its writer's."""
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        if not text:
            return path
        return Path(text) if Path(text).exists() else None
