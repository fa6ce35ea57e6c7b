"""An engine's /metrics over HTTP.

aiohttp rather than httpx: one page costs a fiftieth of the time. Connections are kept between scrapes, since a scrape
comes every few seconds; pages are asked for uncompressed, since the engine would pay for it in the process that serves
requests, and an inflated body has no bound.
"""

from types import TracebackType
from typing import Protocol, Self

import aiohttp

from llmservice_operator.clients.engine import EngineUnreachableError, bounded_body
from llmservice_operator.engines.metrics_page import MAX_PAGE_BYTES, MetricsPage, PageError, parse_page
from llmservice_operator.engines.versions import Version

KEEP_ALIVE_SECONDS = 15.0
"""Three scrapes; longer than that and the pod is likely gone."""


class EngineMetricsClient(Protocol):
    """Reads the metrics of engines."""

    async def page(self, host: str, port: int, version: Version | None = None) -> MetricsPage:
        """The metrics of the engine at this address.

        Raises EngineUnreachableError when there is no page within the deadline, or none of an engine.
        """


class HttpEngineMetricsClient:
    """EngineMetricsClient over aiohttp, each scrape within `timeout_seconds` in all."""

    def __init__(self, *, timeout_seconds: float = 2.0, max_connections: int = 256) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=KEEP_ALIVE_SECONDS)
        self._session = aiohttp.ClientSession(
            timeout=self._timeout,
            connector=connector,
            headers={"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def page(self, host: str, port: int, version: Version | None = None) -> MetricsPage:
        """See EngineMetricsClient.page."""
        if self._session is None:
            raise EngineUnreachableError("the metrics client is not open")
        body = await bounded_body(self._session, host, port, "/metrics", most_bytes=MAX_PAGE_BYTES)
        try:
            return parse_page(body, version)
        except PageError as error:
            raise EngineUnreachableError(f"{host}:{port}/metrics: {error}") from error
