"""`make bench-decide`: what one tick of the autoscaler costs, by part: HTTP, parse, signals, decision.

1,000 services with 2,000 engines by default. Engines are a server in a process of its own that answers vLLM's real
page, with counters that move, on as many loopback addresses; each has a connection of its own. Times are CPU seconds of
this process, in which everything else of the tick happens. Writing is not part of it yet: nothing is wired to the
cluster.
"""

import argparse
import asyncio
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from llmservice_operator.autoscaling.capacity import LengthMix, SimpleCapacity
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.clients.engine_metrics import HttpEngineMetricsClient
from llmservice_operator.engines.metrics_page import MetricsPage, parse_page

PAGE = Path(__file__).parents[1] / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"
VERSION = (0, 26, 0)
PERIOD_SECONDS = 5.0
BEGIN = 1_790_000_000.0
AT_ONCE = 256
_COUNTED = re.compile(rb"^(vllm:[a-z_0-9]+(?:_total|_bucket|_count|_sum)\{.*\} )(\S+)$", re.MULTILINE)
_CPU = re.compile(rb"^(process_cpu_seconds_total )(\S+)$", re.MULTILINE)


@dataclass
class Service:
    """One service's autoscaler."""

    hosts: list[str]
    observer: ServiceObserver
    state: ScalerState
    inputs: Inputs


def moved(page: bytes, tick: int) -> bytes:
    """The page as it would be after so many ticks at 4 requests/s a replica."""
    share = 1.0 + tick * 20.0 / 4437.0

    def grow(match: re.Match[bytes]) -> bytes:
        return match[1] + repr(round(float(match[2]) * share)).encode() + b".0"

    return _CPU.sub(lambda match: match[1] + repr(float(match[2]) + tick).encode(), _COUNTED.sub(grow, page))


def serve(sender: Connection, pages: list[bytes]) -> None:
    """Answer every request on a connection with the next page."""
    answers = [
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page
        for page in pages
    ]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            writer.write(answer)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "0.0.0.0", 0, backlog=4096)
        sender.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def services(count: int, engines: int) -> list[Service]:
    """Engines shared out over services."""
    hosts = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(engines)]
    per_service = max(1, engines // count)
    inputs = Inputs(
        signals=ServiceObserver().signals({}, BEGIN),
        fleet=Fleet(wanted=per_service, ready=per_service),
        capacity=SimpleCapacity(prefill_tokens_per_second=40_000, decode_tokens_per_second=6_000),
        expected_mix=LengthMix(input_tokens=1000, output_tokens=200),
        objectives=Objectives(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05),
        max_replicas=8,
    )
    return [
        Service(
            hosts[number * per_service : (number + 1) * per_service], ServiceObserver(), ScalerState(), inputs
        )
        for number in range(count)
    ]


async def scrape(
    client: HttpEngineMetricsClient, fleet: list[Service], port: int
) -> list[tuple[Service, str, MetricsPage]]:
    """All engines' pages, so many at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(service: Service, host: str) -> tuple[Service, str, MetricsPage]:
        async with gate:
            return service, host, await client.page(host, port, VERSION)

    return await asyncio.gather(*(one(service, host) for service in fleet for host in service.hosts))


def tick(
    fleet: list[Service], pages: list[tuple[Service, str, MetricsPage]], now: float
) -> tuple[float, float]:
    """(CPU seconds of recording and signals, of deciding)."""
    context = Context(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05, peak_bytes_per_second=4.8e12)
    begin = time.process_time()
    for service, host, page in pages:
        service.observer.record(host, page, at=now)
    given = [
        replace(
            service.inputs,
            signals=service.observer.signals(dict.fromkeys(service.hosts, BEGIN - 600), now, context),
        )
        for service in fleet
    ]
    middle = time.process_time()
    for service, inputs in zip(fleet, given, strict=True):
        service.state = decide(inputs, service.state, now).state
    return middle - begin, time.process_time() - middle


async def bench(count: int, engines: int, ticks: int, port: int) -> list[tuple[str, str, str, bool | None]]:
    """Each figure: what, value, target, whether it is met."""
    fleet = services(count, engines)
    process = psutil.Process()
    totals, scrapes, looks, decisions, sizes = [], [], [], [], []
    async with HttpEngineMetricsClient(timeout_seconds=30.0, max_connections=AT_ONCE) as client:
        for number in range(ticks):
            begin = time.process_time()
            pages = await scrape(client, fleet, port)
            fetched = time.process_time() - begin
            look, decision = tick(fleet, pages, BEGIN + number * PERIOD_SECONDS)
            scrapes.append(fetched)
            looks.append(look)
            decisions.append(decision)
            totals.append(fetched + look + decision)
            sizes.append(process.memory_info().rss / 2**20)
    parse = fastest(lambda: parse_page(PAGE.read_bytes(), VERSION)) - fastest(PAGE.read_bytes)
    last = fleet[0]
    now = BEGIN + (ticks - 1) * PERIOD_SECONDS
    ready = dict.fromkeys(last.hosts, BEGIN - 600)
    given = replace(last.inputs, signals=last.observer.signals(ready, now, Context()))
    alone = fastest(lambda: decide(given, last.state, now + PERIOD_SECONDS))
    # From the tick on at which every window is full.
    steady = sizes[min(len(sizes) - 1, 26) :]
    middle = statistics.median
    return [
        ("one page parsed", f"{parse * 1e3:.2f} ms", "<= 0.5 ms", parse <= 0.5e-3),
        ("decide alone", f"{alone * 1e3:.2f} ms", "<= 1 ms", alone <= 1e-3),
        ("HTTP and parse, a tick", f"{middle(scrapes):.2f} s CPU", "", None),
        ("signals, a tick", f"{middle(looks):.2f} s CPU", "", None),
        ("decisions, a tick", f"{middle(decisions):.2f} s CPU", "", None),
        ("one tick in all, without writing", f"{middle(totals):.2f} s CPU", "<= 2 s", middle(totals) <= 2.0),
        ("memory, all windows full", f"{steady[0]:.0f} MiB", "", None),
        ("its growth after that", f"{steady[-1] - steady[0]:.1f} MiB", "", None),
    ]


def fastest(function: Callable[[], object]) -> float:
    """CPU seconds of one call: the least of 50 means of 5, since other processes only add."""
    means = []
    for _ in range(50):
        begin = time.process_time()
        for _ in range(5):
            function()
        means.append((time.process_time() - begin) / 5)
    return min(means)


def main() -> int:
    """Print the figures; 0 also where a target is missed: a benchmark tells, it does not judge."""
    parser = argparse.ArgumentParser(description="What one tick of the autoscaler costs.")
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--engines", type=int, default=2000)
    parser.add_argument("--ticks", type=int, default=40)
    options = parser.parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    real = PAGE.read_bytes()
    pages = [moved(real, number) for number in range(options.ticks)]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(sender, pages), daemon=True)
    server.start()
    try:
        port = receiver.recv()
        figures = asyncio.run(bench(options.services, options.engines, options.ticks, port))
    finally:
        server.terminate()
        server.join()
    print(f"{options.services} services, {options.engines} engines, {options.ticks} ticks")
    for what, value, target, met in figures:
        print(f"  {what:<34} {value:>14}  {target:<10} {'' if met is None else 'met' if met else 'NOT MET'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
