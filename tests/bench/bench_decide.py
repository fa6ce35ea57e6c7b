"""`make bench-decide`: what the autoscaler of 1,000 services with 2,000 engines costs, running as it does.

The operator's own loop and reconcile, in real time. Engines are a server in a process of its own that answers vLLM's
real page, with counters that move at 4 requests a second, on as many loopback addresses; each has a connection of its
own. The API server is a dictionary: its requests are counted, and cost nothing here. CPU seconds are of this process,
in which everything happens: HTTP, parsing, signals, decisions, reconciles with their status, and the metrics page.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

import factories as make
from llmservice_operator.api.labels import API_VERSION, KIND
from llmservice_operator.autoscaling.capacity import LengthMix, SimpleCapacity
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.clients.engine import EngineReport, EngineUnreachableError
from llmservice_operator.clients.engine_metrics import HttpEngineMetricsClient
from llmservice_operator.clients.kube import NotFoundError
from llmservice_operator.clock import SystemClock
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_capacity import CapacityBook
from llmservice_operator.controller.autoscale_loop import AutoscaleLoop, NoActivities
from llmservice_operator.controller.autoscale_policies import StoredPolicies
from llmservice_operator.controller.autoscale_samples import scaling_samples
from llmservice_operator.controller.autoscale_scrape import Scraper
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.observed import ReconcileSettings
from llmservice_operator.controller.reconciler import Reconciler
from llmservice_operator.controller.store import Store
from llmservice_operator.controller.workqueue import WorkQueue
from llmservice_operator.engines.metrics_page import parse_page
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, load_catalogue
from llmservice_operator.resources.types import RenderSettings
from llmservice_operator.telemetry.metrics import Metrics

Object = dict[str, Any]
PAGE = Path(__file__).parents[1] / "data" / "metrics" / "vllm-0.26.0_h200_llama-3.1-8b.txt"
VERSION = (0, 26, 0)
PERIOD_SECONDS = 5.0
BEGIN = 1_790_000_000.0
AT_ONCE = 256
FULL_SECONDS = 130.0
"""After so long every window is full."""
Figure = tuple[str, str, str, bool | None]
_COUNTED = re.compile(rb"^(vllm:[a-z_0-9]+(?:_total|_bucket|_count|_sum)\{.*\} )(\S+)$", re.MULTILINE)
_CPU = re.compile(rb"^(process_cpu_seconds_total )(\S+)$", re.MULTILINE)


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


class Kube:
    """KubeClient of a dictionary, as far as a reconcile asks it; counts what is written."""

    def __init__(self) -> None:
        self.writes: Counter[str] = Counter()
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._version = 100

    def put(self, obj: Object) -> Object:
        self._version += 1
        metadata = obj["metadata"]
        metadata.setdefault("uid", f"uid-{obj['kind']}-{metadata['name']}")
        metadata["resourceVersion"] = str(self._version)
        self._objects[obj["kind"], metadata["namespace"], metadata["name"]] = obj
        return deepcopy(obj)

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        return deepcopy(self._objects.get((kind, namespace or "", name)))

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True) -> Object:
        del force
        self.writes[manifest["kind"]] += 1
        metadata = manifest["metadata"]
        old = self._objects.get((manifest["kind"], metadata["namespace"], metadata["name"]), {})
        return self.put(
            {**old, **deepcopy(dict(manifest)), "metadata": {**old.get("metadata", {}), **metadata}}
        )

    create = apply

    async def apply_status(self, manifest: Mapping[str, Any]) -> Object:
        self.writes["status"] += 1
        metadata = manifest["metadata"]
        old = self._objects[manifest["kind"], metadata["namespace"], metadata["name"]]
        return self.put({**old, "status": json.loads(json.dumps(manifest["status"]))})

    async def patch(self, kind: str, namespace: str | None, name: str, body: Object) -> Object:
        del body
        self.writes[f"{kind} costs"] += 1
        found = await self.get(kind, namespace, name)
        if found is None:
            raise NotFoundError(404, "NotFound", name)
        return found


class Deaf:
    """EngineClient whose supervisors don't answer, and a recorder that keeps nothing."""

    async def report(self, host: str, port: int) -> EngineReport:
        raise EngineUnreachableError(f"{host}:{port}")

    def event(self, *_about: Any) -> None:
        """Forget it."""


@dataclass
class World:
    """The operator's parts around the loop."""

    kube: Kube = field(default_factory=Kube)
    store: Store = field(default_factory=Store)
    board: Board = field(default_factory=Board)
    metrics: Metrics = field(default_factory=Metrics)
    clock: SystemClock = field(default_factory=SystemClock)
    reconciles: int = 0

    def __post_init__(self) -> None:
        deaf: Any = Deaf()
        kube: Any = self.kube
        self.queue = WorkQueue(clock=self.clock, random=lambda: 0.5)
        self._reconciler = Reconciler(
            kube=kube,
            store=self.store,
            recorder=deaf,
            engine_client=deaf,
            modelhub=None,
            engine=VllmEngine(),
            clock=self.clock,
            settings=ReconcileSettings(
                render=RenderSettings(
                    supervisor_image="operator:0", engine_images={"default": "vllm/vllm-openai:v0.26.0"}
                ),
                catalogue=load_catalogue(builtin_catalogue_text()),
            ),
            board=self.board,
        )

    async def reconcile(self, key: Key) -> float | None:
        self.reconciles += 1
        await self._reconciler.reconcile(key)
        return None  # what it would look at again for is no part of scaling

    async def serve(self, count: int, engines: int) -> None:
        """So many services, each with its share of ready pods."""
        self._add({"kind": "ConfigMap", "metadata": {"name": "tiny", "namespace": "default"},
                   "data": {"config.json": json.dumps(make.TINY)}})  # fmt: skip
        share = max(1, engines // count)
        for number in range(count):
            key = Key("default", f"service-{number}")
            self._add(service(key.name, share))
            await self.reconcile(key)
            revision = self._revision(key)
            for pod in range(number * share, (number + 1) * share):
                self._add(ready_pod(key.name, pod, revision))
            for _ in range(2):  # the first proves the plan, the second asks for all replicas
                await self.reconcile(key)

    def _add(self, obj: Object) -> None:
        self.store.put(obj["kind"], self.kube.put(obj))

    def _revision(self, key: Key) -> str:
        deployment = self.store.get("Deployment", *key)
        assert deployment is not None
        return str(deployment["metadata"]["annotations"]["llmservice.dev/revision"])


def service(name: str, replicas: int) -> Object:
    """A scaled service on H200."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {
            "model": {"uri": "pvc://models/tiny", "configMap": "tiny"},
            "accelerator": {"types": ["nvidia-h200"]},
            "slo": {"ttft": {"p95": "5s"}, "tpot": {"p95": "200ms"}},
            "scaling": {"minReplicas": replicas, "maxReplicas": max(8, replicas)},
        },
    }


def ready_pod(service_name: str, number: int, revision: str) -> Object:
    """A pod whose engine is at its own loopback address."""
    pod = make.running_pod(
        ready=True, name=f"{service_name}-{number}", service=service_name, revision=revision, created=-600
    )
    pod["status"]["podIP"] = f"127.1.{number // 250}.{number % 250 + 1}"
    return pod


async def bench(count: int, engines: int, seconds: float, port: int) -> list[Figure]:
    """Each figure: what, value, target, whether it is met."""
    world = World()
    await world.serve(count, engines)
    process, figures = psutil.Process(), []
    before = process.memory_info().rss / 2**20
    ticks: list[float] = []
    sizes: list[float] = []
    async with HttpEngineMetricsClient(timeout_seconds=30.0, max_connections=AT_ONCE) as client:
        with ThreadPoolExecutor(max_workers=1) as executor:
            capacities = CapacityBook(executor)
            loop = AutoscaleLoop(
                board=world.board,
                scraper=Scraper(client, world.clock, port=port),
                capacities=capacities,
                policies=StoredPolicies(world.store),
                activities=NoActivities(),
                clock=world.clock,
                enqueue=world.queue.add,
                observer=world.metrics,
            )
            tasks = [
                asyncio.create_task(each)
                for each in (loop.run(), capacities.run(), world.queue.run(world.reconcile, 4))
            ]
            begun = time.monotonic()
            full, reconciles = Counter(world.kube.writes), world.reconciles
            while (now := time.monotonic() - begun) < seconds:
                used = time.process_time()
                await asyncio.sleep(PERIOD_SECONDS)
                ticks.append(time.process_time() - used)
                sizes.append(process.memory_info().rss / 2**20)
                if now < FULL_SECONDS:
                    full, reconciles = Counter(world.kube.writes), world.reconciles
                assert not any(task.done() for task in tasks), tasks
            steady_seconds = max(PERIOD_SECONDS, seconds - FULL_SECONDS)
            statuses = (world.kube.writes - full)["status"] / steady_seconds
            others = sum((world.kube.writes - full).values()) / steady_seconds - statuses
            world.metrics.watch_services(world.store.service_states, lambda: scaling_samples(loop.scalers()))
            figures += page_figures(world)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    steady = int(FULL_SECONDS / PERIOD_SECONDS)
    tick, sized = statistics.median(ticks[-steady:]), sizes[min(len(sizes) - 1, steady) :]
    failures = sum(each.value for each in world.metrics.scrape_failures.collect()[0].samples)
    return [
        *alone_figures(),
        ("one tick in all", f"{tick:.2f} s CPU", "<= 2 s", tick <= 2.0),
        ("status writes, steady load", f"{statuses:.1f} /s", "<= 10 /s", statuses <= 10.0),
        ("other writes", f"{others:.1f} /s", "", None),
        ("reconciles", f"{(world.reconciles - reconciles) / steady_seconds:.1f} /s", "", None),
        ("scrapes that failed", f"{failures:.0f}", "0", failures == 0),
        ("memory, before the loop", f"{before:.0f} MiB", "", None),
        ("memory, all windows full", f"{sized[0]:.0f} MiB", "", None),
        ("its growth after that", f"{sized[-1] - sized[0]:.1f} MiB", "", None),
        *figures,
    ]


def page_figures(world: World) -> list[Figure]:
    """The operator's own metrics page."""
    begin = time.process_time()
    page = world.metrics.page()
    taken = time.process_time() - begin
    return [
        ("the metrics page", f"{taken:.2f} s CPU", "", None),
        ("its size", f"{len(page) / 2**20:.1f} MiB", "", None),
    ]


def alone_figures() -> list[Figure]:
    """A page and a decision by themselves."""
    parse = fastest(lambda: parse_page(PAGE.read_bytes(), VERSION)) - fastest(PAGE.read_bytes)
    observer, real = ServiceObserver(), PAGE.read_bytes()
    for number in range(40):
        for host in ("a", "b"):
            observer.record(
                host, parse_page(moved(real, number), VERSION), at=BEGIN + number * PERIOD_SECONDS
            )
    now = BEGIN + 39 * PERIOD_SECONDS
    ready = {"a": BEGIN - 600, "b": BEGIN - 600}
    context = Context(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05, peak_bytes_per_second=4.8e12)
    inputs = Inputs(
        signals=observer.signals(ready, now, context),
        fleet=Fleet(wanted=2, ready=2),
        capacity=SimpleCapacity(prefill_tokens_per_second=40_000, decode_tokens_per_second=6_000),
        expected_mix=LengthMix(input_tokens=1000, output_tokens=200),
        objectives=Objectives(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05),
        max_replicas=8,
    )
    state = decide(inputs, ScalerState(), now - PERIOD_SECONDS).state
    signals = fastest(lambda: observer.signals(ready, now, context))
    alone = fastest(lambda: decide(inputs, state, now))
    return [
        ("one page parsed", f"{parse * 1e3:.2f} ms", "<= 0.5 ms", parse <= 0.5e-3),
        ("signals of two engines", f"{signals * 1e3:.2f} ms", "", None),
        ("decide alone", f"{alone * 1e3:.2f} ms", "<= 1 ms", alone <= 1e-3),
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
    parser = argparse.ArgumentParser(description="What the autoscaler of many services costs.")
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--engines", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=200.0)
    options = parser.parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    real = PAGE.read_bytes()
    pages = [moved(real, number) for number in range(int(options.seconds / PERIOD_SECONDS) + 40)]
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(sender, pages), daemon=True)
    server.start()
    try:
        port = receiver.recv()
        figures = asyncio.run(bench(options.services, options.engines, options.seconds, port))
    finally:
        server.terminate()
        server.join()
    print(f"{options.services} services, {options.engines} engines, {options.seconds:.0f} s")
    for what, value, target, met in figures:
        print(f"  {what:<34} {value:>14}  {target:<10} {'' if met is None else 'met' if met else 'NOT MET'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
