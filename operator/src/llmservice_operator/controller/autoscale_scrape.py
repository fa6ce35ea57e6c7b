"""Asks a service's engines for their metrics: all at once, but not too many, and none for longer than its deadline."""

import asyncio
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.api.labels import HTTP_PORT
from llmservice_operator.clients.engine import EngineUnreachableError
from llmservice_operator.clients.engine_metrics import EngineMetricsClient
from llmservice_operator.clock import Clock
from llmservice_operator.controller.autoscale_subject import EnginePod
from llmservice_operator.engines.metrics_page import MetricsPage, PageError
from llmservice_operator.engines.versions import Version

AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """What came of one pod."""

    pod: EnginePod
    at: float
    """When its page was taken, in seconds since the Unix epoch."""
    page: MetricsPage | None = None
    failure: str = ""
    """`timeout`, `unreachable`, `answer` (another status, or too long), `page` (none of an engine) or `address`."""
    words: str = ""
    """The failure in words."""
    seconds: float = 0.0
    """How long it took."""


class Scraper:
    """Scrapes with so many requests under way at most."""

    def __init__(
        self, client: EngineMetricsClient, clock: Clock, *, at_once: int = AT_ONCE, port: int = HTTP_PORT
    ) -> None:
        self._port = port
        self._client = client
        self._clock = clock
        self._gate = asyncio.Semaphore(at_once)

    async def scrape(self, pods: Sequence[EnginePod], version: Version | None) -> tuple[Scraped, ...]:
        """What each of these pods says, in their order."""
        return tuple(await asyncio.gather(*(self._one(pod, version) for pod in pods)))

    async def _one(self, pod: EnginePod, version: Version | None) -> Scraped:
        if not is_pod_address(pod.host):
            words = f"{pod.host} is no address of a pod"
            return Scraped(pod=pod, at=self._clock.now(), failure="address", words=words)
        async with self._gate:
            began = self._clock.monotonic()
            try:
                page = await self._client.page(pod.host, self._port, version)
            except EngineUnreachableError as error:
                return Scraped(
                    pod=pod,
                    at=self._clock.now(),
                    failure=_kind(error),
                    words=str(error),
                    seconds=self._clock.monotonic() - began,
                )
            return Scraped(pod=pod, at=self._clock.now(), page=page, seconds=self._clock.monotonic() - began)


def is_pod_address(host: str) -> bool:
    """Whether this may be a pod's address: neither a name, nor link-local, where clouds keep credentials."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # The same address in IPv6's clothes.
    address = getattr(address, "ipv4_mapped", None) or address
    return not (address.is_link_local or address.is_multicast or address.is_unspecified)


def _kind(error: EngineUnreachableError) -> str:
    cause = error.__cause__
    if cause is None:
        return "answer"
    if isinstance(cause, PageError):
        return "page"
    return "timeout" if isinstance(cause, TimeoutError) else "unreachable"
