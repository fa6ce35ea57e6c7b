"""A proxy in front of the API server that is slow, refuses, or breaks connections, by rules.

    with ApiProxy(cluster) as proxy:
        proxy.add(Rule(method="PATCH", path=r"/status$", status=409, times=3))
        proxy.add(Rule(delay_seconds=0.5))
        ... run the program under test with KUBECONFIG=proxy.kubeconfig ...
        proxy.drop_connections()

The first rule that matches a request decides on it. It listens on a loopback port of its own, with the API server's
own certificate: clients send credentials over TLS only. Keep-alive, watches and upgraded connections pass through.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from devcluster.light import LightCluster
from devcluster.proxy_http import Head, read_head, relay_body
from devcluster.state import write_atomic

_STATUS_REASONS = {
    409: ("Conflict", "Conflict"),
    429: ("Too Many Requests", "TooManyRequests"),
    500: ("Internal Server Error", "InternalError"),
    503: ("Service Unavailable", "ServiceUnavailable"),
    504: ("Gateway Timeout", "Timeout"),
}


@dataclass(kw_only=True)
class Rule:
    """What to do with requests that match; unset conditions match all.

    ``path`` is a regular expression searched in path and query; ``user_agent`` a prefix. ``times`` is how many
    requests it still applies to (None: all). A matching request waits ``delay_seconds``, and is then answered with
    ``status`` (``retry_after_seconds`` as its header), or gets its connection ``reset`` — before it reaches the API
    server, or, with ``after``, once the API server has done it and the answer is lost — or passes.
    """

    method: str | None = None
    path: str | None = None
    user_agent: str | None = None
    times: int | None = None
    delay_seconds: float = 0
    status: int | None = None
    retry_after_seconds: int | None = None
    reset: bool = False
    after: bool = False
    hits: int = field(default=0, init=False)

    def matches(self, head: Head) -> bool:
        """Whether the rule applies to a request."""
        return (
            (self.times is None or self.hits < self.times)
            and (self.method is None or self.method == head.method)
            and (self.path is None or re.search(self.path, head.target) is not None)
            and (self.user_agent is None or head.headers.get("user-agent", "").startswith(self.user_agent))
        )


class ApiProxy:
    """Runs in a thread of its own; a context manager."""

    def __init__(self, cluster: LightCluster, *, folder: Path | None = None) -> None:
        """``folder`` is where the kubeconfig goes (default: the cluster's own folder)."""
        self._cluster = cluster
        self._folder = folder or cluster.layout.folder
        self._url = urlsplit(cluster.layout.server)
        pki = cluster.layout.folder / "pki"
        self._client_tls = ssl.create_default_context(cafile=str(pki / "apiserver.crt"))
        self._server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server_tls.load_cert_chain(pki / "apiserver.pem")
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.requests: Counter[str] = Counter()
        """Requests seen, by method."""

    # ── use ─────────────────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        document = json.loads(self._cluster.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = self.server
        write_atomic(self.kubeconfig, json.dumps(document, indent=2) + "\n", mode=0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self.kubeconfig.unlink(missing_ok=True)

    @property
    def port(self) -> int:
        assert self._server is not None, "the proxy listens only inside its `with` block"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig that goes through the proxy."""
        return self._folder / f"proxy-{id(self):x}.kubeconfig"

    def add(self, rule: Rule) -> Rule:
        """Appends a rule; returned so that a test can read its hits."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Removes all rules: every request passes."""
        with self._lock:
            self._rules.clear()

    def drop_connections(self) -> None:
        """Resets every open connection, watches too; new ones are taken."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(10)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024, ssl=self._server_tls)

    async def _drop(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _decide(self, head: Head) -> Rule | None:
        with self._lock:
            self.requests[head.method] += 1
            rule = next((rule for rule in self._rules if rule.matches(head)), None)
            if rule is not None:
                rule.hits += 1
            return rule

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client connection, with one connection to the API server for as long as it lasts."""
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            up_reader, upstream = await asyncio.open_connection(
                self._url.hostname, self._url.port, ssl=self._client_tls
            )
            self._writers.add(upstream)
            while await self._exchange(reader, writer, up_reader, upstream):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError, ssl.SSLError):
            pass  # either side went away: so does the other
        finally:
            for each in (writer, upstream):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; False when the connection is at its end."""
        head = await read_head(reader)
        if head is None:
            return False
        rule = self._decide(head)
        if rule is not None:
            await asyncio.sleep(rule.delay_seconds)
            if rule.reset and not rule.after:
                return False
            if rule.status is not None:
                await relay_body(reader, None, head)
                writer.write(error_answer(rule.status, rule.retry_after_seconds))
                await writer.drain()
                return True
        upstream.write(head.raw)
        await relay_body(reader, upstream, head)
        answer = await read_head(up_reader)
        if answer is None or (rule is not None and rule.reset):
            return False
        writer.write(answer.raw)
        if answer.status == 101:
            await _tunnel(reader, writer, up_reader, upstream)
            return False
        if head.method != "HEAD":
            await relay_body(up_reader, writer, answer)
        await writer.drain()
        return answer.headers.get("connection", "").lower() != "close"


def error_answer(status: int, retry_after_seconds: int | None) -> bytes:
    """An HTTP answer with a Kubernetes Status object, as the API server itself would send."""
    phrase, reason = _STATUS_REASONS.get(status, ("Error", "Unknown"))
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{phrase} (by the fault proxy)",
        "reason": reason,
        "code": status,
    }
    body = json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} {phrase}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    if retry_after_seconds is not None:
        lines.append(f"Retry-After: {retry_after_seconds}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    up_reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
) -> None:
    """Passes bytes both ways until either side ends."""

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()

    tasks = [asyncio.create_task(copy(reader, upstream)), asyncio.create_task(copy(up_reader, writer))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
