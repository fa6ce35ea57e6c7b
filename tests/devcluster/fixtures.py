"""pytest fixtures: ``cluster`` (nodes and all) and ``light_cluster`` (API server only), one each for a test session.

Which cluster it is, tests do not know:

- ``KUBECONFIG`` set: that cluster, left as it is in the end. If it is one of ours, images are loaded into it.
- ``CLUSTER=kind``: one made by kind, for machines with Docker.
- else: a fresh one of ours, gone in the end. What a killed session left is removed first. With
  ``DEVCLUSTER_KUBERNETES=1.31`` the light one's API server is of the oldest version that is supported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from devcluster.binaries import KUBERNETES_CHOICES, OLDEST_KUBERNETES
from devcluster.cluster import Cluster
from devcluster.kind import ExternalCluster, KindCluster, kubeconfig_from_environment
from devcluster.layout import current_state_root
from devcluster.light import LightCluster
from devcluster.state import Registry

AnyCluster: TypeAlias = Cluster | ExternalCluster
AnyLightCluster: TypeAlias = LightCluster | ExternalCluster

NODES = 2
GPUS = 8


@pytest.fixture(scope="session")
def cluster() -> Iterator[AnyCluster]:
    """A cluster of two nodes with eight accelerators each."""
    found = outer_cluster()
    if isinstance(found, LightCluster) and not isinstance(found, Cluster):
        raise pytest.UsageError(
            "KUBECONFIG names the light form, which has no nodes; these tests need a whole cluster"
        )
    if found is not None:
        found.up()
        yield found
        return
    own = Cluster(f"test-{os.getpid()}", nodes=NODES, gpus=GPUS, owned=True)
    own.remove_orphans()
    try:
        own.up()
        yield own
    finally:
        own.down()


@pytest.fixture(scope="session")
def light_cluster() -> Iterator[AnyLightCluster]:
    """An API server with etcd, for schema and reconcile tests."""
    found = outer_cluster()
    if found is not None:
        found.up()
        yield found
        return
    kubernetes = os.environ.get("DEVCLUSTER_KUBERNETES", "")
    if kubernetes not in KUBERNETES_CHOICES:
        raise pytest.UsageError(
            f"DEVCLUSTER_KUBERNETES is {kubernetes!r}: leave it out for the newest, or use {OLDEST_KUBERNETES}"
        )
    own = LightCluster(f"test-light-{os.getpid()}", owned=True, kubernetes=kubernetes)
    own.remove_orphans()
    try:
        own.up()
        yield own
    finally:
        own.down()


def outer_cluster() -> LightCluster | ExternalCluster | None:
    """The cluster that the environment names, or None."""
    if (kubeconfig := kubeconfig_from_environment()) is not None:
        return own_cluster(kubeconfig) or ExternalCluster(kubeconfig)
    if os.environ.get("CLUSTER") == "kind":
        return KindCluster("llmservice-test", nodes=NODES, gpus=GPUS)
    return None


def own_cluster(kubeconfig: Path) -> LightCluster | None:
    """The development cluster whose kubeconfig this is, or None."""
    root = current_state_root()
    path = kubeconfig.absolute()
    spec = Registry(root).find(path.parent.name) if path.parent.parent == root else None
    if spec is None:
        return None
    return LightCluster(spec.name) if spec.light else Cluster.existing(spec.name)
