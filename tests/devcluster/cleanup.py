"""Removes everything a cluster left on the machine, whatever state it is in.

All its data go with it, so nothing is asked to end in order: an API server told to stop waits up to a minute for
open watches. Processes are found three ways, since any part may have been killed before: by the marker in their
environment, as children of the runtime's shims, and in runc's own records of containers.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from devcluster import network, processes
from devcluster.errors import DevclusterError
from devcluster.layout import MAX_NODES, SPEC_FILE, Layout, NodeLayout
from devcluster.node import PRIVATE_FOLDERS
from devcluster.processes import ProcessId
from devcluster.shell import run

_MNT_DETACH = 2
_BUSY_SECONDS, _LOOK_SECONDS = 3.0, 0.02
_libc = ctypes.CDLL(None, use_errno=True)


def destroy(layout: Layout) -> None:
    """Ends all processes and removes all mounts, devices, tables and files of the cluster; may be repeated.

    Raises DevclusterError if a process cannot be killed.
    """
    kill_processes(layout)
    nodes = existing_nodes(layout)
    for node in nodes:
        remove_cgroups(node)
    unmount_below(layout.folder)
    if not layout.spec.light:
        network.remove(layout, nodes)
    remove_files(layout.folder, last=SPEC_FILE)
    for folder in () if layout.spec.light else PRIVATE_FOLDERS:
        # Made as mount points if they were not there; another program's folder is not empty.
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def remove_files(folder: Path, *, last: str) -> None:
    """Removes the folder, and in it the file ``last`` at last: while it stands, the rest is found and removed again."""
    if not folder.exists():
        return
    rest = [str(path) for path in folder.iterdir() if path.name != last]
    for paths in (rest, [str(folder)]):
        run(["rm", "-rf", "--one-file-system", *paths])


def existing_nodes(layout: Layout) -> tuple[NodeLayout, ...]:
    """Nodes of which anything is left, also those that the spec no longer has."""
    nodes = (layout.node(index) for index in range(1, MAX_NODES + 1))
    return tuple(
        node
        for node in nodes
        if node.folder.exists() or network.node_exists(node) or network.link_exists(node)
    )


def kill_processes(layout: Layout) -> None:
    """SIGKILLs all processes of the cluster."""
    _kill(layout, existing_nodes(layout), only=lambda _: True)


def kill_node(layout: Layout, node: NodeLayout) -> None:
    """SIGKILLs all processes of one node, and all its containers."""
    _kill(layout, (node,), only=lambda component: component.endswith(f"-{node.index}"))


def kill_strays(layout: Layout, recorded: Callable[[str], ProcessId | None]) -> None:
    """SIGKILLs what a killed `up` had begun to start and a later start of the same component knows nothing of."""
    strays = [
        process
        for process, component in processes.marked(layout.marker).items()
        if process != recorded(component) and not _is_shim(process)
    ]
    processes.kill_all(strays)


def _kill(layout: Layout, nodes: tuple[NodeLayout, ...], *, only: Callable[[str], bool]) -> None:
    """Kills until a look finds nothing: a runtime may start one more shim while it is being killed."""
    left: list[ProcessId] = []
    for _ in range(5):
        # Containers first: once their shim is gone, only runc's record tells whose they are.
        containers = [process for node in nodes for process in container_processes(node)]
        found = [process for process, component in processes.marked(layout.marker).items() if only(component)]
        shims = [process for process in found if _is_shim(process)]
        everything = {*containers, *found, *processes.children_of(shims)}
        if not everything:
            return
        for process in found:
            process.signal(signal.SIGSTOP)
        left = processes.kill_all(everything)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise DevclusterError(
            f"processes {pids} of cluster {layout.spec.name!r} do not end on SIGKILL; see `ps -o pid,stat,wchan`"
        )


def container_processes(node: NodeLayout) -> list[ProcessId]:
    """First processes of all containers, from runc's state files; killing one ends its whole pid namespace."""
    found = []
    for path in node.runc_root.glob("k8s.io/*/state.json"):
        try:
            state = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        process = ProcessId(int(state["init_process_pid"]), int(state["init_process_start"]))
        if process.alive():
            found.append(process)
    return found


def _is_shim(process: ProcessId) -> bool:
    try:
        return Path(f"/proc/{process.pid}/exe").readlink().name == "containerd-shim-runc-v2"
    except OSError:
        return False


def remove_cgroups(node: NodeLayout) -> None:
    """Removes the empty control groups of a node's containers.

    A group is busy for a moment after its last process was killed, until the kernel has switched that out for good.
    """
    containers = {path.name for path in node.runc_root.glob("k8s.io/*")}
    if not containers:
        return
    deadline = time.monotonic() + _BUSY_SECONDS
    while left := [each for each in Path("/sys/fs/cgroup").glob("**/k8s.io/*") if each.name in containers]:
        for cgroup in left:
            with contextlib.suppress(OSError):
                cgroup.rmdir()
                cgroup.parent.rmdir()  # only the last one can
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_SECONDS)


def mounts_below(folder: Path) -> list[str]:
    """Mount points under ``folder``, the innermost first."""
    return [path for path in reversed(list(_mount_points())) if Path(path).is_relative_to(folder)]


def _mount_points() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Blanks in a path are written as octal escapes.
        yield line.split()[4].encode().decode("unicode_escape")


def unmount_below(folder: Path) -> None:
    """Detaches all mounts under ``folder``; several may be stacked on one point."""
    while points := mounts_below(folder):
        for point in points:
            if _libc.umount2(os.fsencode(point), _MNT_DETACH) != 0:
                code = ctypes.get_errno()
                raise DevclusterError(f"cannot unmount {point}: {os.strerror(code)}")
