"""The supervisor's HTTP pages. They only tell: nothing can be changed over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable

from llmservice_runtime.clock import Clock
from llmservice_runtime.config import Config
from llmservice_runtime.exposition import CONTENT_TYPE, render
from llmservice_runtime.report import build_report
from llmservice_runtime.state import READY, EngineState, Snapshot

# A probe with timeoutSeconds 5 sees the change within milliseconds, instead of a second later.
LONG_POLL_SECONDS = 4.0
_REQUEST_TIMEOUT_SECONDS = 10.0
_MAX_WAITING = 32
_TEXT = "text/plain; charset=utf-8"


class Pages:
    """What each path answers: (status, content type, body)."""

    def __init__(self, config: Config, state: EngineState, clock: Clock) -> None:
        self._config, self._state, self._clock = config, state, clock
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING)
        self._routes: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/startup": self._startup,
            "/ready": self._ready,
            "/live": self._live,
            "/report": self._report,
            "/metrics": self._metrics,
        }

    def answer(self, path: str) -> tuple[int, str, str]:
        route = self._routes.get(path.partition("?")[0])
        if route is None:
            return HTTPStatus.NOT_FOUND, _TEXT, f"no such page; there are {' '.join(self._routes)}\n"
        return route()

    def _startup(self) -> tuple[int, str, str]:
        may_wait = self._waiting.acquire(blocking=False)  # beyond that many waiters the answer comes at once
        try:
            started = self._state.wait_started(LONG_POLL_SECONDS if may_wait else 0.0)
        finally:
            if may_wait:
                self._waiting.release()
        status = HTTPStatus.OK if started else HTTPStatus.SERVICE_UNAVAILABLE
        return status, _TEXT, _describe(self._state.snapshot()) + "\n"

    def _ready(self) -> tuple[int, str, str]:
        now = self._state.snapshot()
        ok = now.phase == READY and now.healthy
        return (HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE), _TEXT, _describe(now) + "\n"

    def _live(self) -> tuple[int, str, str]:
        now = self._state.snapshot()
        status = HTTPStatus.OK if now.hung is None else HTTPStatus.SERVICE_UNAVAILABLE
        return status, _TEXT, (now.hung or "alive") + "\n"

    def _report(self) -> tuple[int, str, str]:
        body = json.dumps(build_report(self._config, self._state.snapshot()), ensure_ascii=False)
        return HTTPStatus.OK, "application/json", body + "\n"

    def _metrics(self) -> tuple[int, str, str]:
        return HTTPStatus.OK, CONTENT_TYPE, render(self._config, self._state.snapshot(), self._clock.wall())


def _describe(now: Snapshot) -> str:
    """One line that a person reads in a probe's event."""
    if now.failure is not None:
        return f"failed: {now.failure.failure_class}: {now.failure.message}"
    if now.phase == READY:
        return "ready" if now.healthy else "the engine's /health does not answer 200"
    return f"starting: step {now.step}" if now.ready_at is None else now.phase.lower()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        # One socket for both families where there is IPv6, so that the kubelet of either kind of cluster
        # gets in.
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__(("::" if self.address_family == socket.AF_INET6 else "", port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A probe that hangs up early is no event."""


def bind(port: int, pages: Pages) -> _Server:
    """Take the port; connections wait until `serve`.

    Raises:
        OSError: when the port cannot be bound.

    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_TIMEOUT_SECONDS

        def do_GET(self) -> None:
            status, content_type, body = pages.answer(self.path)
            encoded = body.encode("utf-8", errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Probes come every second: no line for each."""

    return _Server(port, Handler)


def serve(server: _Server) -> None:
    """Answer in the background, until this process ends."""
    threading.Thread(target=server.serve_forever, daemon=True, name="pages").start()
