"""The scaling loop around one service, in fake time: engines that serve at a rate, and whoever applies its outcome."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.clock import FakeClock
from fakes.engine_page import EngineTotals, page
from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.clients.engine import EngineUnreachableError
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_capacity import CapacityBook, CapacityCase
from llmservice_operator.controller.autoscale_loop import AutoscaleLoop, LoopTimes, NoActivities
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_policies import StoredPolicies
from llmservice_operator.controller.autoscale_scrape import Scraper
from llmservice_operator.controller.autoscale_subject import Bounds, EnginePod, Role, Subject
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.store import Store
from llmservice_operator.engines.metrics_page import MetricsPage, parse_page
from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, load_catalogue
from llmservice_operator.planning.types import Knobs, PlannedSpeed

KEY = Key("ns", "chat")
OBJECTIVES = Objectives(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05)
PER_REPLICA = 4.0
"""Requests a second of 400 + 150 tokens that one replica takes by its plan, at 80 % of which it is full."""


def capacity_case(rate: float = PER_REPLICA / 0.8) -> CapacityCase:
    """A case whose speed model isn't known: the plan's own rate stands in."""
    row = next(each for each in load_catalogue(builtin_catalogue_text()) if each.name == "nvidia-h200")
    speed = PlannedSpeed(
        input_tokens=400, input_p95_tokens=400, output_tokens=150, assumed=False, batch=64, ttft_seconds=0.1,
        ttft_p95_seconds=0.2, tpot_seconds=0.02, tpot_p95_seconds=0.03, itl_seconds=0.015, tokens_per_second=1.0,
        requests_per_second=rate, prefill_regime="compute-bound", decode_regime="memory-bound", bottleneck="Host",
    )  # fmt: skip
    knobs = Knobs(
        max_model_len=2048, gpu_memory_utilization=0.9, max_num_seqs=64, max_num_batched_tokens=2048,
        kv_cache_dtype="auto", block_size=None, tensor_parallel_size=1,
    )  # fmt: skip
    return CapacityCase(
        key=f"test {rate}", row=row, knobs=knobs, engine_version="0.26.0", kv_cache_tokens=100_000, speed=speed,
        config=None, objectives=OBJECTIVES,
    )  # fmt: skip


def ready_pod(name: str, host: str, since: float) -> EnginePod:
    """A pod that serves."""
    return EnginePod(
        name=name,
        role=Role.READY,
        host=host,
        incarnation=f"{name}/0",
        created_at=since - 60,
        ready_since=since,
    )


def subject(pods: tuple[EnginePod, ...], **changes: Any) -> Subject:
    """A scaled service of these pods, as many as it wants."""
    made = Subject(
        key=KEY,
        uid="uid-chat",
        generation=1,
        pods=pods,
        wanted=len(pods),
        refused=False,
        bounds=Bounds(min_replicas=1, max_replicas=8, policy="balanced"),
        objectives=OBJECTIVES,
        expected_mix=LengthMix(input_tokens=400.0, output_tokens=150.0),
        engine_version=(0, 26, 0),
        accelerator="nvidia-h200",
        accelerators_per_replica=1,
        peak_bytes_per_second=4.8e12,
        capacity=capacity_case(),
        planned_start_seconds=60.0,
        other_writer="",
        paused=False,
        memory="",
    )
    return replace(made, **changes)


class NoThread(Executor):
    """Works at once, in the caller's thread."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*arguments, **named))
        return done


@dataclass
class Engines:
    """EngineMetricsClient of engines that share a load evenly."""

    clock: FakeClock
    rate: float = 0.0
    totals: dict[str, EngineTotals] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    is_frozen: bool = False
    asked: list[str] = field(default_factory=list)
    _at: float = 0.0

    def add(self, host: str) -> EngineTotals:
        self.advance()
        return self.totals.setdefault(host, EngineTotals())

    def advance(self) -> None:
        """Serve until now."""
        now = self.clock.monotonic()
        serving = [each for host, each in self.totals.items() if host not in self.down]
        for each in serving if self._at and not self.is_frozen else ():
            each.serve(self.rate * (now - self._at) / len(serving), now - self._at)
            each.running = round(self.rate / len(serving) * 3.0)
        self._at = now

    async def page(self, host: str, port: int, version: Version | None = None) -> MetricsPage:
        self.asked.append(f"{host}:{port}")
        self.advance()
        if host in self.down:
            raise EngineUnreachableError(f"{host}:{port}/metrics: refused") from OSError("refused")
        return parse_page(page(self.totals[host]).encode(), version)


class Rig:
    """See the module. Replicas that are wanted are ready at once, or `start_seconds` later."""

    def __init__(self, clock: FakeClock, *, replicas: int = 1, rate: float = 0.0, **changes: Any) -> None:
        self.clock = clock
        self.engines = Engines(clock, rate)
        self.board = Board()
        self.store = Store()
        self.changes = changes
        self.enqueued: list[Key] = []
        self.wanted: list[int] = []
        """The numbers that were applied, each once."""
        self.replicas = replicas
        self.follows = True
        """Whether what is wanted is applied."""
        self.begin()
        self.apply(replicas)

    def begin(self) -> None:
        """A loop that remembers nothing, as of a new process."""
        self.loop = AutoscaleLoop(
            board=self.board,
            scraper=Scraper(self.engines, self.clock),
            capacities=CapacityBook(NoThread()),
            policies=StoredPolicies(self.store),
            activities=NoActivities(),
            clock=self.clock,
            enqueue=self.enqueued.append,
            times=LoopTimes(tick_seconds=2.5),
        )

    def apply(self, replicas: int, **changes: Any) -> None:
        """As a reconcile does: the Deployment has so many replicas, and the loop is told."""
        self.replicas = replicas
        self.changes |= changes
        hosts = [f"10.0.0.{number + 1}" for number in range(replicas)]
        for host in list(self.engines.totals):
            if host not in hosts:
                del self.engines.totals[host]
        pods = tuple(ready_pod(f"chat-{host}", host, self.clock.now() - 600) for host in hosts)
        for host in hosts:
            self.engines.add(host)
        memory = {} if self.outcome is None else {"memory": self.outcome.memory}
        self.board.observe(KEY, subject(pods, **{**memory, **self.changes}))

    @property
    def outcome(self) -> Outcome | None:
        """The newest."""
        return self.board.outcome(KEY, "uid-chat")

    async def run(self, seconds: float) -> None:
        """Let so much time pass, with what is wanted applied as it comes."""
        with self._running():
            for _ in range(round(seconds / 5.0)):
                await self.clock.advance(5.0)
                outcome = self.outcome
                desired = None if outcome is None else outcome.desired
                if self.follows and desired is not None and desired != self.replicas:
                    self.wanted.append(desired)
                    self.apply(desired)

    @contextmanager
    def _running(self) -> Iterator[None]:
        task = asyncio.create_task(self.loop.run())
        try:
            yield
        finally:
            task.cancel()
