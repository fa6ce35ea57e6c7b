"""Sends completions at given times and tells what came of each. Standard library only: it runs in any pod with Python.

Standard input, one JSON object:

    {"targets": [{"host": "10.0.0.7", "port": 8000, "model": "chat"}], "limit": 2000, "timeout_seconds": 120,
     "requests": [[seconds after the begin, index of its target, prompt tokens, answer tokens], ...]}

Standard output, JSON lines: `{"began": Unix time}`, then for each request, as it ends,

    [its index, seconds from the begin to its sending, then to its first token, then to its end, how it ended]

in which seconds that never came are null, and it ended as `done`, `cut` (the stream broke off), `refused` (no
connection, or not 200), `late` (not done within the timeout) or `dropped` (not sent: `limit` were in flight).

Each request has a connection of its own, so that every one is routed anew; and streams, so that its first token can be
timed. Addresses are loopback or private ones: anything else is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import queue
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

DONE, CUT, REFUSED, LATE, DROPPED = "done", "cut", "refused", "late", "dropped"
DEFAULT_LIMIT, DEFAULT_TIMEOUT_SECONDS = 2000, 120.0


@dataclass(frozen=True)
class Target:
    """An engine, or the Service before several."""

    host: str
    port: int
    model: str
    api_key: str = ""


@dataclass(frozen=True)
class Request:
    """One completion."""

    at_seconds: float
    target: int
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True)
class Result:
    """What came of it; times from its sending but for the first."""

    index: int
    sent_seconds: float
    first_seconds: float | None
    end_seconds: float | None
    ended: str


def check(target: Target) -> None:
    """Refuse what is not on this machine or in this cluster.

    Raises:
        ValueError: for an address that is neither loopback nor private.

    """
    address = ipaddress.ip_address(socket.gethostbyname(target.host))
    if not (address.is_loopback or address.is_private):
        raise ValueError(f"{target.host} is {address}: only loopback and private addresses are loaded")


async def replay(
    targets: Sequence[Target],
    requests: Sequence[Request],
    tell: Callable[[Result], None],
    *,
    limit: int = DEFAULT_LIMIT,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Send each request at its time; returns when all have ended. `requests` are in order of time."""
    for target in targets:
        check(target)
    begin = time.monotonic()
    tasks: set[asyncio.Task[None]] = set()
    for index, request in enumerate(requests):
        await asyncio.sleep(max(0.0, begin + request.at_seconds - time.monotonic()))
        sent = time.monotonic() - begin
        if len(tasks) >= limit:
            tell(Result(index, sent, None, None, DROPPED))
            continue
        following = _follow(targets[request.target], request, timeout_seconds)
        task = asyncio.create_task(_tell_end(following, index, sent, tell))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def _tell_end(
    following: Awaitable[tuple[float | None, float | None, str]],
    index: int,
    sent_seconds: float,
    tell: Callable[[Result], None],
) -> None:
    tell(Result(index, sent_seconds, *await following))


async def _follow(
    target: Target, request: Request, timeout_seconds: float
) -> tuple[float | None, float | None, str]:
    """Seconds to the first token, to the end, and how it ended."""
    sent = time.monotonic()
    first: list[float] = []
    try:
        ended = await asyncio.wait_for(_send(target, request, first), timeout_seconds)
    except TimeoutError:
        ended = LATE
    except (OSError, asyncio.IncompleteReadError):
        ended = CUT if first else REFUSED
    return first[0] - sent if first else None, time.monotonic() - sent if ended == DONE else None, ended


async def _send(target: Target, request: Request, first: list[float]) -> str:
    """How it ended; the time of its first token goes into `first`."""
    body = json.dumps(
        {
            "model": target.model,
            "prompt": "a " * request.prompt_tokens,
            "max_tokens": request.answer_tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {target.host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    if target.api_key:
        head += f"Authorization: Bearer {target.api_key}\r\n"
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        writer.write(f"{head}\r\n".encode() + body)
        await writer.drain()
        status = (await reader.readuntil(b"\r\n\r\n")).split(maxsplit=2)[1]
        if status != b"200":
            return REFUSED
        tail = b""
        while piece := await reader.read(65536):
            if not first and b"data: " in tail + piece:
                first.append(time.monotonic())
            tail = (tail + piece)[-64:]
        return DONE if b"data: [DONE]" in tail else CUT
    finally:
        writer.close()


def main() -> None:
    """From standard input to standard output."""
    given = json.load(sys.stdin)
    targets = [Target(**each) for each in given["targets"]]
    requests = [Request(*each) for each in given["requests"]]

    # By a thread: a reader that is slow must not hold up the requests.
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    writer = threading.Thread(target=_write, args=(lines,))
    writer.start()

    def tell(result: Result) -> None:
        row = [result.index, result.sent_seconds, result.first_seconds, result.end_seconds, result.ended]
        lines.put(json.dumps([round(each, 5) if isinstance(each, float) else each for each in row]))

    lines.put(json.dumps({"began": time.time()}))
    asyncio.run(
        replay(
            targets,
            requests,
            tell,
            limit=given.get("limit", DEFAULT_LIMIT),
            timeout_seconds=given.get("timeout_seconds", DEFAULT_TIMEOUT_SECONDS),
        )
    )
    lines.put(None)
    writer.join()


def _write(lines: queue.SimpleQueue[str | None]) -> None:
    while (line := lines.get()) is not None:
        print(line, flush=True)


if __name__ == "__main__":
    main()
