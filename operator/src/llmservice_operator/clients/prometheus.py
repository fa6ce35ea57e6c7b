"""Instant queries to Prometheus, each within a deadline in all and with a bounded answer.

One GET over aiohttp, which is there already. prometheus-api-client does no more for that; it needs a thread,
its deadline is that of one read, so a server that drips holds it for ever, and with requests it costs 18 MiB.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from llmservice_operator.clients.bounded import bounded_get
from llmservice_operator.errors import LLMServiceError, UnavailableError

MAX_ANSWER_BYTES = 16 << 20
"""A thousand pods are some 300 KB."""


class PrometheusError(UnavailableError):
    """Prometheus did not answer, or not with what was asked for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value. NaN and infinities are as Prometheus has them."""

    labels: Mapping[str, str]
    value: float
    at: float
    """The time of the query, in seconds since the Unix epoch, by Prometheus' clock."""


class PrometheusClient(Protocol):
    """Asks Prometheus."""

    async def query(self, expression: str) -> tuple[Sample, ...]:
        """The vector that this PromQL expression gives now.

        Raises PrometheusError when there is none within the deadline.
        """


class HttpPrometheusClient:
    """PrometheusClient over aiohttp. `url`: up to and without `/api/v1`."""

    def __init__(
        self, url: str, *, timeout_seconds: float = 5.0, bearer_token: Callable[[], str] = lambda: ""
    ) -> None:
        """`bearer_token` is asked each time: a mounted one is changed within the hour. Empty: none is sent."""
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._bearer_token = bearer_token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def query(self, expression: str) -> tuple[Sample, ...]:
        """See PrometheusClient.query."""
        if self._session is None:
            raise PrometheusError("the Prometheus client is not open")
        url = f"{self._url}/api/v1/query"
        body = await bounded_get(
            self._session,
            url,
            name=url,
            most_bytes=MAX_ANSWER_BYTES,
            error=PrometheusError,
            params={"query": expression},
            headers=self._headers(),
        )
        return parse_vector(body)

    def _headers(self) -> dict[str, str]:
        try:
            token = self._bearer_token()
        except LLMServiceError as error:
            raise PrometheusError(str(error)) from error
        return {"Authorization": f"Bearer {token}"} if token else {}


def parse_vector(body: bytes) -> tuple[Sample, ...]:
    """The samples of an instant query's answer. Raises PrometheusError for anything else."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PrometheusError("the answer is not JSON: is this Prometheus?") from error
    found = data.get("data") if isinstance(data, dict) else None
    rows = found.get("result") if isinstance(found, dict) else None
    if not isinstance(found, dict) or found.get("resultType") != "vector" or not isinstance(rows, list):
        raise PrometheusError("the answer is no vector of an instant query")
    return tuple(_sample(row) for row in rows)


def _sample(row: Any) -> Sample:
    try:
        labels, (at, text) = row["metric"], row["value"]
        return Sample({str(name): str(value) for name, value in labels.items()}, float(text), float(at))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PrometheusError("a row of the answer has no metric and value") from error


def is_share(value: float) -> bool:
    """Whether this is a number from 0 to 1."""
    return math.isfinite(value) and 0.0 <= value <= 1.0
