"""The engine's process and everything it starts: spawned apart, signalled, reaped, and never left behind.

As the first process of a container nobody else reaps. Elsewhere the same holds by PR_SET_CHILD_SUBREAPER:
what the engine's workers leave behind becomes our child (prctl(2), Linux 3.4).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: one of the two is set."""

    exit_code: int | None
    signal: int | None


def exit_status(wait_status: int) -> ExitStatus:
    """A waitpid(2) status in words."""
    if os.WIFSIGNALED(wait_status):
        return ExitStatus(None, os.WTERMSIG(wait_status))
    return ExitStatus(os.WEXITSTATUS(wait_status), None)


def _load_prctl() -> Callable[..., int] | None:
    try:
        prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    return prctl


class EngineProcess:
    """One engine. Its output comes through `stdout` and `stderr`; call `reap` whenever SIGCHLD arrived."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it in a session of its own; it dies with us.

        Raises:
            OSError: when the program cannot be run.

        """
        prctl = _load_prctl()
        if prctl is not None:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def die_with_parent() -> None:
            if prctl is not None:
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread of ours runs yet, and it only makes a system call
        )
        self.pid = self._process.pid
        self.status: ExitStatus | None = None

    @property
    def output(self) -> tuple[int, int]:
        """Descriptors of what it prints: standard output, standard error."""
        if self._process.stdout is None or self._process.stderr is None:
            raise RuntimeError("the engine was started without pipes")
        return self._process.stdout.fileno(), self._process.stderr.fileno()

    def send(self, number: int) -> None:
        """Signal the engine's main process, as a container runtime would; nothing happens when it is gone."""
        if self.status is None:
            os.kill(self.pid, number)

    def reap(self) -> bool:
        """Collect every child that ended, ours or inherited; True when the engine is among them."""
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self.pid:
                self.status = exit_status(status)
                self._process.returncode = status  # reaped here: Popen must not wait for it again
                ended = True

    def kill_all(self) -> None:
        """SIGKILL to the engine and everything below us."""
        _signal(descendants(os.getpid()), signal.SIGKILL)

    def end_rest(
        self, *, wait: Callable[[float], None], grace_seconds: float, now: Callable[[], float]
    ) -> None:
        """After the main process ended: end what it left running, politely, then not.

        A worker that outlives the engine keeps the accelerator's memory. `wait` returns when a signal came
        (SIGCHLD) or the time is over.
        """
        for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, grace_seconds)):
            _signal(descendants(os.getpid()), number)
            deadline = now() + patience
            while True:
                self.reap()
                left = deadline - now()
                if not descendants(os.getpid()):
                    return
                if left <= 0:
                    break
                wait(left)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def descendants(root: int) -> list[int]:
    """Process ids below `root`, zombies included, from /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names, once a second: no objects for them
        if name.isdigit():
            parent = _parent(name)
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _parent(pid: str) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # "pid (name) state ppid …": the name may hold spaces and parentheses
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def storage_read_bytes(root: int) -> int:
    """Bytes that `root` and what is below it made the kernel read from storage (proc(5), /proc/<pid>/io)."""
    total = 0
    for pid in [root, *descendants(root)]:
        try:
            lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))
        except (OSError, ValueError, IndexError):
            continue
    return total


def kernel_oom_kills(paths: Sequence[str]) -> int | None:
    """Processes of this container that the kernel killed for memory (cgroup v2 or v1); None: unreadable."""
    for path in paths:
        try:
            for line in Path(path).read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        except (OSError, ValueError):
            continue
    return None


OOM_KILL_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
