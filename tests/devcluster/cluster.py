"""A Kubernetes cluster on this machine: start, stop, ask."""

from __future__ import annotations

import base64
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from devcluster import cleanup, control_plane, images, network, node, preflight, processes, state
from devcluster.api import Api
from devcluster.audit import AuditLog
from devcluster.binaries import LIGHT_PROGRAMS, Binaries
from devcluster.control_plane import Component
from devcluster.errors import DevclusterError, StartError
from devcluster.faults import Faults
from devcluster.layout import Layout, NodeLayout, Spec, choose_slot, current_state_root, validate
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
    ) -> None:
        """``owned`` ties the cluster to this process: a later `remove_orphans` removes it once the process is gone."""
        self._say = say
        self._environ = current_environ() if environ is None else dict(environ)
        self._registry = state.Registry(current_state_root())
        self._binaries = Binaries(environ=self._environ, say=say)
        own = processes.identify(os.getpid()) if owned else None
        owner = [] if own is None else [own.pid, own.start_ticks]
        found = self._registry.find(name)
        self._wanted = Spec(name=name, slot=found.slot if found else 0, light=self.light, owner=owner)
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
            self._start()
            self._lap("up", started)

    def down(self) -> None:
        """Ends and removes the cluster and all its data; no error if there is none."""
        with self._registry.locked(self.name):
            spec = self._registry.find(self.name)
            if spec is not None:
                cleanup.destroy(Layout(root=self._registry.root, spec=spec))

    def _choose_slot(self, taken: set[int]) -> int:
        return choose_slot(taken, routed=[], loopback_is_free=network.loopback_is_free)

    def _programs(self) -> tuple[str, ...] | None:
        return LIGHT_PROGRAMS

    def _check_machine(self) -> None:
        missing = self._binaries.missing(self._programs())
        root = self._registry.root
        preflight.check(
            light=self.light, say=self._say, environ=self._environ, missing=missing, state_root=root
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
        for name, command in control_plane.KEY_COMMANDS.items():
            path = layout.folder / "pki" / name
            if not path.exists():
                state.write_atomic(path, run(command), mode=0o600)

    def _start_control_plane(self) -> None:
        started = time.monotonic()
        supervisor = self.supervisor
        components = [build(self.layout) for build in control_plane.CONTROL_PLANE]
        for component in components:
            supervisor.ensure(component)
        self._while_control_plane_starts()
        for component in components:
            supervisor.wait(component, timeout_seconds=START_SECONDS)
        self._write_kubeconfigs()
        self._lap("api server", started)

    def _while_control_plane_starts(self) -> None:
        """Work that needs no API server."""

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
            with self._registry.locked(spec.name):
                cleanup.destroy(Layout(root=self._registry.root, spec=spec))


class Cluster(LightCluster):
    """A whole cluster: controllers, scheduler, DNS, and nodes that run containers."""

    light = False

    def __init__(
        self,
        name: str = "dev",
        *,
        nodes: int = 1,
        gpus: int = 0,
        gpu_type: str = "nvidia-h200",
        say: Callable[[str], None] = say_on_stderr,
        environ: Mapping[str, str] | None = None,
        owned: bool = False,
    ) -> None:
        super().__init__(name, say=say, environ=environ, owned=owned)
        validate(name=name, nodes=nodes, gpus=gpus, gpu_type=gpu_type)
        self._wanted = replace(self._wanted, nodes=nodes, gpus=gpus, gpu_type=gpu_type)

    @classmethod
    def existing(cls, name: str, *, say: Callable[[str], None] = say_on_stderr) -> Cluster:
        """The cluster of that name as it was made; DevclusterError if there is none."""
        spec = state.Registry(current_state_root()).find(name)
        if spec is None or spec.light:
            raise DevclusterError(f"there is no cluster {name!r}; make it with `devcluster up --name {name}`")
        return cls(name, nodes=spec.nodes, gpus=spec.gpus, gpu_type=spec.gpu_type, say=say)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(each.name for each in self.layout.nodes)

    @property
    def models_folder(self) -> Path:
        """A host folder that pods reach under the same path by hostPath; it goes with the cluster."""
        path = self.layout.folder / "models"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def load_image(self, archive: Path, *, node: str | None = None) -> str:
        """Imports an OCI or Docker archive into one node, or into all; returns the image's name.

        Raises ImageError if the archive has no name or the disk has no room.
        """
        layout = self.layout
        chosen = [each for each in layout.nodes if node in {None, each.name}]
        if not chosen:
            raise DevclusterError(f"there is no node {node!r}; nodes: {', '.join(self.nodes)}")
        return images.load(archive, chosen, ctr=self.program("ctr"), say=self._say)

    def components(self) -> list[Component]:
        layout = self.layout
        found = super().components() + [build(layout) for build in control_plane.CONTROLLERS]
        for each in layout.nodes:
            found += self._node_components(each.index)
        return found

    def _node_components(self, index: int) -> list[Component]:
        layout = self.layout
        builders = [node.holder, node.containerd, node.kubelet, node.kube_proxy]
        if layout.spec.gpus:
            builders.append(node.device_plugin)
        return [build(layout, layout.node(index)) for build in builders]

    def _choose_slot(self, taken: set[int]) -> int:
        return choose_slot(taken, routed=network.routed_networks(), loopback_is_free=network.loopback_is_free)

    def _programs(self) -> tuple[str, ...] | None:
        return None

    def _users(self) -> list[str]:
        return [*control_plane.USERS, *(control_plane.node_user(each.name) for each in self.layout.nodes)]

    def _kubeconfig_paths(self) -> dict[str, Path]:
        folder = self.layout.folder
        paths = {user: folder / f"{user.removeprefix('system:')}.kubeconfig" for user in control_plane.USERS}
        paths |= {
            control_plane.node_user(each.name): each.folder / "kubelet.kubeconfig"
            for each in self.layout.nodes
        }
        return paths | super()._kubeconfig_paths()

    def _start(self) -> None:
        started = time.monotonic()
        self._prepare()
        self._create_network()
        self._lap("network", started)
        self._start_control_plane()
        started = time.monotonic()
        components = self.components()
        for component in components:
            self.supervisor.ensure(component)
        for item in control_plane.dns_objects(self.layout):
            self.api.create(_collection(item), item)
        self._wait_nodes()
        self._lap("nodes ready", started)
        for component in components:
            if component.readiness is not None:
                self.supervisor.wait(component, timeout_seconds=START_SECONDS)
        self._wait_default_account()
        self._lap("everything else", started)

    def _create_network(self) -> None:
        layout = self.layout
        if not network.bridge_exists(layout):
            cleanup.kill_processes(layout)
            network.remove(layout, cleanup.existing_nodes(layout))
            network.create_bridge(layout)
        for each in layout.nodes:
            if not network.node_exists(each) or self.supervisor.process(each.holder) is None:
                self._boot_node(each)
            network.set_link(each, up=True)
        network.route_services(layout)

    def _boot_node(self, each: NodeLayout) -> None:
        """Makes the node's namespaces anew, as a machine's start does; its images and its pods' folders stay."""
        layout, supervisor = self.layout, self.supervisor
        cleanup.kill_node(layout, each)
        network.remove_node(each)
        network.create_node(layout, each)
        network.route_new_pods(layout, each)
        shutil.rmtree(each.containerd_state, ignore_errors=True)
        shutil.rmtree(each.runc_root, ignore_errors=True)
        supervisor.ensure(node.holder(layout, each))

    def _while_control_plane_starts(self) -> None:
        """Container runtimes need no API server: they start beside it, and get their pause image."""
        layout = self.layout
        pause = layout.folder / "pause.tar"
        images.write_archive(pause, name=node.PAUSE_IMAGE, program=self._binaries.path("pause"))
        for each in layout.nodes:
            self.supervisor.wait_program(node.holder(layout, each), timeout_seconds=START_SECONDS)
        runtimes = [node.containerd(layout, each) for each in layout.nodes]
        for runtime in runtimes:
            self.supervisor.ensure(runtime)
        for runtime, each in zip(runtimes, layout.nodes, strict=True):
            self.supervisor.wait_until(
                runtime.name, partial(images.runtime_answers, each), timeout_seconds=START_SECONDS
            )
        with ThreadPoolExecutor() as pool:
            ctr = self._binaries.path("ctr")
            list(pool.map(lambda each: images.load(pause, [each], ctr=ctr, say=lambda _: None), layout.nodes))

    def _wait_nodes(self) -> None:
        """Watches until each node is Ready and advertises its accelerators."""
        waiting = set(self.nodes)
        for item in self.api.events("/api/v1/nodes", deadline=time.monotonic() + START_SECONDS):
            name = item.get("metadata", {}).get("name", "")
            if node_ready(item, gpus=self.layout.spec.gpus):
                waiting.discard(name)
            if not waiting:
                return
        name = min(waiting)
        kubelet = f"kubelet-{name.removeprefix('node-')}"
        raise StartError(
            f"{name} is not Ready after {START_SECONDS} s; the log of {kubelet} ends with:\n"
            f"{self.supervisor.tail(kubelet)}"
        )

    def _wait_default_account(self) -> None:
        """A pod needs the namespace's default ServiceAccount, which a controller makes a moment after the namespace."""
        path = "/api/v1/namespaces/default/serviceaccounts"
        for item in self.api.events(path, deadline=time.monotonic() + START_SECONDS):
            if item.get("metadata", {}).get("name") == "default":
                return
        raise StartError(
            "the controllers made no default ServiceAccount; see the log of kube-controller-manager"
        )


def node_ready(item: Mapping[str, Any], *, gpus: int) -> bool:
    """Whether a Node is Ready and has ``gpus`` accelerators to give."""
    status = item.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return ready and int(status.get("allocatable", {}).get("nvidia.com/gpu", 0)) >= gpus


def _collection(item: Mapping[str, Any]) -> str:
    """The path to POST an object to."""
    group = item["apiVersion"]
    base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    namespace = item["metadata"].get("namespace")
    plural = f"{item['kind'].lower()}s"
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"
