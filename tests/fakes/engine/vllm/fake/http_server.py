"""A small HTTP/1.1 server on asyncio: keep-alive, bodies by length, streams in chunks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus

KEEP_ALIVE_SECONDS = 5.0  # uvicorn's default, which vLLM keeps
_MAX_BODY_BYTES = 32 * 1024 * 1024
_MAX_LINE_BYTES = 64 * 1024


@dataclass(frozen=True)
class HttpRequest:
    """`gone()` tells whether the client has left."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: Callable[[], bool]


@dataclass(frozen=True)
class HttpResponse:
    """Either a body or a stream of chunks."""

    status: int = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


class StreamCutError(Exception):
    """Raised in a stream to close the connection in the middle."""


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


def json_response(value: object, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(value).encode())


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
) -> None:
    """One connection until either side is done."""
    try:
        while True:
            request = await asyncio.wait_for(_read(reader, writer), KEEP_ALIVE_SECONDS)
            if request is None:
                return
            response = await handler(request)
            close = request.headers.get("connection", "").lower() == "close"
            await _write(writer, response, close=close)
            if close:
                return
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, StreamCutError, ValueError):
        return
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    head = (await reader.readline()).decode("latin-1").split()
    if len(head) != 3:
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > _MAX_BODY_BYTES:
        return None
    body = await reader.readexactly(length)
    return HttpRequest(
        head[0], head[1].partition("?")[0], headers, body, lambda: reader.at_eof() or writer.is_closing()
    )


async def _write(writer: asyncio.StreamWriter, response: HttpResponse, *, close: bool) -> None:
    status = HTTPStatus(response.status)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "server: uvicorn",
        f"content-type: {response.content_type}",
    ]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if close:
        lines.append("connection: close")
    if response.stream is None:
        lines.append(f"content-length: {len(response.body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + response.body)
        await writer.drain()
        return
    lines.append("transfer-encoding: chunked")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    async with aclosing(response.stream) as stream:
        async for chunk in stream:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
