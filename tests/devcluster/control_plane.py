"""Command lines and files of etcd, the API server, the controllers, the scheduler and the DNS server. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster.binaries import api_server_program
from devcluster.layout import Layout

ETCD_PORT = 2379
API_PORT = 6443
COREDNS_READY_PORT = 8181

# Users of the static token file: name → groups. The token of a user is random and made once per cluster.
USERS: Mapping[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
    "system:kube-proxy": (),
    "system:coredns": (),
}

_NEW_CERTIFICATE = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"),
    *("-days", "3650", "-keyout", "/dev/stdout"),
)


@dataclass(frozen=True, kw_only=True)
class Component:
    """One process: its command, the files written before it starts, and where it runs.

    ``readiness`` is a URL that answers 200 once it works; ``program`` is the name in the binaries' cache;
    ``wrapper`` is a command that ends by becoming the program; ``holder`` names the component whose mount namespace
    this one enters.
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    files: Mapping[Path, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    wrapper: tuple[str, ...] = ()
    network_namespace: str | None = None
    holder: str | None = None
    readiness: str | None = None


def key_commands(layout: Layout) -> dict[str, tuple[str, ...]]:
    """Files under pki/, each the output of a command: a key, and two keys with their own certificates.

    The second is the API server's for its clients (making it beforehand saves the half second that the server
    takes for one of its own); the third is the one it shows to kubelets for logs and exec, and all they trust.
    """
    first_service = layout.service_cidr.replace(".0/20", ".1")
    addresses = (layout.control_plane_address, layout.loopback, first_service, "127.0.0.1")
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    alternatives = [*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)]
    return {
        "sa.key": ("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"),
        "apiserver.pem": (
            *_NEW_CERTIFICATE,
            *("-subj", "/CN=kube-apiserver"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-addext", f"subjectAltName={','.join(alternatives)}"),
        ),
        "kubelet-client.pem": (
            *_NEW_CERTIFICATE,
            *("-subj", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
            *("-addext", "extendedKeyUsage=clientAuth"),
        ),
    }


def certificate_of(pem: str) -> str:
    """The certificate in a PEM text that has a key before it."""
    return pem[pem.index("-----BEGIN CERTIFICATE-----") :]


def node_user(node: str) -> str:
    return f"system:node:{node}"


def kubeconfig(*, server: str, token: str, ca_data: str, namespace: str = "default") -> str:
    """A kubeconfig as JSON, which is YAML too; ``ca_data`` is the server's certificate, PEM in base64."""
    cluster = {"server": server, "certificate-authority-data": ca_data}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "devcluster", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [
            {
                "name": "devcluster",
                "context": {"cluster": "devcluster", "user": "user", "namespace": namespace},
            }
        ],
        "current-context": "devcluster",
    }
    return json.dumps(document, indent=2) + "\n"


def token_file(tokens: Mapping[str, str]) -> str:
    """``token,user,uid,"group,…"`` lines for --token-auth-file."""
    lines = []
    for user, token in tokens.items():
        groups = USERS.get(user, ("system:nodes",))
        lines.append(f'{token},{user},{user},"{",".join(groups)}"')
    return "\n".join(lines) + "\n"


def audit_policy() -> str:
    """Counts every request of users and controllers; leaves out what the cluster says to itself all the time."""
    quiet = [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*", "/metrics", "/version"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "userGroups": ["system:nodes"], "resources": [{"group": "coordination.k8s.io"}]},
    ]
    document = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [*quiet, {"level": "Metadata"}],
    }
    return json.dumps(document, indent=2) + "\n"


def etcd(layout: Layout) -> Component:
    client = f"http://{layout.loopback}:{ETCD_PORT}"
    peer = f"http://{layout.loopback}:{ETCD_PORT + 1}"
    return Component(
        name="etcd",
        program="etcd",
        arguments=(
            f"--data-dir={layout.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # The data live as long as the cluster; a power cut loses them anyway, so waiting for the disk is waste.
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
        ),
        readiness=f"{client}/readyz",
    )


def apiserver(layout: Layout) -> Component:
    folder = layout.folder
    address = layout.control_plane_address
    light = (
        # A loopback address may not be an endpoint of the `kubernetes` Service, and nothing here would use it.
        ("--endpoint-reconciler-type=none",) if layout.spec.light else ()
    )
    return Component(
        name="kube-apiserver",
        program=api_server_program(layout.spec.kubernetes),
        arguments=(
            f"--etcd-servers=http://{layout.loopback}:{ETCD_PORT}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={folder}/pki/apiserver.pem",
            f"--tls-private-key-file={folder}/pki/apiserver.pem",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={layout.service_cidr}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder}/pki/sa.key",
            f"--service-account-key-file={folder}/pki/sa.key",
            # A node's name is not resolvable; logs and exec go to its address.
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={folder}/pki/kubelet-client.pem",
            f"--kubelet-client-key={folder}/pki/kubelet-client.pem",
            f"--audit-policy-file={folder}/audit-policy.json",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-maxsize=2000",
            # Many test clients at once are the purpose, not an overload; faults are injected by the proxy instead.
            "--max-requests-inflight=4000",
            "--max-mutating-requests-inflight=2000",
            "--watch-cache=true",
            "--profiling=false",
            *light,
        ),
        files={folder / "audit-policy.json": audit_policy()},
        folders=(folder / "pki",),
        readiness=f"{layout.server}/readyz",
    )


def controller_manager(layout: Layout) -> Component:
    folder = layout.folder
    kubeconfig_path = folder / "kube-controller-manager.kubeconfig"
    return Component(
        name="kube-controller-manager",
        program="kube-controller-manager",
        arguments=(
            f"--kubeconfig={kubeconfig_path}",
            f"--authentication-kubeconfig={kubeconfig_path}",
            f"--authorization-kubeconfig={kubeconfig_path}",
            f"--bind-address={layout.control_plane_address}",
            f"--cert-dir={folder}/kube-controller-manager",
            f"--root-ca-file={folder}/pki/apiserver.crt",
            f"--service-account-private-key-file={folder}/pki/sa.key",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            # A dead node is noticed in a third of the usual time; its lease is renewed three times as often.
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=15s",
            "--profiling=false",
        ),
        readiness=f"https://{layout.control_plane_address}:10257/healthz",
    )


def scheduler(layout: Layout) -> Component:
    kubeconfig_path = layout.folder / "kube-scheduler.kubeconfig"
    return Component(
        name="kube-scheduler",
        program="kube-scheduler",
        arguments=(
            f"--kubeconfig={kubeconfig_path}",
            f"--authentication-kubeconfig={kubeconfig_path}",
            f"--authorization-kubeconfig={kubeconfig_path}",
            f"--bind-address={layout.control_plane_address}",
            f"--cert-dir={layout.folder}/kube-scheduler",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
        ),
        readiness=f"https://{layout.control_plane_address}:10259/healthz",
    )


def coredns(layout: Layout) -> Component:
    corefile = layout.folder / "Corefile"
    text = f"""\
.:53 {{
    bind {layout.control_plane_address}
    ready {layout.control_plane_address}:{COREDNS_READY_PORT}
    errors
    cache 5
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.folder}/coredns.kubeconfig
        ttl 5
    }}
    forward . /etc/resolv.conf
}}
"""
    return Component(
        name="coredns",
        program="coredns",
        arguments=("-conf", str(corefile)),
        files={corefile: text},
        readiness=f"http://{layout.control_plane_address}:{COREDNS_READY_PORT}/ready",
    )


def dns_objects(layout: Layout) -> list[dict[str, Any]]:
    """The Service ``kube-dns`` with the bridge's address behind it, and what CoreDNS may read."""
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": layout.dns_address, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-devcluster",
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": "devcluster",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [layout.control_plane_address], "conditions": {"ready": True}}],
        "ports": ports,
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
    }
    return [role, binding, service, endpoints]


BuildComponent = Callable[[Layout], Component]
CONTROL_PLANE: tuple[BuildComponent, ...] = (etcd, apiserver)
CONTROLLERS: tuple[BuildComponent, ...] = (controller_manager, scheduler, coredns)
