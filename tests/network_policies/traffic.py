"""Who reaches whom: pods that listen and try, and addresses to try.

A verdict is a TCP connection that is made or isn't, or a name that is found or isn't. An enforcer that refuses looks
like a port that nobody listens on, so a refusal says something only of what was reached without policies.
"""

import json
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from devcluster import Cluster
from devcluster.shell import run
from e2e.fleet import FAKE_ENGINE, Object

NAME_PORT = 0
"""As a port: the host's name is looked up, and nothing connected to."""
EXECS = 4
"""At once: each is a kubectl, and the machine has two cores."""

PROBE = f"""
import concurrent.futures, json, socket, sys
def reaches(address):
    host, port = address
    try:
        if port == {NAME_PORT}:
            return bool(socket.getaddrinfo(host, None))
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
addresses = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(json.dumps(dict(zip(addresses, pool.map(reaches, addresses.values())))))
"""
LISTEN = """
import http.server, sys, threading
class Nothing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
for port in sys.argv[1:]:
    server = http.server.ThreadingHTTPServer(("", int(port)), Nothing)
    threading.Thread(target=server.serve_forever).start()
"""
"""Answers all as a Prometheus that has no such series."""

Address = tuple[str, int]
Verdicts = dict[tuple[str, str], bool]
"""Whether the source (by name) reached the target (by name)."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A container that tries to reach others; with no pod, the machine, where the API server is."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


def listener(
    namespace: str, name: str, *, node: str, ports: Mapping[str, int], labels: Mapping[str, str]
) -> Object:
    """A pod at Pod Security `restricted` that listens on named ports."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 2000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": FAKE_ENGINE,
                    "command": ["python3", "-c", LISTEN, *map(str, ports.values())],
                    "ports": [{"name": key, "containerPort": port} for key, port in ports.items()],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


@contextmanager
def outside(cluster: Cluster, ports: Iterable[int]) -> Iterator[str]:
    """An address out of all private networks that the machine answers on, for pods to take for the world.

    It is one of TEST-NET-3 (RFC 5737) on the cluster's own bridge, and goes with it at the latest.
    """
    address = f"203.0.113.{1 + cluster.layout.spec.slot}"
    run(["ip", "address", "replace", f"{address}/32", "dev", cluster.layout.bridge])
    with ExitStack() as stack:
        stack.callback(run, ["ip", "address", "delete", f"{address}/32", "dev", cluster.layout.bridge])
        for port in ports:
            # Never accepted: the kernel makes the connection.
            stack.enter_context(socket.create_server((address, port), backlog=512))
        yield address


def verdicts(
    cluster: Cluster,
    sources: Mapping[str, Source],
    targets: Mapping[str, Address],
    pairs: Iterable[tuple[str, str]],
) -> Verdicts:
    """What is reached now, of these pairs of source and target."""
    wanted: dict[str, dict[str, Address]] = {}
    for source, target in pairs:
        wanted.setdefault(source, {})[target] = targets[target]
    with ThreadPoolExecutor(EXECS) as pool:
        answers = pool.map(lambda name: _probe(cluster, sources[name], wanted[name]), wanted)
        return {
            (source, target): reached
            for source, answer in zip(wanted, answers, strict=True)
            for target, reached in answer.items()
        }


def _probe(cluster: Cluster, source: Source, addresses: Mapping[str, Address]) -> dict[str, Any]:
    command = ("-c", PROBE, json.dumps(addresses))
    if source.pod:
        where = ("-n", source.namespace, source.pod, "-c", source.container)
        said = cluster.kubectl("exec", *where, "--", "python3", *command)
    else:
        said = run((sys.executable, *command))
    answer: dict[str, Any] = json.loads(said)
    return answer
