"""One port for the kubelet and Prometheus: /healthz, /readyz, /metrics.

/healthz says that the event loop turns: an API server that is away is no reason to be killed. /readyz says
whether the store is in step with the API server, or that this process stands by.
"""

from collections.abc import Callable

from aiohttp import web

Readiness = Callable[[], tuple[bool, str]]


class StatusServer:
    """Serves until `close`. `port` is the one it listens on, also where a free one was asked for."""

    def __init__(self, *, host: str, port: int, readiness: Readiness, metrics: Callable[[], bytes]) -> None:
        self._host = host
        self.port = port
        self._readiness = readiness
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. OSError where the port is taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._page),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, text = self._readiness()
        return web.Response(text=f"{text}\n", status=200 if ready else 503)

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), content_type="text/plain", charset="utf-8")
