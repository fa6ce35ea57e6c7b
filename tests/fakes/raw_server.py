"""A server on the loopback address that answers byte by byte as a test says: for clients that must bear any answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: Answer, heads: list[bytes] | None = None) -> AsyncIterator[int]:
    """Answers once a connection; its port. `heads` takes the heads of requests."""
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


def saying(content: bytes, status: str = "200 OK", headers: str = "") -> Answer:
    """Answers with one body."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{headers}Connection: close\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    return answer


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Nothing, until the other side gives up."""
    await reader.read()
