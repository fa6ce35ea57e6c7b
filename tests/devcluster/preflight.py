"""Says what the machine lacks before anything is started, and how to get it; installs Debian packages itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.binaries import find_go
from devcluster.errors import CommandError, PreflightError
from devcluster.node import CNI_PLUGINS
from devcluster.shell import run

GIB = 1024**3
BUILD_BYTES = 8 * GIB
RUN_BYTES = 2 * GIB
MINIMUM_MEMORY_BYTES = 3 * GIB

# A file or command that each Debian package brings.
PACKAGES: Mapping[str, str] = {
    "runc": "runc",
    "containernetworking-plugins": str(CNI_PLUGINS / "ptp"),
    "iproute2": "ip",
    "nftables": "nft",
    "conntrack": "conntrack",
    "util-linux": "nsenter",
    "openssl": "openssl",
}
LIGHT_PACKAGES = ("openssl",)
POLICY_PACKAGES: Mapping[str, str] = {"iptables": "iptables", "ipset": "ipset"}
"""What the enforcer of NetworkPolicies runs."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a preflight looks at."""

    is_root: bool
    has_apt: bool
    has_go: bool
    missing_packages: tuple[str, ...]
    free_build_bytes: int
    free_state_bytes: int
    memory_bytes: int


def problems(machine: Machine, *, light: bool, must_build: bool) -> list[str]:
    """Each thing that is missing, with its mend; empty if the cluster can start."""
    found = []
    if not light and not machine.is_root:
        found.append("root is needed for containers, network namespaces and mounts: run it with sudo")
    if must_build and not machine.has_go:
        found.append("Go is needed once, to build Kubernetes: install Go 1.26 or newer (https://go.dev/dl)")
    if machine.missing_packages:
        names = " ".join(machine.missing_packages)
        found.append(f"missing packages: {names}. On Debian or Ubuntu: sudo apt-get install {names}")
    if must_build and machine.free_build_bytes < BUILD_BYTES:
        found.append(
            f"the first build needs {BUILD_BYTES / GIB:.0f} GiB of disk for Go's caches, "
            f"{machine.free_build_bytes / GIB:.1f} GiB are free: free some, or set GOCACHE and GOMODCACHE"
        )
    if machine.free_state_bytes < RUN_BYTES:
        found.append(
            f"the cluster's state needs {RUN_BYTES / GIB:.0f} GiB of disk, {machine.free_state_bytes / GIB:.1f} GiB "
            "are free: free some, or set DEVCLUSTER_STATE to a folder on a larger disk"
        )
    if not light and machine.memory_bytes < MINIMUM_MEMORY_BYTES:
        found.append(
            f"a whole cluster needs {MINIMUM_MEMORY_BYTES / GIB:.0f} GiB of memory, the machine has "
            f"{machine.memory_bytes / GIB:.1f} GiB: use --light, or a larger machine"
        )
    return found


def packages(*, light: bool, network_policies: bool) -> Mapping[str, str]:
    """The Debian packages that such a cluster needs, each with a file or command that it brings."""
    if light:
        return {name: PACKAGES[name] for name in LIGHT_PACKAGES}
    return {**PACKAGES, **(POLICY_PACKAGES if network_policies else {})}


def check(
    *,
    light: bool,
    network_policies: bool = False,
    say: Callable[[str], None],
    environ: Mapping[str, str],
    missing: Sequence[str],
    state_root: Path,
) -> None:
    """Raises PreflightError with all that is missing; as root on Debian or Ubuntu, installs packages first."""
    wanted = packages(light=light, network_policies=network_policies)
    machine = look(wanted, environ=environ, state_root=state_root)
    if machine.missing_packages and machine.is_root and machine.has_apt:
        install(machine.missing_packages, say=say, environ=environ)
        machine = look(wanted, environ=environ, state_root=state_root)
    found = problems(machine, light=light, must_build=bool(missing))
    if found:
        raise PreflightError(
            "this machine cannot run the cluster yet:\n" + "\n".join(f"  - {line}" for line in found)
        )
    if missing:
        say(
            f"{len(missing)} programs are not built yet (9 minutes on 2 cores from empty caches, 2 from warm)"
        )


def look(wanted: Mapping[str, str], *, environ: Mapping[str, str], state_root: Path) -> Machine:
    """Reads the machine's facts; ``wanted`` are packages, each with its mark."""
    home = Path(environ.get("HOME", "/"))
    return Machine(
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        has_go=find_go(environ) is not None,
        missing_packages=tuple(name for name, mark in wanted.items() if not _has(mark)),
        free_build_bytes=_free(Path(environ.get("GOCACHE") or environ.get("XDG_CACHE_HOME") or home)),
        free_state_bytes=_free(state_root),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _has(mark: str) -> bool:
    if mark.startswith("/"):
        return Path(mark).exists()
    return shutil.which(mark, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") is not None


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def install(packages: Sequence[str], *, say: Callable[[str], None], environ: Mapping[str, str]) -> None:
    """apt-get install; the package list is refreshed first, since an old one points at files that are gone."""
    say(f"installing missing packages with apt-get: {' '.join(packages)}")
    quiet = dict(environ) | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(["apt-get", "update", "-qq"], environ=quiet)
        run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages], environ=quiet)
    except CommandError as error:
        raise PreflightError(f"installing {' '.join(packages)} failed: {error}") from None
