"""An open-loop load over a service's replicas, each request to the one that has the fewest of it.

    python3 -m gpu.spread LOAD.json OUT_FOLDER

A process of its own, so that nothing but the load delays it. Each line of stdin is JSON, replica → URL of those that
may be sent requests now; the load (see ramp.py) begins with the first. Written to OUT_FOLDER: `began` (seconds since
the Unix epoch) and `requests.jsonl`, each request when it is over.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import aiohttp

from gpu.ramp import Arrival, arrivals, ask

DRAIN_SECONDS = 60.0
WARM_REQUESTS = 4


class Router:
    """Which replica gets the next request."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.inside: Counter[str] = Counter()
        self.turn: Counter[str] = Counter()

    def choose(self) -> str:
        """The one with the fewest requests inside; of several, the one that had the fewest in all."""
        return min(self.urls, key=lambda name: (self.inside[name], self.turn[name]))


async def listen(router: Router, first: asyncio.Event) -> None:
    """Take the replicas from stdin as they come and go."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        router.urls = json.loads(line)
        if router.urls:
            first.set()


async def send(session: aiohttp.ClientSession, router: Router, number: int, each: Arrival) -> dict[str, Any]:
    """One request from the choice of its replica to its last token."""
    if not router.urls:
        return {"replica": "", **asdict(each), "status": 0, "error": "no replica is ready"}
    replica = router.choose()
    router.inside[replica] += 1
    router.turn[replica] += 1
    try:
        return {"replica": replica, **await ask(session, router.urls[replica], number, each)}
    finally:
        router.inside[replica] -= 1


def write(row: dict[str, Any], began: float, out: TextIO) -> None:
    """A line of requests.jsonl, its times from the begin on."""
    for moment in ("sent", "first", "last"):
        if row.get(moment):
            row[moment] = round(row[moment] - began, 4)
    row["at"] = round(row["at"], 4)
    out.write(json.dumps(row) + "\n")


async def play(wanted: dict[str, Any], out: Path) -> None:
    """The load from begin to end."""
    load, router, first = list(arrivals(wanted)), Router(), asyncio.Event()
    listener = asyncio.create_task(listen(router, first))
    await first.wait()
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**20) as session:
        for number in range(WARM_REQUESTS):
            url = next(iter(router.urls.values()))
            await ask(session, url, 10_000_000 + number, Arrival(0.0, -1, 512, 16))
        began = time.monotonic() + 0.5
        (out / "began").write_text(f"{time.time() + 0.5}\n")
        with (out / "requests.jsonl").open("w", buffering=1) as lines:

            async def one(number: int, each: Arrival) -> None:
                write(await send(session, router, number, each), began, lines)

            tasks = []
            for number, each in enumerate(load):
                await asyncio.sleep(max(0.0, began + each.at - time.monotonic()))
                tasks.append(asyncio.create_task(one(number, each)))
            _, left = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            for each, task in zip(load, tasks, strict=True):
                if task in left:
                    write({"replica": "", **asdict(each), "status": 0, "error": "not over"}, began, lines)
    listener.cancel()


def main() -> int:
    asyncio.run(play(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
