"""Engines of played pods: each address of the loopback net is one, with a metrics page that moves in real time."""

import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from fakes.engine_page import EngineTotals, page

PORT = 8000


@dataclass
class PlayedEngine:
    """One engine. Its fields may be changed at any time; what it has counted goes on."""

    rate: float = 0.0
    """Requests a second that end."""
    totals: EngineTotals = field(default_factory=EngineTotals)
    is_down: bool = False
    _at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, *, rate: float | None = None, **totals: Any) -> None:
        """Go on otherwise."""
        self._advance()
        if rate is not None:
            self.rate = rate
        for name, value in totals.items():
            setattr(self.totals, name, value)

    def page(self) -> bytes:
        """The page as it is now."""
        self._advance()
        return page(self.totals).encode()

    def _advance(self) -> None:
        with self._lock:
            now = time.monotonic()
            self.totals.serve(self.rate * (now - self._at), now - self._at)
            self._at = now


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_about: Any) -> None:
        """A client that was killed is no error."""


class Engines:
    """Serves the engines; `add` gives an address to a new one."""

    def __init__(self) -> None:
        self._engines: dict[str, PlayedEngine] = {}
        self._servers: list[ThreadingHTTPServer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(self, *, is_down: bool = False, **fields: Any) -> str:
        """Another engine; its address."""
        number = len(self._engines) + 1
        host, engine = f"127.9.{number // 250}.{number % 250 + 1}", PlayedEngine(is_down=is_down)
        engine.set(**fields)
        self._engines[host] = engine

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = engine.page()
                self.send_response(503 if engine.is_down or self.path != "/metrics" else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                """Say nothing."""

        server = _Server((host, PORT), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        return host
