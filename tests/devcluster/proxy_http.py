"""As much of HTTP/1.1 as a proxy needs: message heads, and bodies passed on without being understood."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a request or an answer; header names are in lower case."""

    raw: bytes
    first_line: str
    headers: dict[str, str]

    @property
    def is_answer(self) -> bool:
        return self.first_line.startswith("HTTP/")

    @property
    def method(self) -> str:
        return self.first_line.split(" ", 2)[0]

    @property
    def target(self) -> str:
        """Path and query of a request."""
        return self.first_line.split(" ", 2)[1]

    @property
    def status(self) -> int:
        """Status code of an answer."""
        return int(self.first_line.split(" ", 2)[1])


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next message's head; None when the other side has closed in between."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Head(raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def relay_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, head: Head) -> None:
    """Reads the body that follows ``head`` and writes it on as it comes; ``writer`` None drops it."""
    if head.is_answer and (head.status in {204, 304} or head.status < 200):
        return
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        await _relay_chunks(reader, writer)
    elif "content-length" in head.headers:
        await _relay_bytes(reader, writer, int(head.headers["content-length"]))
    elif head.is_answer:
        while data := await reader.read(65536):
            await _write(writer, data)


async def _relay_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while line != b"\r\n":
                await _write(writer, line)
                line = await reader.readuntil(b"\r\n")
            await _write(writer, b"\r\n")
            return
        await _write(writer, line)
        await _relay_bytes(reader, writer, size + 2)


async def _relay_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, count: int) -> None:
    while count > 0:
        data = await reader.read(min(count, 65536))
        if not data:
            raise asyncio.IncompleteReadError(b"", count)
        count -= len(data)
        await _write(writer, data)


async def _write(writer: asyncio.StreamWriter | None, data: bytes) -> None:
    if writer is not None:
        writer.write(data)
        await writer.drain()
