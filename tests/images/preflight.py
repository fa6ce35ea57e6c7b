"""Says what the machine lacks before a build begins; installs Debian packages where it may."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from images.errors import PreflightError
from images.shell import run, say

GIB = 1024**3
# Kept free for everything else on the machine.
RESERVE_BYTES = 2 * GIB
# The command that each Debian package brings.
BUILDAH_PACKAGES: Mapping[str, str] = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a preflight looks at."""

    is_root: bool
    missing_packages: tuple[str, ...]
    free_bytes: int


def problems(machine: Machine, *, needed_bytes: int, folder: Path) -> list[str]:
    """Each thing that is missing, with its mend; empty if a build can begin."""
    found = []
    if not machine.is_root:
        found.append(
            "root is needed to build images without Docker: run it with sudo, or set IMAGE_BUILDER=docker"
        )
    if machine.missing_packages:
        names = " ".join(machine.missing_packages)
        found.append(
            f"missing: {names}. On Debian or Ubuntu: sudo apt-get install {names}; elsewhere set IMAGE_BUILDER=docker"
        )
    if machine.free_bytes < needed_bytes + RESERVE_BYTES:
        found.append(
            f"{folder} needs {(needed_bytes + RESERVE_BYTES) / GIB:.0f} GiB of free disk, 2 GiB of reserve included; "
            f"{machine.free_bytes / GIB:.1f} GiB are free: free some, or set XDG_CACHE_HOME to a larger disk"
        )
    return found


def missing_packages(which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """The Debian packages whose commands are not on PATH."""
    return tuple(package for package, command in BUILDAH_PACKAGES.items() if which(command) is None)


def check(folder: Path, *, needed_bytes: int, with_buildah: bool) -> None:
    """Raise PreflightError with all that is missing; as root on Debian or Ubuntu, install packages first."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = missing_packages() if with_buildah else ()
    is_root = not with_buildah or os.geteuid() == 0
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing Debian packages: {' '.join(missing)}")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update", "-qq"], environ=quiet)
        run(["apt-get", "install", "-qqy", "--no-install-recommends", *missing], environ=quiet)
        missing = missing_packages()
    machine = Machine(is_root=is_root, missing_packages=missing, free_bytes=shutil.disk_usage(folder).free)
    if found := problems(machine, needed_bytes=needed_bytes, folder=folder):
        raise PreflightError("images cannot be built:\n" + "\n".join(f"  - {problem}" for problem in found))
