"""A real engine under an open-loop load that passes its limit: every request, and its metrics page each 5 s.

    PYTHONPATH=tests python3 -m gpu.ramp CASE.json OUT_FOLDER

CASE.json is a case of cases.py with "ramp": {"requests_per_second": [rate of each stage], "stage_seconds",
"input_tokens": [p50, p95], "output_tokens": [p50, p95], "seed"}, or with "stages": [[rate, seconds]] instead of the
first two. Arrivals are a Poisson stream, lengths log-normal by
those quantiles, prompts share no prefix. What is still running when the last stage ends may finish within its own time;
then the engine is ended. Written: `requests.jsonl`, `pages.jsonl` ({"at", "page"}), `gpu.jsonl` (nvidia-smi once a
second: what dashboards call GPU-Util), `record.json`; all times are seconds since the first arrival.
"""

import asyncio
import contextlib
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gpu import starts
from gpu.speed import VOCABULARY

SCRAPE_SECONDS = 5.0
DRAIN_SECONDS = 40.0
P95_DEVIATIONS = 1.6449
LONGEST_TOKENS = 30_000


@dataclass(frozen=True)
class Arrival:
    """One request of the load."""

    at: float
    stage: int
    prompt_tokens: int
    output_tokens: int


def arrivals(wanted: dict[str, Any]) -> Iterator[Arrival]:
    """The whole load, by its seed."""
    draw = random.Random(wanted.get("seed", 0))

    def length(quantiles: list[int]) -> int:
        middle, high = quantiles
        spread = math.log(high / middle) / P95_DEVIATIONS
        return min(LONGEST_TOKENS, max(2, round(middle * math.exp(draw.gauss(0.0, spread)))))

    end = 0.0
    for stage, (rate, seconds) in enumerate(stages(wanted)):
        begin, end = end, end + seconds
        at = begin + draw.expovariate(rate)
        while at < end:
            yield Arrival(at, stage, length(wanted["input_tokens"]), length(wanted["output_tokens"]))
            at += draw.expovariate(rate)


def stages(wanted: dict[str, Any]) -> list[tuple[float, float]]:
    """(requests a second, seconds) of each stage."""
    if "stages" in wanted:
        return [(rate, seconds) for rate, seconds in wanted["stages"]]
    return [(rate, wanted["stage_seconds"]) for rate in wanted["requests_per_second"]]


async def ask(session: aiohttp.ClientSession, url: str, number: int, each: Arrival) -> dict[str, Any]:
    """One streamed request; when its first and last token came."""
    prompt = [(number * 7_919 + place * 104_729) % VOCABULARY + 100 for place in range(each.prompt_tokens)]
    body = {"model": "m", "prompt": prompt, "max_tokens": each.output_tokens, "ignore_eos": True,
            "temperature": 0, "stream": True}  # fmt: skip
    sent = time.monotonic()
    first = last = 0.0
    events = 0
    try:
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    last = time.monotonic()
                    first = first or last
                    events += 1
            return asdict(each) | {
                "status": answer.status,
                "sent": sent,
                "first": first,
                "last": last,
                "events": events,
            }
    except (TimeoutError, aiohttp.ClientError) as error:
        return asdict(each) | {"status": 0, "sent": sent, "error": repr(error)}


async def every(seconds: float, began: float, look: Any, out: list[dict[str, Any]]) -> None:
    """Look at these times until cancelled."""
    turn = 0
    while True:
        await asyncio.sleep(max(0.0, began + turn * seconds - time.monotonic()))
        taken = time.monotonic() - began
        out.append({"at": round(taken, 3), **await look()})
        turn += 1


async def smi() -> dict[str, Any]:
    """Utilisation as nvidia-smi tells it."""
    fields = "utilization.gpu,utilization.memory,memory.used,power.draw,clocks.sm"
    process = await asyncio.create_subprocess_exec(
        "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return dict(zip(fields.split(","), out.decode().strip().splitlines()[0].split(", "), strict=True))


async def play(port: int, wanted: dict[str, Any], out: Path) -> dict[str, Any]:
    """The load from begin to end; its files."""
    url = f"http://127.0.0.1:{port}"
    load = list(arrivals(wanted))
    limit = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=limit, timeout=timeout, read_bufsize=2**20) as session:

        async def page() -> dict[str, Any]:
            async with session.get(f"{url}/metrics") as answer:
                return {"page": await answer.text()}

        for number in range(4):
            await ask(session, url, 10_000_000 + number, Arrival(0.0, -1, 512, 16))
        began = time.monotonic() + 0.5
        pages: list[dict[str, Any]] = []
        gpu: list[dict[str, Any]] = []
        watch = [
            asyncio.create_task(every(SCRAPE_SECONDS, began, page, pages)),
            asyncio.create_task(every(1.0, began, smi, gpu)),
        ]
        tasks = []
        for number, each in enumerate(load):
            await asyncio.sleep(max(0.0, began + each.at - time.monotonic()))
            tasks.append(asyncio.create_task(ask(session, url, number, each)))
        done, left = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
        for task in (*left, *watch):
            task.cancel()
        for task in (*left, *watch):
            with contextlib.suppress(asyncio.CancelledError):
                await task
    rows = sorted((task.result() for task in done), key=lambda row: row["at"])
    for row in rows:
        for moment in ("sent", "first", "last"):
            if row.get(moment):
                row[moment] = round(row[moment] - began, 4)
        row["at"] = round(row["at"], 4)
    for name, lines in (("requests", rows), ("pages", pages), ("gpu", gpu)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"requests": len(load), "finished": len(rows), "failed": sum(row["status"] != 200 for row in rows)}


def main() -> int:
    case, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    process = starts.start(case, Path(sys.argv[1]).with_name("supervisor.pyz"), out, (9410, 8000))
    record: dict[str, Any] = {key: case[key] for key in ("name", "args", "ramp", "plan")}
    try:
        state = starts.wait_ready(process, 9410, case.get("seconds", 400))
        record |= {"state": state, "start_seconds": round(time.monotonic() - began, 1)}
        print(case["name"], state, record["start_seconds"], flush=True)
        record["report"] = json.loads(starts.get(9410, "/report")[1] or "null")
        if state == "ready":
            record |= asyncio.run(play(8000, case["ramp"], out))
    finally:
        record["exit_code"] = starts.end(process)
        (out / "record.json").write_text(json.dumps(record) + "\n")
    print(
        json.dumps({key: record.get(key) for key in ("requests", "finished", "failed", "exit_code")}),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
