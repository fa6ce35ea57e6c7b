"""A fleet under a policy: pods that start, serve, drain and go, a router, and time in events.

Between events (a scrape, a decision, a pod that becomes ready, a fault) the compiled loop serves on its own.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from llmservice_operator.perfmodel.arrivals import Generator
from llmservice_operator.simulation.answers import Answers
from llmservice_operator.simulation.faults import CLOCK_JUMP_SECONDS, Fault, FaultKind
from llmservice_operator.simulation.kernel import advance
from llmservice_operator.simulation.loads import STAGE_PAUSE_SECONDS, Load
from llmservice_operator.simulation.observation import Observation, Policy
from llmservice_operator.simulation.records import (
    NEVER,
    Fleet,
    Records,
    clear_slot,
    new_fleet,
    new_requests,
)
from llmservice_operator.simulation.router import LEAST_LOADED, RANDOM, ROUND_ROBIN
from llmservice_operator.simulation.scraper import Scraper, shown
from llmservice_operator.simulation.tables import Tables


class Routing(StrEnum):
    """How the router chooses a pod."""

    LEAST_LOADED = "least-loaded"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


_ROUTING = {Routing.LEAST_LOADED: LEAST_LOADED, Routing.ROUND_ROBIN: ROUND_ROBIN, Routing.RANDOM: RANDOM}


class Phase(StrEnum):
    """Of a pod's life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What isn't the load's, the engine's or the policy's."""

    min_replicas: int = 1
    max_replicas: int = 8
    initial_replicas: int | None = None
    """Ready at the begin; default: the least."""
    start_seconds: tuple[tuple[str, float], ...] = (("start", 120.0),)
    """Phases of a start, each with its mean."""
    start_jitter: float = 0.3
    """Each phase takes its mean times 1 ± this, uniformly."""
    drain_seconds: float = 300.0
    """What is unfinished then is aborted."""
    scrape_seconds: float = 5.0
    routing: Routing = Routing.LEAST_LOADED
    faults: tuple[Fault, ...] = ()
    tail_seconds: float = 900.0
    """How long the fleet runs on after the last arrival, at most."""
    seed: int = 0


@dataclass(slots=True)
class Pod:
    """One replica."""

    pod: int
    slot: int
    created_seconds: float
    phase: Phase = Phase.STARTING
    ready_seconds: float = math.inf
    stuck: FaultKind | None = None
    """Why it can't become ready,"""
    stuck_until_seconds: float = 0.0
    """for as long as this; only then its start begins."""
    deadline_seconds: float = math.inf
    """Of its drain."""

    @property
    def started_seconds(self) -> float:
        """When nothing kept it from starting."""
        return max(self.created_seconds, self.stuck_until_seconds)


@dataclass(slots=True)
class Point:
    """The fleet at one decision."""

    at_seconds: float
    provisioned: int
    ready: int
    desired: int


@dataclass(slots=True)
class Run:
    """What happened."""

    load: Load
    policy: str
    requests: Records
    points: list[Point] = field(default_factory=list)
    end_seconds: float = 0.0
    replica_seconds: float = 0.0
    """Of pods from their creation to their removal: starting and draining ones hold their cards."""
    provisioned_seconds: float = 0.0
    """The integral of the scale target's replicas."""
    starts: int = 0
    half_request_seconds: float = 0.0


class Simulation:
    """One run of one load under one policy."""

    def __init__(self, tables: Tables, load: Load, policy: Policy, settings: FleetSettings) -> None:
        self._tables, self._policy, self._settings = tables, policy, settings
        half = float(tables[0]["half_request_seconds"])
        requests = new_requests(
            load.arrival_seconds + half, load.prompt_tokens, load.answer_tokens, load.cached_tokens
        )
        if len(load) and (load.prompt_tokens + load.answer_tokens).max() > tables[0]["pool_tokens"]:
            raise ValueError("a request that the cache can't hold alone")
        self._fleet: Fleet = new_fleet(requests, slots=2 * settings.max_replicas + 2, seed=settings.seed)
        self._pods: list[Pod] = []
        self._overlaps = bool(tables[0]["overlaps"])
        self._births = 0
        self._chance = Generator(settings.seed * 2 + 1)
        self._scraper = Scraper(
            pool_tokens=float(tables[0]["pool_tokens"]),
            half_block=float(tables[0]["half_block"]),
            faults=settings.faults,
        )
        self._sent, self._wanted, self._now = 0, 0, 0.0
        self._waits = deque(load.waits)
        self._load_end = load.seconds
        self._hung: set[Fault] = set()
        self._start_seconds: deque[float] = deque(maxlen=5)
        self.run = Run(load, policy.name, requests, half_request_seconds=half)

    def play(self) -> Run:
        """All of the load, and then until all is answered and the fleet is at its least, or the tail is over."""
        settings = self._settings
        first = settings.initial_replicas if settings.initial_replicas is not None else settings.min_replicas
        self._scale(first, now=0.0, at_once=True)
        events = [(0.0, 0), (self._policy.period_seconds, 1)]
        while events:
            at, kind = heapq.heappop(events)
            if at > self._load_end + settings.tail_seconds:
                break
            self._serve(at)
            if at >= self._load_end and self._is_over():
                break
            if kind == 0:
                self._scrape(at)
                heapq.heappush(events, (at + settings.scrape_seconds, 0))
            else:
                self._decide(at)
                heapq.heappush(events, (at + self._policy.period_seconds, 1))
        for pod in self._pods:
            self.run.replica_seconds += self._now - pod.created_seconds
        self.run.end_seconds = self._now
        return self.run

    def _is_over(self) -> bool:
        return self._is_answered(len(self.run.load)) and self._wanted <= self._settings.min_replicas

    def _is_answered(self, requests: int) -> bool:
        """So many were sent, and no engine has anything left of them."""
        engines = self._fleet.engines
        return self._sent >= requests and not (engines["running"].any() or engines["waiting"].any())

    @property
    def _limit(self) -> int:
        """Requests that may be sent before a stage's end is waited for."""
        return self._waits[0].request if self._waits else len(self.run.load)

    def _begin_stage(self) -> None:
        """If the stage before is answered: the next one's requests come so much later than without waiting."""
        if self._waits and self._is_answered(self._limit):
            request, begin = self._waits.popleft()
            late = self._now + STAGE_PAUSE_SECONDS - begin - (self._load_end - self.run.load.seconds)
            self._fleet.requests["ready"][request:] += late
            self._load_end += late

    def _serve(self, until: float) -> None:
        """Serve, with pods that become ready on the way."""
        while self._now < until:
            changes = [
                pod.ready_seconds if pod.phase is Phase.STARTING else pod.deadline_seconds
                for pod in self._pods
                if pod.phase is not Phase.READY
            ]
            stop = max(self._now, min([until, *changes]))
            if self._waits and self._sent == self._limit:
                stop = min(stop, math.floor(self._now) + 1.0)  # a generator that waits looks once a second
            fleet = self._fleet
            self._sent = advance(
                self._tables,
                fleet.requests[: self._limit],
                self._engines(),
                fleet.pages,
                fleet.endings,
                fleet.router,
                _ROUTING[self._settings.routing],
                self._now,
                stop,
                self._sent,
            )
            self.run.provisioned_seconds += self._wanted * (stop - self._now)
            self._now = stop
            for pod in self._pods:
                if pod.phase is Phase.STARTING and pod.ready_seconds <= stop:
                    self._begin(pod)
            self._end_drains()
            self._begin_stage()

    def _engines(self) -> Records:
        """Those of all slots up to the last one that has a pod: each request asks all of them."""
        return self._fleet.engines[: 1 + max((pod.slot for pod in self._pods), default=0)]

    def _begin(self, pod: Pod) -> None:
        pod.phase = Phase.READY
        if pod.ready_seconds > pod.created_seconds:
            self._start_seconds.append(pod.ready_seconds - pod.started_seconds)
        clear_slot(self._fleet, pod.slot)
        engine = self._fleet.engines[pod.slot : pod.slot + 1]
        engine["takes"] = engine["runs"] = 1
        for name in ("end", "end_before", "launched", "front_free", "told"):
            engine[name] = self._now

    def _scrape(self, now: float) -> None:
        for fault in self._settings.faults:
            if fault.kind is FaultKind.HANG and fault.holds(now) and fault not in self._hung:
                self._hung.add(fault)
                self._hang()
        ready = [pod for pod in self._pods if pod.phase is Phase.READY]
        engines = shown(self._fleet, [pod.slot for pod in ready], now, overlaps=self._overlaps)
        self._scraper.take(now, [pod.pod for pod in ready], engines)

    def _hang(self) -> None:
        for pod in self._pods:
            if pod.phase is Phase.READY:
                engine = self._fleet.engines[pod.slot : pod.slot + 1]
                engine["runs"], engine["next"] = 0, NEVER
                return

    def _decide(self, now: float) -> None:
        settings = self._settings
        ready = {pod.pod: pod.ready_seconds for pod in self._pods if pod.phase is Phase.READY}
        starting = [pod for pod in self._pods if pod.phase is Phase.STARTING]
        stuck = [pod.stuck for pod in starting if now < pod.stuck_until_seconds]
        jump = any(fault.kind is FaultKind.CLOCK_JUMP and fault.holds(now) for fault in settings.faults)
        arrived = min(int(np.searchsorted(self._fleet.requests["ready"], now)), self._limit)
        seen = Observation(
            now_seconds=now + (CLOCK_JUMP_SECONDS if jump else 0.0),
            metrics_seconds=now,
            provisioned=self._wanted,
            ready=len(ready),
            ready_since=ready,
            starting_since=tuple(pod.started_seconds for pod in starting if now >= pod.stuck_until_seconds),
            recent_start_seconds=tuple(self._start_seconds),
            unschedulable=stuck.count(FaultKind.UNSCHEDULABLE),
            failing=stuck.count(FaultKind.CRASH_LOOP),
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            held_requests=arrived - self._sent,
            history=self._scraper.history,
            answers=Answers(self._fleet.requests, self.run.half_request_seconds),
        )
        desired = self._policy.step(seen)
        bounded = min(max(desired, settings.min_replicas), settings.max_replicas)
        self.run.points.append(Point(now, self._wanted, len(ready), bounded))
        self._scale(bounded, now=now)

    def _scale(self, replicas: int, *, now: float, at_once: bool = False) -> None:
        active = [pod for pod in self._pods if pod.phase is not Phase.DRAINING]
        for _ in range(replicas - len(active)):
            self._create(now, at_once=at_once)
        if replicas < len(active):
            # As a ReplicaSet does: what isn't ready goes first, the youngest of it; then, by the pods' deletion cost,
            # what has least to do.
            order = sorted(active, key=lambda pod: (pod.phase is Phase.READY, self._load_of(pod), -pod.pod))
            for pod in order[: len(active) - replicas]:
                self._drain(pod, now)
        self._wanted = replicas

    def _load_of(self, pod: Pod) -> int:
        engine = self._fleet.engines[pod.slot]
        return int(engine["running"] + engine["waiting"])

    def _create(self, now: float, *, at_once: bool) -> None:
        taken = {pod.slot for pod in self._pods}
        slot = next((each for each in range(len(self._fleet.engines)) if each not in taken), None)
        if slot is None:
            return  # every card is held by pods that drain; the target stays unmet until the next decision
        pod = Pod(self._births, slot, now)
        self._births += 1
        self._pods.append(pod)
        if at_once:
            pod.ready_seconds = now
            self._begin(pod)
            return
        self.run.starts += 1
        for fault in self._settings.faults:
            if fault.kind in {FaultKind.UNSCHEDULABLE, FaultKind.CRASH_LOOP} and fault.holds(now):
                pod.stuck, pod.stuck_until_seconds = fault.kind, fault.at_seconds + fault.seconds
        jitter = self._settings.start_jitter
        pod.ready_seconds = pod.started_seconds + sum(
            seconds * (1.0 + jitter * (2.0 * self._chance.uniform() - 1.0))
            for _, seconds in self._settings.start_seconds
        )

    def _drain(self, pod: Pod, now: float) -> None:
        if pod.phase is Phase.STARTING:
            self._remove(pod, now)
            return
        pod.phase = Phase.DRAINING
        pod.deadline_seconds = now + self._settings.drain_seconds
        self._fleet.engines["takes"][pod.slot] = 0

    def _end_drains(self) -> None:
        for pod in [each for each in self._pods if each.phase is Phase.DRAINING]:
            engine = self._fleet.engines[pod.slot]
            if not (engine["running"] or engine["waiting"]):
                begin = pod.deadline_seconds - self._settings.drain_seconds
                self._remove(pod, max(begin, float(engine["told"])))
            elif self._now >= pod.deadline_seconds:
                self._remove(pod, self._now)

    def _remove(self, pod: Pod, now: float) -> None:
        """What it hasn't answered stays without an end: aborted."""
        self._pods.remove(pod)
        self.run.replica_seconds += now - pod.created_seconds
        clear_slot(self._fleet, pod.slot)


def simulate(tables: Tables, load: Load, policy: Policy, settings: FleetSettings) -> Run:
    """Play a load on a fleet of these engines under this policy. The same arguments give the same run."""
    return Simulation(tables, load, policy, settings).play()
