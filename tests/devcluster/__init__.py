"""A real Kubernetes on this machine without a container engine: a command, and fixtures for tests.

    python -m devcluster up --nodes 2 --gpus 8

Everything real but the accelerators: etcd, API server, controllers, scheduler, DNS, and nodes with kubelet,
containerd and kube-proxy, each node in a network namespace of its own.
"""

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.light import LightCluster

__all__ = ["Cluster", "DevclusterError", "LightCluster"]
