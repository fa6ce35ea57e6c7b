"""Real engines that the operator's own loop scales: one on each GPU of this machine, under a load that rises and falls.

    PYTHONPATH=tests:operator/src python3 -m gpu.scale SERVICES.yaml OUT_FOLDER SUPERVISOR [--gpus N] [--models FOLDER]

The loop is the product's: AutoscaleLoop with its scraper, its metrics client, its capacity book and the policy
`balanced`. In place of the API server there is `replicas.py`: it starts and drains engines as the outcomes say. The
load (the service's annotation gpu/case) is another process, `spread.py`. Written as it happens: `outcomes.jsonl`,
`pages.jsonl`, `events.jsonl`, `requests.jsonl`, and `record.json` at the end; times are seconds since the Unix epoch,
but those of requests, which count from `began`.
"""

import argparse
import asyncio
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import aiohttp

from gpu import starts
from gpu.cases import Planned, planned_service
from gpu.recorded import outcome_as_json, page_as_json
from gpu.replicas import FIRST_ENGINE_PORT, Replicas
from llmservice_operator.cli_plan import read_documents
from llmservice_operator.clients.engine_metrics import EngineMetricsClient, HttpEngineMetricsClient
from llmservice_operator.clock import SystemClock
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_capacity import CapacityBook, capacity_case, expected_mix
from llmservice_operator.controller.autoscale_loop import AutoscaleLoop, NoActivities
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_policies import StoredPolicies
from llmservice_operator.controller.autoscale_scrape import Scraper
from llmservice_operator.controller.autoscale_subject import Bounds, EnginePod, Subject, objectives_of
from llmservice_operator.controller.keys import Key
from llmservice_operator.engines.metrics_page import MetricsPage
from llmservice_operator.engines.versions import Version, parse_version
from llmservice_operator.resources.supervisor import expected_start_seconds

LOOK_SECONDS = 0.5
UID = "gpu"


class NoPolicies:
    """A cluster without ScalingPolicies."""

    def version(self, kind: str, namespace: str, name: str) -> tuple[str, int] | None:
        return None

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        return None


@dataclass(frozen=True)
class KeptPages:
    """EngineMetricsClient that keeps each page. Pods share the machine's ports, so each has its own."""

    client: EngineMetricsClient
    keep: Callable[[dict[str, Any]], None]

    async def page(self, host: str, port: int, version: Version | None = None) -> MetricsPage:
        gpu = int(host.rpartition(".")[2]) - 1
        page = await self.client.page(host, FIRST_ENGINE_PORT + gpu, version)
        self.keep({"at": round(time.time(), 3), "host": host, **page_as_json(page)})
        return page


class KeptBoard(Board):
    """A board that keeps each outcome."""

    def __init__(self, keep: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._keep = keep

    def conclude(self, key: Key, outcome: Outcome) -> None:
        super().conclude(key, outcome)
        self._keep(outcome_as_json(outcome, self.subjects()[key]))


def subject_of(planned: Planned, pods: tuple[EnginePod, ...], wanted: int, memory: str) -> Subject:
    """What a reconcile would put onto the board."""
    spec, plan, facts = planned.spec, planned.plan, planned.model
    if spec.scaling is None:
        raise ValueError(f"{planned.name} has no spec.scaling")
    objectives = objectives_of(spec)
    return Subject(
        key=Key("gpu", planned.name),
        uid=UID,
        generation=1,
        pods=pods,
        wanted=wanted,
        refused=False,
        bounds=Bounds(
            min_replicas=spec.scaling.min_replicas,
            max_replicas=spec.scaling.max_replicas,
            policy=spec.scaling.policy,
        ),
        objectives=objectives,
        expected_mix=expected_mix(plan.speed),
        engine_version=parse_version(plan.engine_version),
        accelerator=plan.accelerator.name,
        accelerators_per_replica=plan.accelerators_per_replica,
        peak_bytes_per_second=plan.accelerator.memory_bandwidth_bytes_per_second,
        capacity=capacity_case(
            plan, revision="r", config=facts.config, config_digest="digest", objectives=objectives
        ),
        planned_start_seconds=expected_start_seconds(plan.weights_bytes, local=True),
        other_writer="",
        paused=False,
        memory=memory,
    )


class Keeper:
    """JSON lines by kind, on disk at once."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._files: dict[str, TextIO] = {}

    def of(self, kind: str) -> Callable[[dict[str, Any]], None]:
        file = self._files[kind] = (self._out / f"{kind}.jsonl").open("w", buffering=1)

        def keep(row: dict[str, Any]) -> None:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")

        return keep


async def reconcile(
    planned: Planned,
    board: Board,
    replicas: Replicas,
    client: "asyncio.subprocess.Process",
    wake: asyncio.Event,
) -> None:
    """Do what the outcomes say, and tell the board and the load's router how things are, until cancelled."""
    key, told = Key("gpu", planned.name), None
    async with aiohttp.ClientSession() as session:
        while True:
            await replicas.look(session)
            outcome = board.outcome(key, UID)
            desired = None if outcome is None else outcome.desired
            replicas.scale(replicas.wanted if desired is None else desired)
            pods = tuple(each.pod() for each in replicas.running)
            memory = "" if outcome is None else outcome.memory
            board.observe(key, subject_of(planned, pods, replicas.wanted, memory))
            addresses = replicas.addresses()
            if addresses != told and client.stdin is not None:
                told = addresses
                client.stdin.write(json.dumps(addresses).encode() + b"\n")
            wake.clear()
            try:
                await asyncio.wait_for(wake.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue


def say(event: dict[str, Any]) -> None:
    """An event in a line of the log."""
    words = {name: value for name, value in event.items() if name not in ("report", "at")}
    print(time.strftime("%H:%M:%S"), json.dumps(words), flush=True)


def say_change(row: dict[str, Any]) -> None:
    """An outcome in a line of the log."""
    decision, values = row["decision"] or {}, row["signals"]
    told = [row["wanted"], "→", *(decision.get(name) for name in ("desired", "ruling", "correction"))]
    told += [pod["role"] for pod in row["pods"]]
    seen = {
        name: values[name][0] for name in ("arrivals_per_second", "running", "waiting", "ttft_p95_seconds")
    }
    print(time.strftime("%H:%M:%S"), *told, seen, flush=True)


def scaling_loop(
    board: Board, pages: EngineMetricsClient, capacities: CapacityBook, wake: asyncio.Event
) -> AutoscaleLoop:
    """The product's loop; it sets `wake` when there is something to carry out."""
    clock = SystemClock()
    return AutoscaleLoop(
        board=board,
        scraper=Scraper(pages, clock),
        capacities=capacities,
        policies=StoredPolicies(NoPolicies()),
        activities=NoActivities(),
        clock=clock,
        enqueue=lambda _: wake.set(),
    )


async def play(planned: Planned, supervisor: Path, out: Path, gpus: int) -> dict[str, Any]:
    """The first replica's start, the load, and what the loop makes of it."""
    keeper, wake = Keeper(out), asyncio.Event()
    keep_event, keep_outcome = keeper.of("events"), keeper.of("outcomes")

    def event(row: dict[str, Any]) -> None:
        keep_event(row)
        say(row)

    def concluded(row: dict[str, Any]) -> None:
        keep_outcome(row)
        say_change(row)

    replicas = Replicas(planned.case, supervisor, out, gpus, event)
    replicas.scale(1)
    (out / "load.json").write_text(json.dumps(planned.case["load"]))
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu.spread", str(out / "load.json"), str(out), stdin=asyncio.subprocess.PIPE
    )
    board = KeptBoard(concluded)
    with ThreadPoolExecutor(1) as executor:
        capacities = CapacityBook(executor)
        async with HttpEngineMetricsClient() as metrics:
            loop = scaling_loop(board, KeptPages(metrics, keeper.of("pages")), capacities, wake)
            tasks = [
                asyncio.create_task(each)
                for each in (
                    loop.run(),
                    capacities.run(),
                    reconcile(planned, board, replicas, client, wake),
                    client.wait(),
                )
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                found = await asyncio.gather(*tasks, return_exceptions=True)
                if client.returncode is None:
                    client.kill()
                replicas.end()
    return {
        "client_exit_code": client.returncode,
        "errors": [repr(each) for each in found if isinstance(each, Exception)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Real engines that the operator's own loop scales")
    parser.add_argument("services", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("supervisor", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--models", type=Path, default=Path("tests/data/models"))
    parser.add_argument("--tokenizer", default="tokenizer")
    parser.add_argument("--engine-version", default="0.26.0")
    parser.add_argument("--load", type=Path, help="another load than the annotation's, as JSON")
    arguments = parser.parse_args()
    service = read_documents(arguments.services.read_text()).services[0]
    planned = planned_service(service, arguments.models, arguments.tokenizer, arguments.engine_version)
    if arguments.load:
        planned.case["load"] = json.loads(arguments.load.read_text())
    arguments.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "name": planned.name,
        "service": service,
        "machine": {"gpus": starts.smi().splitlines(), "python": platform.python_version()},
        **{key: planned.case[key] for key in ("args", "load", "plan")},
    }
    try:
        record |= asyncio.run(play(planned, arguments.supervisor, arguments.out, arguments.gpus))
    finally:
        began = arguments.out / "began"
        record["began"] = float(began.read_text()) if began.exists() else None
        (arguments.out / "record.json").write_text(json.dumps(record) + "\n")
    print("errors", record["errors"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
