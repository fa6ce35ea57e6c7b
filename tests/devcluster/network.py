"""The cluster's network: one bridge, and one network namespace for each node, joined by a pair of interfaces.

A node's kubelet, container runtime and kube-proxy live in the node's namespace, so each node has its own ports,
its own address translation, and can be cut off by taking one link down. The host has routes to the pods and
Services of all nodes, so that tests reach them directly.
"""

from __future__ import annotations

import json
import socket
from ipaddress import IPv4Network
from pathlib import Path

from devcluster.control_plane import ETCD_PORT
from devcluster.layout import Layout, NodeLayout
from devcluster.shell import run, succeeds


def routed_networks() -> list[IPv4Network]:
    """Networks that the machine has routes to, all tables but local."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "main"]) or "[]")
    words = [str(route["dst"]) for route in routes if route.get("dst", "default") != "default"]
    return [IPv4Network(word, strict=False) for word in words]


def loopback_is_free(address: str, port: int = ETCD_PORT) -> bool:
    """Whether nobody listens on etcd's port of a loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def nftables_rules(layout: Layout) -> str:
    """Pods reach the outside with the machine's address. The table is the cluster's own."""
    table = f"devcluster_{layout.prefix}"
    return f"""\
table ip {table}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {layout.network} ip daddr != {layout.network} oifname != "{layout.bridge}" masquerade
  }}
}}
"""


def bridge_commands(layout: Layout) -> str:
    """Input of ``ip -batch`` that makes the bridge."""
    return f"""\
link add {layout.bridge} type bridge
address add {layout.control_plane_address}/24 dev {layout.bridge}
link set {layout.bridge} up
"""


def node_commands(layout: Layout, node: NodeLayout) -> str:
    """Input of ``ip -batch`` that makes one node's namespace and its link to the bridge."""
    return f"""\
netns add {node.network_namespace}
link add {node.host_interface} type veth peer name eth0 netns {node.network_namespace}
link set {node.host_interface} master {layout.bridge} up
route replace {node.pod_cidr} via {node.address} dev {layout.bridge} onlink
"""


def inner_commands(layout: Layout, node: NodeLayout) -> str:
    """Input of ``ip -batch`` inside the node's namespace."""
    others = (other for other in layout.nodes if other.index != node.index)
    routes = "".join(f"route add {other.pod_cidr} via {other.address} dev eth0 onlink\n" for other in others)
    return f"""\
link set lo up
address add {node.address}/24 dev eth0
link set eth0 up
route add default via {layout.control_plane_address}
{routes}"""


def bridge_exists(layout: Layout) -> bool:
    return Path(f"/sys/class/net/{layout.bridge}").exists()


def node_exists(node: NodeLayout) -> bool:
    return Path(f"/run/netns/{node.network_namespace}").exists() and link_exists(node)


def link_exists(node: NodeLayout) -> bool:
    return Path(f"/sys/class/net/{node.host_interface}").exists()


def create_bridge(layout: Layout) -> None:
    """Makes the bridge, the translation for pods' traffic to the outside, and turns forwarding on."""
    run(["ip", "-batch", "-"], stdin=bridge_commands(layout))
    run(["nft", "-f", "-"], stdin=nftables_rules(layout))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def create_node(layout: Layout, node: NodeLayout) -> None:
    """Makes one node's namespace, address and routes."""
    run(["ip", "-batch", "-"], stdin=node_commands(layout, node))
    run(["ip", "-n", node.network_namespace, "-batch", "-"], stdin=inner_commands(layout, node))
    enter = ["nsenter", f"--net=/run/netns/{node.network_namespace}", "--"]
    run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])


def route_services(layout: Layout) -> None:
    """The host reaches ClusterIPs through the first node's kube-proxy."""
    first = layout.nodes[0]
    run(["ip", "route", "replace", layout.service_cidr, "via", first.address, "dev", layout.bridge])


def route_new_pods(layout: Layout, node: NodeLayout) -> None:
    """Existing nodes learn the way to a node that was added later."""
    for other in layout.nodes:
        if other.index < node.index and node_exists(other):
            inside = ["ip", "-n", other.network_namespace, "route", "replace", node.pod_cidr]
            run([*inside, "via", node.address, "dev", "eth0", "onlink"])


def set_link(node: NodeLayout, *, up: bool) -> None:
    """Cuts a node off, or joins it again."""
    run(["ip", "link", "set", node.host_interface, "up" if up else "down"])


def remove_node(node: NodeLayout) -> None:
    """Removes what there is of a node's network; nothing is no error."""
    if link_exists(node):
        succeeds(["ip", "link", "delete", node.host_interface])
    if Path(f"/run/netns/{node.network_namespace}").exists():
        succeeds(["ip", "netns", "delete", node.network_namespace])


def remove(layout: Layout, nodes: tuple[NodeLayout, ...]) -> None:
    """Removes the whole network of a cluster; what is not there is no error."""
    for node in nodes:
        remove_node(node)
    if bridge_exists(layout):
        succeeds(["ip", "link", "delete", layout.bridge])
    succeeds(["nft", "delete", "table", "ip", f"devcluster_{layout.prefix}"])
