"""Faults on purpose: single components stopped, killed, started again; nodes cut off."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from devcluster import network
from devcluster.control_plane import Component
from devcluster.errors import DevclusterError
from devcluster.layout import Layout, NodeLayout
from devcluster.processes import ProcessId
from devcluster.state import write_atomic
from devcluster.supervision import Supervisor


class Faults:
    """Components go by name: ``etcd``, ``kube-apiserver``, ``kubelet-1``, ``containerd-2`` …"""

    def __init__(self, layout: Layout, supervisor: Supervisor, components: Sequence[Component]) -> None:
        self._layout = layout
        self._supervisor = supervisor
        self._components = {component.name: component for component in components}

    def stop(self, name: str) -> None:
        """SIGSTOP: the component holds its connections and answers nothing."""
        self._process(name).signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT after `stop`."""
        self._process(name).signal(signal.SIGCONT)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """`stop`, and `resume` at the end in any case."""
        self.stop(name)
        try:
            yield
        finally:
            self.resume(name)

    def kill(self, name: str) -> None:
        """SIGKILL; returns once the process is gone. It stays away until `restart` or the cluster's `up`."""
        self._process(name)
        self._supervisor.kill(name)

    def restart(self, name: str, *, timeout_seconds: float = 60) -> None:
        """Kills the component if it runs, starts it, and returns once it is ready."""
        component = self._component(name)
        self._supervisor.kill(name)
        self._supervisor.ensure(component)
        if component.readiness is not None:
            self._supervisor.wait(component, timeout_seconds=timeout_seconds)

    def cut_node(self, node: str) -> None:
        """Takes the node's link down: nothing gets in or out, while its containers go on."""
        network.set_link(self._node(node), up=False)

    def join_node(self, node: str) -> None:
        """Brings the link of a cut node up again."""
        network.set_link(self._node(node), up=True)

    @contextmanager
    def cut(self, node: str) -> Iterator[None]:
        """`cut_node`, and `join_node` at the end in any case."""
        self.cut_node(node)
        try:
            yield
        finally:
            self.join_node(node)

    def set_unhealthy_gpus(self, node: str, indexes: Sequence[int]) -> None:
        """The node's device plugin reports these accelerators (from 0) unhealthy, and all others healthy."""
        text = "".join(f"{index}\n" for index in indexes)
        write_atomic(self._node(node).unhealthy_gpus, text)

    def _component(self, name: str) -> Component:
        if name not in self._components:
            raise DevclusterError(
                f"there is no component {name!r}; components: {', '.join(self._components)}"
            )
        return self._components[name]

    def _process(self, name: str) -> ProcessId:
        self._component(name)
        process = self._supervisor.process(name)
        if process is None:
            raise DevclusterError(f"{name} does not run; start it with restart({name!r})")
        return process

    def _node(self, name: str) -> NodeLayout:
        for node in self._layout.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self._layout.nodes)
        raise DevclusterError(f"there is no node {name!r}; nodes: {names}")
