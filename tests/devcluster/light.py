"""The light form of a cluster, etcd and API server: start, stop, ask. What a whole cluster does as well is here."""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from devcluster import cleanup, control_plane, network, preflight, processes, state
from devcluster.api import Api
from devcluster.audit import AuditLog
from devcluster.binaries import Binaries, light_programs
from devcluster.control_plane import Component
from devcluster.faults import Faults
from devcluster.layout import Layout, Spec, choose_slot, current_state_root
from devcluster.shell import run
from devcluster.supervision import Supervisor, answers_ok, current_environ

START_SECONDS = 60


def say_on_stderr(text: str) -> None:
    """Progress goes to stderr, so that stdout carries only what was asked for."""
    print(text, file=sys.stderr, flush=True)


class LightCluster:
    """etcd and an API server: real schemas, admission, RBAC and watches; no controllers, no nodes."""

    light = True

    def __init__(
        self,
        name: str = "light",
        *,
        say: Callable[[str], None] = say_on_stderr,
        environ: Mapping[str, str] | None = None,
        owned: bool = False,
        kubernetes: str = "",
    ) -> None:
        """``owned`` ties the cluster to this process: a later `remove_orphans` removes it once the process is gone.

        ``kubernetes`` is the API server's version, such as 1.31; empty: the newest.
        """
        self._say = say
        self._environ = current_environ() if environ is None else dict(environ)
        self._registry = state.Registry(current_state_root())
        self._binaries = Binaries(environ=self._environ, say=say)
        own = processes.identify(os.getpid()) if owned else None
        owner = [] if own is None else [own.pid, own.start_ticks]
        found = self._registry.find(name)
        self._wanted = Spec(
            name=name,
            slot=found.slot if found else 0,
            light=self.light,
            owner=owner,
            kubernetes=found.kubernetes if found else kubernetes,
        )
        self.timings: dict[str, float] = {}

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        return self._wanted.name

    @property
    def layout(self) -> Layout:
        return Layout(root=self._registry.root, spec=self._registry.find(self.name) or self._wanted)

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(self.layout, self._binaries, self._environ)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its certificate is inside, so it can be copied anywhere on the machine."""
        return self.layout.kubeconfig

    @property
    def audit(self) -> AuditLog:
        """Counts of requests by user and verb."""
        return AuditLog(self.layout.audit_log)

    @property
    def api(self) -> Api:
        return self.api_as("admin")

    def api_as(self, user: str) -> Api:
        layout = self.layout
        token = state.tokens(layout, [])[user]
        return Api(server=layout.server, token=token, ca=layout.folder / "pki" / "apiserver.crt")

    def program(self, name: str) -> Path:
        """Path of a built program, such as ``helm``."""
        self._binaries.ensure((name,))
        return self._binaries.path(name)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 120) -> str:
        """Runs kubectl as administrator and returns its stdout; CommandError carries its stderr."""
        command = [str(self.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        environ = self._environ | {"NO_PROXY": "127.0.0.0/8,10.0.0.0/8"}
        return run(command, stdin=stdin, environ=environ, timeout_seconds=timeout_seconds)

    def components(self) -> list[Component]:
        """All components, in starting order."""
        return [build(self.layout) for build in control_plane.CONTROL_PLANE]

    @property
    def faults(self) -> Faults:
        """Handles that stop, continue, kill and restart single components, and cut nodes."""
        return Faults(self.layout, self.supervisor, self.components())

    # ── start and stop ──────────────────────────────────────────────────────────────────────────────────────

    def up(self) -> None:
        """Starts what does not run; on a healthy cluster it changes nothing.

        Raises PreflightError if the machine lacks something, StartError if a component does not get ready.
        """
        self._check_machine()
        with self._registry.locked(self.name):
            self._binaries.ensure(self._programs())
            started = time.monotonic()
            self.timings = {}
            self._wanted = self._registry.claim(self._wanted, choose=self._choose_slot)
            cleanup.kill_strays(self.layout, self.supervisor.process)
            self._start()
            self._lap("up", started)

    def down(self) -> None:
        """Ends and removes the cluster and all its data; no error if there is none."""
        spec = self._registry.find(self.name)
        if spec is not None:
            self._destroy(spec)

    def _choose_slot(self, taken: set[int]) -> int:
        return choose_slot(taken, routed=[], loopback_is_free=network.loopback_is_free)

    def _programs(self) -> tuple[str, ...]:
        return light_programs(self._wanted.kubernetes)

    def _check_machine(self) -> None:
        missing = self._binaries.missing(self._programs())
        root = self._registry.root
        preflight.check(
            light=self.light,
            network_policies=self._wanted.network_policies,
            say=self._say,
            environ=self._environ,
            missing=missing,
            state_root=root,
        )

    def _start(self) -> None:
        self._prepare()
        self._start_control_plane()

    def _lap(self, label: str, since: float) -> None:
        self.timings[label] = round(time.monotonic() - since, 2)

    def _users(self) -> list[str]:
        return ["admin"]

    def _prepare(self) -> None:
        """Tokens and keys: made once, kept as long as the cluster."""
        layout = self.layout
        tokens = state.tokens(layout, self._users())
        state.write_atomic(layout.folder / "tokens.csv", control_plane.token_file(tokens), mode=0o600)
        for name, command in control_plane.key_commands(layout).items():
            path = layout.folder / "pki" / name
            if not path.exists():
                state.write_atomic(path, run(command), mode=0o600)
        certificate = control_plane.certificate_of((layout.folder / "pki" / "apiserver.pem").read_text())
        state.write_atomic(layout.folder / "pki" / "apiserver.crt", certificate)
        self._write_kubeconfigs()

    def _start_control_plane(self) -> None:
        started = time.monotonic()
        supervisor = self.supervisor
        components = [build(self.layout) for build in control_plane.CONTROL_PLANE]
        for component in components:
            supervisor.ensure(component)
        self._while_control_plane_starts()
        for component in components:
            supervisor.wait(component, timeout_seconds=START_SECONDS)
        self._lap("api server", started)

    def _while_control_plane_starts(self) -> None:
        """Work that needs no API server, or not all of it."""

    def _write_kubeconfigs(self) -> None:
        layout = self.layout
        ca = base64.b64encode((layout.folder / "pki" / "apiserver.crt").read_bytes()).decode()
        tokens = state.tokens(layout, [])
        for user, path in self._kubeconfig_paths().items():
            text = control_plane.kubeconfig(server=layout.server, token=tokens[user], ca_data=ca)
            state.write_atomic(path, text, mode=0o600)

    def _kubeconfig_paths(self) -> dict[str, Path]:
        return {"admin": self.layout.kubeconfig}

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        return self._registry.find(self.name) is not None

    def status(self) -> dict[str, str]:
        """Each component with ``running``, ``stopped`` (by a signal), ``not ready`` or ``dead``."""
        supervisor = self.supervisor
        answer = {}
        for component in self.components():
            process = supervisor.process(component.name)
            if process is None:
                answer[component.name] = "dead"
            elif process.stopped():
                answer[component.name] = "stopped"
            elif component.readiness is None or answers_ok(component.readiness):
                answer[component.name] = "running"
            else:
                answer[component.name] = "not ready"
        return answer

    def remove_orphans(self) -> None:
        """Removes clusters of test processes that were killed before they could."""
        for spec in self._registry.orphans():
            self._say(f"removing cluster {spec.name!r}: the test process that owned it is gone")
            self._destroy(spec)

    def _destroy(self, spec: Spec) -> None:
        with self._registry.locked(spec.name):
            cleanup.destroy(Layout(root=self._registry.root, spec=spec))
            self._registry.release(spec)
