"""Metrics pages fetched from engines: read, or told to be none, within a deadline and a size."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from llmservice_operator.clients.engine import EngineUnreachableError
from llmservice_operator.clients.engine_metrics import HttpEngineMetricsClient
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import MAX_PAGE_BYTES

REAL = Path(__file__).parents[2] / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, heads: list[bytes] | None = None) -> AsyncIterator[int]:
    """A server on the loopback address that answers once a connection; its port."""
    handling: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.append(task)
        head = await reader.readuntil(b"\r\n\r\n")
        if heads is not None:
            heads.append(head)
        with suppress(ConnectionError):
            await answer(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.gather(*handling)


def body(content: bytes, status: str = "200 OK") -> Answer:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    return answer


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the other side gives up


async def test_a_page_is_read() -> None:
    async with serving(body(REAL.read_bytes())) as port, HttpEngineMetricsClient() as client:
        page = await client.page("127.0.0.1", port, (0, 26, 0))

    assert page.counters[Series.FINISHED] == 4437


async def test_no_compression_is_asked_for() -> None:
    heads: list[bytes] = []
    async with serving(body(REAL.read_bytes()), heads) as port, HttpEngineMetricsClient() as client:
        await client.page("127.0.0.1", port)

    assert b"\r\nAccept-Encoding: identity\r\n" in heads[0]


async def test_a_hung_engine_costs_one_deadline() -> None:
    async with serving(silence) as port, HttpEngineMetricsClient(timeout_seconds=0.2) as client:
        with pytest.raises(EngineUnreachableError, match="/metrics: TimeoutError"):
            await client.page("127.0.0.1", port)


async def test_an_error_status_is_told() -> None:
    async with serving(body(b"", "404 Not Found")) as port, HttpEngineMetricsClient() as client:
        with pytest.raises(EngineUnreachableError, match="answered 404"):
            await client.page("127.0.0.1", port)


async def test_a_page_without_end_is_cut() -> None:
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(2 * MAX_PAGE_BYTES // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()

    async with serving(endless) as port, HttpEngineMetricsClient() as client:
        with pytest.raises(EngineUnreachableError, match=f"longer than {MAX_PAGE_BYTES}"):
            await client.page("127.0.0.1", port)


async def test_another_servers_page_is_no_page() -> None:
    async with (
        serving(body(b"# TYPE up gauge\nup 1\n")) as port,
        HttpEngineMetricsClient() as client,
    ):
        with pytest.raises(EngineUnreachableError, match="none of the engine's series"):
            await client.page("127.0.0.1", port)


async def test_a_closed_client_says_so() -> None:
    with pytest.raises(EngineUnreachableError, match="not open"):
        await HttpEngineMetricsClient().page("127.0.0.1", 1)
