"""Instant queries to Prometheus: answered, or told to be none, within a deadline and a size."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fakes.raw_server import Answer, saying, serving
from llmservice_operator.clients.prometheus import HttpPrometheusClient, PrometheusError, parse_vector
from llmservice_operator.errors import InvalidInputError


def vector(*rows: tuple[dict[str, str], str]) -> bytes:
    """Prometheus' answer with these rows."""
    result = [{"metric": labels, "value": [1790000000.0, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


async def dripping(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte now and then: no single read ever times out."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def prometheus(
    answer: Answer, heads: list[bytes] | None = None, **options: Any
) -> AsyncIterator[HttpPrometheusClient]:
    """A client of a server that answers so."""
    async with (
        serving(answer, heads) as port,
        HttpPrometheusClient(f"http://127.0.0.1:{port}", **options) as client,
    ):
        yield client


async def test_a_vector_is_read() -> None:
    async with prometheus(saying(vector(({"pod": "a"}, "0.25")))) as client:
        (sample,) = await client.query("up")

    assert (dict(sample.labels), sample.value, sample.at) == ({"pod": "a"}, 0.25, 1790000000.0)


async def test_the_token_and_the_query_are_sent() -> None:
    heads: list[bytes] = []
    async with prometheus(saying(vector()), heads, bearer_token=lambda: "s3cret") as client:
        await client.query("up{a='b'}")

    assert b"Bearer s3cret" in heads[0]
    assert b"/api/v1/query?query=up" in heads[0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (saying(b"", "503 Service Unavailable"), "answered 503"),
        (saying(b"<html>welcome</html>"), "not JSON"),
        (saying(b'{"status":"success","data":{"resultType":"matrix","result":[]}}'), "no vector"),
        (saying(b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}'), "a row"),
        (saying(b"[]"), "no vector"),
    ],
)
async def test_whatever_else_comes_is_told(answer: Answer, words: str) -> None:
    async with prometheus(answer) as client:
        with pytest.raises(PrometheusError, match=words):
            await client.query("up")


async def test_the_token_follows_no_redirect() -> None:
    redirect = saying(b"", "302 Found", "Location: http://127.0.0.1:9/\r\n")
    async with prometheus(redirect, bearer_token=lambda: "s3cret") as client:
        with pytest.raises(PrometheusError, match="answered 302"):
            await client.query("up")


async def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    async with prometheus(dripping, timeout_seconds=0.2) as client:
        with pytest.raises(PrometheusError, match="TimeoutError"):
            await client.query("up")


async def test_a_token_that_can_not_be_read_is_told() -> None:
    def unreadable() -> str:
        raise InvalidInputError("LLMSERVICE_PROMETHEUS_TOKEN_FILE names /t, which cannot be read")

    async with prometheus(saying(vector()), bearer_token=unreadable) as client:
        with pytest.raises(PrometheusError, match="TOKEN_FILE"):
            await client.query("up")


async def test_nobody_there_is_told() -> None:
    async with HttpPrometheusClient("http://127.0.0.1:9") as client:
        with pytest.raises(PrometheusError):
            await client.query("up")


def test_numbers_that_are_none_are_kept_as_they_are() -> None:
    (sample,) = parse_vector(vector(({}, "NaN")))

    assert sample.value != sample.value
