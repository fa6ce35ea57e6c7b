"""Processes that outlive the command that started them, found again without mistaking one for another.

A component's record holds its pid *and* its start time (field 22 of ``/proc/PID/stat``, in clock ticks since boot)
with the boot's id; all three must match before a signal is sent, so a recycled pid is never touched. The record is
written by the starting shell before it becomes the component: there is no instant at which a killed ``up`` leaves
a process without one. Beside that, every process carries the cluster's marker in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "DEVCLUSTER"
COMPONENT = "DEVCLUSTER_COMPONENT"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# $DEVCLUSTER_RECORD gets "pid start-time boot-id"; exec keeps pid and start time. The name in the second field of
# /proc/PID/stat is "sh" here, so splitting at blanks is safe.
_RECORD_AND_EXEC = """
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < "/proc/$$/stat"
start=$(echo "$stat" | cut -d' ' -f22)
echo "$$ $start $boot" > "$DEVCLUSTER_RECORD.new" && mv "$DEVCLUSTER_RECORD.new" "$DEVCLUSTER_RECORD" && exec "$@"
"""

_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class ProcessId:
    """A process, told apart from any later one that gets the same pid."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """False also for a zombie: it holds nothing any more."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.start_ticks and fields[0] not in {"Z", "X"}

    def stopped(self) -> bool:
        fields = _stat(self.pid)
        return fields is not None and fields[0] == "T"

    def signal(self, number: signal.Signals) -> bool:
        """Sends a signal; False if the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _stat(pid: int) -> list[str] | None:
    """The fields after the process's name: [state, ppid, …]; start time is the 20th of them."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def identify(pid: int) -> ProcessId | None:
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[19]))


def parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def read_record(path: Path) -> ProcessId | None:
    """The process of a record if it still runs, else None."""
    try:
        pid, start_ticks, boot = path.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    process = ProcessId(int(pid), int(start_ticks))
    return process if boot == _BOOT_ID.read_text().strip() and process.alive() else None


def spawn(
    command: Sequence[str],
    *,
    record: Path,
    log: Path,
    environ: Mapping[str, str],
) -> ProcessId:
    """Starts ``command`` in a session of its own, output appended to ``log``, and records it."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["sh", "-c", _RECORD_AND_EXEC, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environ) | {"DEVCLUSTER_RECORD": str(record)},
            start_new_session=True,
        )
    _children.append(child)
    process = identify(child.pid)
    assert process is not None, "a child that was not waited for still has an entry in /proc"
    return process


def reap() -> None:
    """Collects exited children of this process, so that they do not stay as zombies."""
    _children[:] = [child for child in _children if child.poll() is None]


def marked(marker: str) -> dict[ProcessId, str]:
    """All processes that carry the cluster's marker in their environment, with the component they belong to.

    A runtime's shims count to the runtime that started them.
    """
    wanted = f"{MARKER}={marker}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environ and (process := identify(int(entry.name))) is not None:
            prefix = f"{COMPONENT}=".encode()
            names = [item.removeprefix(prefix).decode() for item in environ if item.startswith(prefix)]
            found[process] = names[0] if names else ""
    return found


def children_of(parents: Iterable[ProcessId]) -> list[ProcessId]:
    """Direct children of ``parents``."""
    pids = {parent.pid for parent in parents}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent_of(int(entry.name)) in pids:
            process = identify(int(entry.name))
            if process is not None:
                found.append(process)
    return found


def kill_all(processes: Iterable[ProcessId], *, timeout_seconds: float = 5) -> list[ProcessId]:
    """SIGKILLs all and waits until they are gone; returns those that are not."""
    left = list(processes)
    for process in left:
        with contextlib.suppress(PermissionError):
            process.signal(signal.SIGKILL)
    deadline = time.monotonic() + timeout_seconds
    while left and time.monotonic() < deadline:
        reap()
        left = [process for process in left if process.alive()]
        if left:
            time.sleep(0.01)
    return left
