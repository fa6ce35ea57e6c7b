"""Where everything of one cluster is: folders, addresses, names of devices. Pure, but for reading the environment.

A cluster owns a *slot* (0 … 49) that no other cluster on the machine has; every address and device name follows
from it, so two clusters never meet:

    10.(100+slot).0.0/24       the bridge; the control plane has .1, node *i* has .(10+i)
    10.(100+slot).i.0/24       pods of node i
    10.(150+slot).0.0/20       Services; the cluster's DNS has .0.10
    127.77.(slot).1            etcd (and the API server of the light form)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from devcluster.errors import DevclusterError

SPEC_FILE = "cluster.json"
SLOTS = 50
MAX_NODES = 20
NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """What GPU feature discovery says of an accelerator: values of the ``nvidia.com/gpu.*`` labels."""

    product: str
    memory_mib: int
    family: str


# Product names and memory as NVIDIA's GPU feature discovery reports them (memory of `nvidia-smi`, in MiB).
GPU_TYPES: Mapping[str, GpuType] = {
    "nvidia-h100-80gb": GpuType(product="NVIDIA-H100-80GB-HBM3", memory_mib=81559, family="hopper"),
    "nvidia-h200": GpuType(product="NVIDIA-H200", memory_mib=143771, family="hopper"),
    "nvidia-b200": GpuType(product="NVIDIA-B200", memory_mib=183359, family="blackwell"),
    "nvidia-a100-40gb": GpuType(product="NVIDIA-A100-SXM4-40GB", memory_mib=40960, family="ampere"),
    "nvidia-a100-80gb": GpuType(product="NVIDIA-A100-SXM4-80GB", memory_mib=81920, family="ampere"),
    "nvidia-l4": GpuType(product="NVIDIA-L4", memory_mib=23034, family="ada-lovelace"),
    "nvidia-l40s": GpuType(product="NVIDIA-L40S", memory_mib=46068, family="ada-lovelace"),
    "nvidia-a10g": GpuType(product="NVIDIA-A10G", memory_mib=23028, family="ampere"),
}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a cluster should be.

    ``gpus`` is the number of accelerators that each node advertises; ``kubernetes`` the API server's version where
    it is not the newest (light form); ``network_policies`` whether nodes hold pods' traffic to NetworkPolicies;
    ``owner`` is set by test fixtures to the pid and start time of the test
    process, so that a later one can remove what a killed one left.
    """

    name: str
    slot: int
    nodes: int = 1
    gpus: int = 0
    gpu_type: str = "nvidia-h200"
    light: bool = False
    kubernetes: str = ""
    network_policies: bool = False
    owner: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Spec:
        return cls(**value)


def validate(*, name: str, nodes: int, gpus: int, gpu_type: str) -> None:
    """Raises DevclusterError that names the first bad value and what is allowed."""
    if not NAME.fullmatch(name):
        raise DevclusterError(f"name {name!r}: use 1 to 40 of a-z, 0-9 and '-', starting with a letter")
    if not 1 <= nodes <= MAX_NODES:
        raise DevclusterError(f"nodes {nodes}: must be 1 to {MAX_NODES}")
    if not 0 <= gpus <= 64:
        raise DevclusterError(f"gpus {gpus}: must be 0 to 64 for each node")
    if gpu_type not in GPU_TYPES:
        raise DevclusterError(f"gpu type {gpu_type!r} is not known; known: {', '.join(sorted(GPU_TYPES))}")


def choose_slot(
    taken: Collection[int], *, routed: Collection[IPv4Network], loopback_is_free: Callable[[str], bool]
) -> int:
    """The lowest slot that no cluster has, whose networks overlap none of the machine's own (``routed``), and whose
    loopback address nobody listens on (a cluster of another state folder may).
    """
    for slot in range(SLOTS):
        own = [IPv4Network(f"10.{100 + slot}.0.0/16"), IPv4Network(f"10.{150 + slot}.0.0/20")]
        clash = any(network.prefixlen > 0 and network.overlaps(mine) for network in routed for mine in own)
        if slot not in taken and not clash and loopback_is_free(f"127.77.{slot}.1"):
            return slot
    raise DevclusterError(
        f"all {SLOTS} address ranges are taken; remove a cluster with `devcluster down --name NAME`"
    )


def state_root(environ: Mapping[str, str], *, is_root: bool) -> Path:
    """The folder of all clusters' state; DEVCLUSTER_STATE overrides it."""
    if chosen := environ.get("DEVCLUSTER_STATE"):
        return Path(chosen).absolute()
    if is_root:
        return Path("/var/lib/llmservice/devcluster")
    home = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local" / "state")
    return Path(home) / "llmservice" / "devcluster"


@dataclass(frozen=True, kw_only=True)
class NodeLayout:
    """One node: a network namespace with its own kubelet, container runtime and kube-proxy."""

    index: int
    name: str
    address: str
    pod_cidr: str
    pod_gateway: str
    network_namespace: str
    host_interface: str
    folder: Path

    @property
    def holder(self) -> str:
        """The component that holds this node's mount namespace."""
        return f"holder-{self.index}"

    @property
    def containerd_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def kubelet_folder(self) -> Path:
        return self.folder / "kubelet"

    @property
    def containerd_state(self) -> Path:
        return self.folder / "containerd-state"

    @property
    def runc_root(self) -> Path:
        return self.folder / "runc"

    @property
    def unhealthy_gpus(self) -> Path:
        """Indexes of accelerators that are reported unhealthy, one a line."""
        return self.folder / "unhealthy-gpus"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All names and addresses of the cluster ``spec`` under ``root``."""

    root: Path
    spec: Spec

    @property
    def folder(self) -> Path:
        return self.root / self.spec.name

    @property
    def marker(self) -> str:
        """Set as DEVCLUSTER in the environment of every process of this cluster: how strays are found."""
        return str(self.folder)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    @property
    def prefix(self) -> str:
        return f"dvc{self.spec.slot}"

    @property
    def bridge(self) -> str:
        return f"{self.prefix}br"

    @property
    def loopback(self) -> str:
        return f"127.77.{self.spec.slot}.1"

    @property
    def control_plane_address(self) -> str:
        return self.loopback if self.spec.light else f"10.{100 + self.spec.slot}.0.1"

    @property
    def server(self) -> str:
        return f"https://{self.control_plane_address}:6443"

    @property
    def network(self) -> str:
        return f"10.{100 + self.spec.slot}.0.0/16"

    @property
    def service_cidr(self) -> str:
        return f"10.{150 + self.spec.slot}.0.0/20"

    @property
    def dns_address(self) -> str:
        return f"10.{150 + self.spec.slot}.0.10"

    @property
    def nodes(self) -> tuple[NodeLayout, ...]:
        if self.spec.light:
            return ()
        return tuple(self.node(index) for index in range(1, self.spec.nodes + 1))

    def node(self, index: int) -> NodeLayout:
        return NodeLayout(
            index=index,
            name=f"node-{index}",
            address=f"10.{100 + self.spec.slot}.0.{10 + index}",
            pod_cidr=f"10.{100 + self.spec.slot}.{index}.0/24",
            pod_gateway=f"10.{100 + self.spec.slot}.{index}.1",
            network_namespace=f"{self.prefix}n{index}",
            host_interface=f"{self.prefix}v{index}",
            folder=self.folder / f"node-{index}",
        )


def current_state_root() -> Path:
    """The state folder for this process's user and environment."""
    return state_root(os.environ, is_root=os.geteuid() == 0)
