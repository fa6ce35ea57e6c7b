"""Metrics pages fetched from engines: read, or told to be none, within a deadline and a size."""

import asyncio
from pathlib import Path

import pytest

from fakes.raw_server import saying, serving, silence
from llmservice_operator.clients.engine import EngineUnreachableError
from llmservice_operator.clients.engine_metrics import HttpEngineMetricsClient
from llmservice_operator.engines.metric_names import Series
from llmservice_operator.engines.metrics_page import MAX_PAGE_BYTES

REAL = Path(__file__).parents[2] / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"


async def test_a_page_is_read() -> None:
    async with serving(saying(REAL.read_bytes())) as port, HttpEngineMetricsClient() as client:
        page = await client.page("127.0.0.1", port, (0, 26, 0))

    assert page.counters[Series.FINISHED] == 4437


async def test_no_compression_is_asked_for() -> None:
    heads: list[bytes] = []
    async with serving(saying(REAL.read_bytes()), heads) as port, HttpEngineMetricsClient() as client:
        await client.page("127.0.0.1", port)

    assert b"\r\nAccept-Encoding: identity\r\n" in heads[0]


async def test_a_hung_engine_costs_one_deadline() -> None:
    async with serving(silence) as port, HttpEngineMetricsClient(timeout_seconds=0.2) as client:
        with pytest.raises(EngineUnreachableError, match="/metrics: TimeoutError"):
            await client.page("127.0.0.1", port)


async def test_an_error_status_is_told() -> None:
    async with serving(saying(b"", "404 Not Found")) as port, HttpEngineMetricsClient() as client:
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
        serving(saying(b"# TYPE up gauge\nup 1\n")) as port,
        HttpEngineMetricsClient() as client,
    ):
        with pytest.raises(EngineUnreachableError, match="none of the engine's series"):
            await client.page("127.0.0.1", port)


async def test_a_closed_client_says_so() -> None:
    with pytest.raises(EngineUnreachableError, match="not open"):
        await HttpEngineMetricsClient().page("127.0.0.1", 1)
