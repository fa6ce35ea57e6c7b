"""A whole cluster on this machine: controllers, scheduler, DNS, and nodes that run containers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from devcluster import cleanup, control_plane, images, network, node, state, supervision
from devcluster.binaries import whole_programs
from devcluster.control_plane import Component
from devcluster.errors import DevclusterError, StartError
from devcluster.layout import MAX_NODES, NodeLayout, choose_slot, current_state_root, validate
from devcluster.light import START_SECONDS, LightCluster, say_on_stderr


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
        network_policies: bool = False,
        say: Callable[[str], None] = say_on_stderr,
        environ: Mapping[str, str] | None = None,
        owned: bool = False,
    ) -> None:
        super().__init__(name, say=say, environ=environ, owned=owned)
        validate(name=name, nodes=nodes, gpus=gpus, gpu_type=gpu_type)
        self._wanted = replace(
            self._wanted, nodes=nodes, gpus=gpus, gpu_type=gpu_type, network_policies=network_policies
        )

    @classmethod
    def existing(cls, name: str, *, say: Callable[[str], None] = say_on_stderr) -> Cluster:
        """The cluster of that name as it was made; DevclusterError if there is none."""
        spec = state.Registry(current_state_root()).find(name)
        if spec is None or spec.light:
            raise DevclusterError(f"there is no cluster {name!r}; make it with `devcluster up --name {name}`")
        return cls(
            name,
            nodes=spec.nodes,
            gpus=spec.gpus,
            gpu_type=spec.gpu_type,
            network_policies=spec.network_policies,
            say=say,
        )

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

    def enforce_network_policies(self) -> None:
        """From now on pods' traffic is held to NetworkPolicies, as if the cluster had been made so."""
        self._wanted = replace(self._wanted, network_policies=True)
        self.up()

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
        if layout.spec.network_policies:
            builders.append(node.policy_enforcer)
        return [build(layout, layout.node(index)) for build in builders]

    def _choose_slot(self, taken: set[int]) -> int:
        return choose_slot(taken, routed=network.routed_networks(), loopback_is_free=network.loopback_is_free)

    def _programs(self) -> tuple[str, ...]:
        return whole_programs(network_policies=self._wanted.network_policies)

    def _users(self) -> list[str]:
        # The API server reads its tokens once: nodes that are added later must be among them from the start.
        every_node = (self.layout.node(index) for index in range(1, MAX_NODES + 1))
        return [*control_plane.USERS, *(control_plane.node_user(each.name) for each in every_node)]

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
            self.api.apply(object_path(item), item)
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
        cleanup.remove_cgroups(each)
        network.remove_node(each)
        network.create_node(layout, each)
        network.route_new_pods(layout, each)
        shutil.rmtree(each.containerd_state, ignore_errors=True)
        shutil.rmtree(each.runc_root, ignore_errors=True)
        supervisor.ensure(node.holder(layout, each))

    def _while_control_plane_starts(self) -> None:
        """Container runtimes need no API server; a kubelet needs it a second after its own start."""
        self._start_runtimes()
        apiserver = control_plane.apiserver(self.layout)
        listens = partial(supervision.answers, f"{self.layout.server}/livez")
        self.supervisor.wait_until(apiserver.name, listens, timeout_seconds=START_SECONDS)
        for each in self.layout.nodes:
            for component in self._node_components(each.index):
                if component.program in {"kubelet", "gpu-plugin"}:
                    self.supervisor.ensure(component)

    def _start_runtimes(self) -> None:
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


def object_path(item: Mapping[str, Any]) -> str:
    """The API path of an object."""
    group, metadata = item["apiVersion"], item["metadata"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    scope = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{base}{scope}/{item['kind'].lower()}s/{metadata['name']}"
