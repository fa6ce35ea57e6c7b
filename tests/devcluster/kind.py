"""The same interface on a cluster that is not ours: one made by kind, or any that a kubeconfig names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devcluster import images
from devcluster.binaries import Binaries
from devcluster.errors import DevclusterError
from devcluster.layout import GPU_TYPES, current_state_root
from devcluster.shell import run, succeeds


class ExternalCluster:
    """A running cluster given by its kubeconfig. Images are taken to be where its nodes can pull them."""

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise DevclusterError(f"KUBECONFIG={kubeconfig}: no such file")
        self._kubeconfig = kubeconfig

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that pods can be placed on, sorted."""
        items = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return tuple(sorted(item["metadata"]["name"] for item in items if not _tainted(item)))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 120) -> str:
        """Runs kubectl with the cluster's kubeconfig and returns its stdout."""
        program = shutil.which("kubectl") or str(built_kubectl())
        return run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            stdin=stdin,
            timeout_seconds=timeout_seconds,
        )

    def load_image(self, archive: Path, *, node: str | None = None) -> str:
        """The archive's image name; a cluster that is not ours gets its images from its registry."""
        del node
        return images.inspect(archive).name

    def up(self) -> None:
        """Nothing to start; raises CommandError if the cluster does not answer."""
        self.kubectl("version")

    def down(self) -> None:
        """Not ours to end."""


class KindCluster(ExternalCluster):
    """A cluster made by kind (https://kind.sigs.k8s.io), for machines with Docker."""

    def __init__(self, name: str, *, nodes: int = 2, gpus: int = 8, gpu_type: str = "nvidia-h200") -> None:
        self._name, self._count, self._gpus, self._gpu_type = name, nodes, gpus, gpu_type
        self._folder = current_state_root() / f"kind-{name}"
        self._kubeconfig = self._folder / "kubeconfig"

    @property
    def models_folder(self) -> Path:
        """A host folder that the nodes have under the same path."""
        path = self._folder / "models"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def up(self) -> None:
        """Makes the cluster unless it is there, and advertises the accelerators on its workers."""
        for tool in ("docker", "kind"):
            if shutil.which(tool) is None:
                raise DevclusterError(
                    f"CLUSTER=kind needs `{tool}` on PATH; leave CLUSTER unset to use devcluster"
                )
        if not succeeds(["kind", "get", "kubeconfig", "--name", self._name]):
            config = json.dumps(kind_config(self._count, self.models_folder))
            command = [
                "kind",
                "create",
                "cluster",
                "--name",
                self._name,
                "--kubeconfig",
                str(self._kubeconfig),
            ]
            run([*command, "--wait", "120s", "--config", "-"], stdin=config)
        for node in self.nodes:
            self._advertise(node)

    def _advertise(self, node: str) -> None:
        if not self._gpus:
            return
        gpu = GPU_TYPES[self._gpu_type]
        labels = {"product": gpu.product, "memory": gpu.memory_mib, "count": self._gpus, "family": gpu.family}
        words = [f"nvidia.com/gpu.{key}={value}" for key, value in labels.items()]
        self.kubectl("label", "node", node, "--overwrite", "nvidia.com/gpu.present=true", *words)
        patch = {"status": {"capacity": {"nvidia.com/gpu": str(self._gpus)}}}
        self.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(patch))

    def load_image(self, archive: Path, *, node: str | None = None) -> str:
        """Loads the archive into one node, or all."""
        chosen = [] if node is None else ["--nodes", node]
        run(["kind", "load", "image-archive", str(archive), "--name", self._name, *chosen])
        return images.inspect(archive).name

    def down(self) -> None:
        """Deletes the cluster and its folder."""
        run(["kind", "delete", "cluster", "--name", self._name])
        shutil.rmtree(self._folder, ignore_errors=True)


def kind_config(workers: int, models_folder: Path) -> dict[str, Any]:
    """The configuration for kind: one control plane and ``workers`` nodes that share the models' folder."""
    mount = {"hostPath": str(models_folder), "containerPath": str(models_folder)}
    worker = {"role": "worker", "extraMounts": [mount]}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": "control-plane"}, *(worker for _ in range(workers))],
    }


def built_kubectl() -> Path:
    """Our own kubectl, built if it is missing."""
    binaries = Binaries()
    binaries.ensure(("kubectl",))
    return binaries.path("kubectl")


def _tainted(node: Mapping[str, Any]) -> bool:
    return any(taint["effect"] == "NoSchedule" for taint in node["spec"].get("taints", []))


def kubeconfig_from_environment() -> Path | None:
    """The first file of KUBECONFIG, if it is set."""
    value = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(value) if value else None
