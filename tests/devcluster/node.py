"""Command lines and files of one node: container runtime, kubelet, kube-proxy, device plugin. Pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from devcluster.binaries import POLICY_ENFORCER
from devcluster.control_plane import Component
from devcluster.layout import GPU_TYPES, Layout, NodeLayout

ENFORCER_HEALTH_PORT = 20244
PAUSE_IMAGE = "llmservice.dev/devcluster/pause:1"
CNI_PLUGINS = Path("/usr/lib/cni")


# Folders whose place is compiled into kubelet, containerd or the network plugins. Each node sees its own.
PRIVATE_FOLDERS = ("/var/lib/kubelet", "/var/log/containers", "/var/lib/cni", "/run/containerd")

# $1 is the node's folder; what follows is the program that then holds the namespace. Mounts made on the machine
# show inside, those made inside stay there; between the node's own processes they are shared, as on a real node.
_HOLD = """
set -e
private="$1/private"; shift
for folder in {folders}; do
  mkdir -p "$folder" "$private$folder"
  mount --bind "$private$folder" "$folder"
done
mount --make-rshared /
exec "$@"
""".format(folders=" ".join(PRIVATE_FOLDERS))


def holder(layout: Layout, node: NodeLayout) -> Component:
    """Holds the node's mount namespace, which the node's other components enter."""
    del layout
    unshare = (
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "--",
        "sh",
        "-c",
        _HOLD,
        "sh",
        str(node.folder),
    )
    return Component(
        name=node.holder,
        program="pause",
        arguments=(),
        wrapper=unshare,
        network_namespace=node.network_namespace,
    )


def containerd_config(node: NodeLayout) -> str:
    """The runtime's configuration, version 3: everything of its own below the node's folder."""
    return f"""\
version = 3
root = "{node.folder}/containerd-root"
state = "{node.containerd_state}"
temp = "{node.folder}/tmp"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile"]

[grpc]
  address = "{node.containerd_socket}"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{CNI_PLUGINS}"]
  conf_dir = "{node.folder}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  Root = "{node.runc_root}"
  SystemdCgroup = false
"""


def cni_network_name(layout: Layout, node: NodeLayout) -> str:
    """Names the network in the plugins' messages."""
    return f"devcluster-{layout.prefix}-{node.name}"


def cni_config(layout: Layout, node: NodeLayout) -> str:
    """Each pod on a point-to-point link.

    With a bridge, a reply between two pods of one node would take the short way past the address translation of
    Services unless the kernel passes bridged frames to netfilter; a point-to-point link always goes through it.
    """
    document = {
        "cniVersion": "1.0.0",
        "name": cni_network_name(layout, node),
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{node.folder}/cni-state",
                    "ranges": [[{"subnet": node.pod_cidr, "gateway": node.pod_gateway}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def containerd(layout: Layout, node: NodeLayout) -> Component:
    config = node.folder / "containerd.toml"
    return Component(
        name=f"containerd-{node.index}",
        program="containerd",
        arguments=("--config", str(config), "--log-level", "warn"),
        files={
            config: containerd_config(node),
            node.folder / "cni" / "10-devcluster.conflist": cni_config(layout, node),
        },
        folders=(node.folder / "tmp",),
        network_namespace=node.network_namespace,
        holder=node.holder,
    )


def kubelet_config(layout: Layout, node: NodeLayout) -> dict[str, Any]:
    """The kubelet's configuration: no cgroup tree of its own, never evicts, never collects loaded images."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.folder}/pki/kubelet-client.pem"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [layout.dns_address],
        "clusterDomain": "cluster.local",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "failSwapOn": False,
        "podLogsDir": f"{node.folder}/pod-logs",
        "volumePluginDir": f"{node.folder}/volume-plugins",
        "maxPods": 240,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 12,
        "syncFrequency": "10s",
        # A loaded image cannot be pulled again: it must not be collected, and no pod evicted for want of disk.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "imageMinimumGCAge": "24h",
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "localStorageCapacityIsolation": True,
        "enableServer": True,
        "address": node.address,
        "healthzBindAddress": node.address,
        "healthzPort": 10248,
        "logging": {"verbosity": 1},
    }


def kubelet(layout: Layout, node: NodeLayout) -> Component:
    config = node.folder / "kubelet.json"
    return Component(
        name=f"kubelet-{node.index}",
        program="kubelet",
        arguments=(
            f"--config={config}",
            f"--kubeconfig={node.folder}/kubelet.kubeconfig",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--root-dir={node.kubelet_folder}",
            f"--cert-dir={node.kubelet_folder}/pki",
            f"--node-labels={','.join(f'{key}={value}' for key, value in node_labels(layout).items())}",
        ),
        files={config: json.dumps(kubelet_config(layout, node), indent=2) + "\n"},
        folders=(node.kubelet_folder, node.folder / "volume-plugins"),
        network_namespace=node.network_namespace,
        holder=node.holder,
        readiness=f"http://{node.address}:10248/healthz",
    )


def kube_proxy(layout: Layout, node: NodeLayout) -> Component:
    config = node.folder / "kube-proxy.json"
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{layout.folder}/kube-proxy.kubeconfig"},
        "hostnameOverride": node.name,
        # Whatever does not come from this node's own pods is masqueraded on its way through a Service, or the
        # answer of a pod elsewhere would go back to the caller without being translated back.
        "clusterCIDR": node.pod_cidr,
        "bindAddress": node.address,
        "healthzBindAddress": f"{node.address}:10256",
        "metricsBindAddress": f"{node.address}:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
        # Endpoints of a Service change at once: what is measured is the operator, not this delay.
        "nftables": {"minSyncPeriod": "0.1s", "syncPeriod": "30s"},
    }
    return Component(
        name=f"kube-proxy-{node.index}",
        program="kube-proxy",
        arguments=(f"--config={config}",),
        files={config: json.dumps(document, indent=2) + "\n"},
        network_namespace=node.network_namespace,
        holder=node.holder,
        readiness=f"http://{node.address}:10256/livez",
    )


def policy_enforcer(layout: Layout, node: NodeLayout) -> Component:
    """Holds pods' traffic to NetworkPolicies: the firewall of kube-router, without its routes and its Services.

    Its rules and sets are the namespace's own, and go with it.
    """
    return Component(
        name=f"{POLICY_ENFORCER}-{node.index}",
        program=POLICY_ENFORCER,
        arguments=(
            f"--kubeconfig={layout.kubeconfig}",
            f"--hostname-override={node.name}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            # Its default takes pods' addresses for Services', to which it lets anything.
            f"--service-cluster-ip-range={layout.service_cidr}",
            f"--health-port={ENFORCER_HEALTH_PORT}",
        ),
        network_namespace=node.network_namespace,
        holder=node.holder,
        readiness=f"http://{node.address}:{ENFORCER_HEALTH_PORT}/healthz",
    )


def device_plugin(layout: Layout, node: NodeLayout) -> Component:
    """Advertises the accelerators to the kubelet, which keeps them over its own restarts."""
    return Component(
        name=f"gpu-plugin-{node.index}",
        program="gpu-plugin",
        arguments=(
            "-folder=/var/lib/kubelet/device-plugins",
            f"-count={layout.spec.gpus}",
            f"-unhealthy={node.unhealthy_gpus}",
        ),
        network_namespace=node.network_namespace,
        holder=node.holder,
    )


def node_labels(layout: Layout) -> dict[str, str]:
    """Labels as GPU feature discovery sets them; only a zone on a node without accelerators."""
    labels = {"topology.kubernetes.io/zone": "local-a", "node.kubernetes.io/instance-type": "devcluster"}
    if layout.spec.gpus:
        gpu = GPU_TYPES[layout.spec.gpu_type]
        labels |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": gpu.product,
            "nvidia.com/gpu.memory": str(gpu.memory_mib),
            "nvidia.com/gpu.count": str(layout.spec.gpus),
            "nvidia.com/gpu.family": gpu.family,
        }
    return labels
