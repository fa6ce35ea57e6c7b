"""Starts components, tells whether they run, and waits until they work."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from devcluster import processes
from devcluster.binaries import Binaries
from devcluster.control_plane import Component
from devcluster.errors import StartError
from devcluster.layout import Layout
from devcluster.processes import ProcessId
from devcluster.state import write_atomic

_POLL_SECONDS = 0.02


class Supervisor:
    """The processes of one cluster, by component name."""

    def __init__(self, layout: Layout, binaries: Binaries, environ: Mapping[str, str]) -> None:
        self._layout = layout
        self._binaries = binaries
        self._environ = dict(environ)

    def record(self, name: str) -> Path:
        return self._layout.folder / "run" / name

    def log(self, name: str) -> Path:
        return self._layout.folder / "log" / f"{name}.log"

    def process(self, name: str) -> ProcessId | None:
        """The component's process if it runs."""
        return processes.read_record(self.record(name))

    def ensure(self, component: Component) -> bool:
        """Starts a component unless it runs; one that was stopped is continued. True if it was started."""
        running = self.process(component.name)
        if running is not None:
            running.signal(signal.SIGCONT)
            return False
        for folder in (*component.folders, self.record("x").parent, self.log("x").parent):
            folder.mkdir(parents=True, exist_ok=True)
        for path, text in component.files.items():
            write_atomic(path, text)
        # A record that is there means "was started": none may be left of an earlier process.
        self.record(component.name).unlink(missing_ok=True)
        program = self._binaries.path(component.program)
        processes.spawn(
            [*self._enter(component), *component.wrapper, str(program), *component.arguments],
            record=self.record(component.name),
            log=self.log(component.name),
            environ=self._component_environ(program) | {processes.COMPONENT: component.name},
        )
        return True

    def _enter(self, component: Component) -> list[str]:
        """The command that enters the component's namespaces and then becomes what follows; none for the host's."""
        if component.network_namespace is None:
            return []
        enter = ["nsenter", f"--net=/run/netns/{component.network_namespace}"]
        if component.holder is not None:
            holder = self.process(component.holder)
            if holder is None:
                raise StartError(
                    f"{component.name} needs {component.holder}, which does not run; run `up` again"
                )
            enter.append(f"--mount=/proc/{holder.pid}/ns/mnt")
        return [*enter, "--"]

    def wait_program(self, component: Component, *, timeout_seconds: float) -> None:
        """Returns once the process has become its program: all that its wrapper does is then done."""
        program = str(self._binaries.path(component.program))
        self.wait_until(
            component.name,
            lambda: self._program_of(component.name) == program,
            timeout_seconds=timeout_seconds,
        )

    def _program_of(self, name: str) -> str | None:
        process = self.process(name)
        try:
            return None if process is None else str(Path(f"/proc/{process.pid}/exe").readlink())
        except OSError:
            return None

    def _component_environ(self, program: Path) -> dict[str, str]:
        # containerd looks for its shim on PATH; runc and the system's tools stand in /usr/sbin.
        path = f"{program.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        kept = {key: value for key, value in self._environ.items() if key in _KEPT_VARIABLES}
        kept["NO_PROXY"] = kept["no_proxy"] = f"{kept.get('NO_PROXY', '')},127.0.0.0/8,10.0.0.0/8".lstrip(",")
        return kept | {"PATH": path, "HOME": "/root", processes.MARKER: self._layout.marker}

    def wait(self, component: Component, *, timeout_seconds: float) -> None:
        """Returns once the component's readiness URL answers 200."""
        assert component.readiness is not None, f"{component.name} has no readiness URL"
        url = component.readiness
        self.wait_until(component.name, lambda: answers_ok(url), timeout_seconds=timeout_seconds)

    def wait_until(self, name: str, condition: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Asks ``condition`` until it holds; StartError with the log's end if the component dies or time is up."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            processes.reap()
            if self.process(name) is None and self.record(name).exists():
                raise StartError(f"{name} has ended; its log {self.log(name)} ends with:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{name} is not ready after {timeout_seconds:g} s; its log {self.log(name)} ends with:\n"
                    f"{self.tail(name)}"
                )
            time.sleep(_POLL_SECONDS)

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a component's log."""
        try:
            text = self.log(name).read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def kill(self, name: str) -> None:
        """SIGKILLs a component and waits until it is gone; no error if it is not there."""
        process = self.process(name)
        if process is not None:
            left = processes.kill_all([process])
            if left:
                raise StartError(f"{name} (pid {process.pid}) does not end on SIGKILL")


# What the components may need of the caller's environment; nothing else leaks into them.
_KEPT_VARIABLES = frozenset(
    {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "LANG",
        "TZ",
        "TMPDIR",
    }
)


def answers_ok(url: str) -> bool:
    """Whether a GET answers 200 now."""
    return _status(url) == 200


def answers(url: str) -> bool:
    """Whether a GET is answered at all now, be it with an error."""
    return _status(url) is not None


def _status(url: str) -> int | None:
    """The status of a GET. Certificates are not checked: nothing is sent, and only the status is used."""
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=2, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=2)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def current_environ() -> dict[str, str]:
    """The caller's environment."""
    return dict(os.environ)
