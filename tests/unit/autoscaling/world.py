"""A small world for closed loops: replicas with a prompt queue and a batch, engines' pages, starts that take time.

Time goes in steps of half a second. A prompt takes its tokens over the prefill rate, one at a time; a batch of b
answers gets a token each every `base + slope x b` seconds, longer while prompts are worked on. No more is claimed than
that it saturates as engines do: flat, then at once.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.state import ScalerState, read_state
from llmservice_operator.engines.metric_names import Series
from unit.autoscaling.engines import FakeEngine

STEP = 0.5
PERIOD = 5.0
BEGIN = 1_790_000_000.0
INPUT_TOKENS, OUTPUT_TOKENS = 4000, 1000
MIX = LengthMix(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
OBJECTIVES = Objectives(ttft_p95_seconds=3.0, tpot_p95_seconds=0.1)


@dataclass(frozen=True)
class Speed:
    """A replica's speed."""

    prefill_tokens_per_second: float = 12_000.0
    base_seconds: float = 0.015
    slope_seconds: float = 0.0004
    most_sequences: int = 256


class Replica:
    """One engine."""

    def __init__(self, name: str, created: float, ready_at: float, speed: Speed) -> None:
        self.name, self.created, self.ready_at, self.speed = name, created, ready_at, speed
        self.engine = FakeEngine(started_at=created)
        self.waiting: deque[float] = deque()
        self.running: deque[tuple[float, float, float]] = deque()
        """(tokens at which it ends, arrival, first token)"""
        self._tokens = 0.0
        self._prefill_left = 0.0
        self.is_hung = False

    @property
    def work(self) -> int:
        return len(self.waiting) + len(self.running)

    def step(self, now: float) -> list[tuple[float, float]]:
        """Half a second of work; (TTFT, TPOT) of those that ended."""
        if self.is_hung:
            return []
        budget, busy = STEP, 0.0
        while self.waiting and budget > 0 and len(self.running) < self.speed.most_sequences:
            if self._prefill_left <= 0:
                self._prefill_left = INPUT_TOKENS / self.speed.prefill_tokens_per_second
            used = min(budget, self._prefill_left)
            self._prefill_left -= used
            budget -= used
            busy += used
            if self._prefill_left <= 1e-9:
                arrival = self.waiting.popleft()
                first = max(arrival, now + STEP - budget)
                self.running.append((self._tokens + OUTPUT_TOKENS, arrival, first))
                self.engine.histograms[Series.TTFT].add(first - arrival)
                self.engine.counters[Series.PROMPT_TOKENS] += INPUT_TOKENS
                self.engine.counters[Series.PREFIX_QUERIES] += INPUT_TOKENS
        return self._decode(now, busy)

    def _decode(self, now: float, busy: float) -> list[tuple[float, float]]:
        batch = len(self.running)
        if not batch:
            return []
        itl = (self.speed.base_seconds + self.speed.slope_seconds * batch) * (1 + busy / STEP)
        tokens = STEP / itl
        self._tokens += tokens
        self.engine.counters[Series.GENERATION_TOKENS] += tokens * batch
        self.engine.counters[Series.STEPS] += tokens
        self.engine.histograms[Series.ITL].add(itl, tokens * batch)
        ended = []
        while self.running and self.running[0][0] <= self._tokens:
            _, arrival, first = self.running.popleft()
            tpot = max(itl, (now + STEP - first) / OUTPUT_TOKENS)
            ended.append((first - arrival, tpot))
            self.engine.counters[Series.FINISHED] += 1
            self.engine.histograms[Series.TPOT].add(tpot)
            self.engine.histograms[Series.INPUT_LENGTH].add(INPUT_TOKENS)
            self.engine.histograms[Series.OUTPUT_LENGTH].add(OUTPUT_TOKENS)
        return ended

    def show(self) -> None:
        """Bring the gauges up to date."""
        self.engine.running, self.engine.waiting = len(self.running), len(self.waiting)
        self.engine.kv_use = min(1.0, len(self.running) / self.speed.most_sequences)


@dataclass(frozen=True)
class FixedCapacity:
    """A model that is told its answer."""

    requests_per_second: float
    unreachable: str = ""

    def capacity(self, mix: LengthMix) -> Capacity:
        return Capacity(requests_per_second=self.requests_per_second, unreachable=self.unreachable)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        return None

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        return None


@dataclass
class Result:
    """What a run gave."""

    ended: list[tuple[float, float, float]] = field(default_factory=list)
    """(arrival, TTFT, TPOT)"""
    replica_seconds: float = 0.0
    seconds: float = 0.0
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    unfinished: int = 0

    @property
    def attainment(self) -> float:
        kept = sum(ttft <= 3.0 and tpot <= 0.1 for _, ttft, tpot in self.ended)
        return kept / max(1, len(self.ended) + self.unfinished)

    @property
    def mean_replicas(self) -> float:
        return self.replica_seconds / self.seconds

    @property
    def reversals(self) -> int:
        """Changes of direction."""
        signs = [
            math.copysign(1, decision.desired - decision.current)
            for _, decision in self.decisions
            if decision.desired != decision.current
        ]
        return sum(before != after for before, after in pairwise(signs))

    @property
    def lowest(self) -> int:
        return min(decision.desired for _, decision in self.decisions)


class World:
    """A service under a load, scaled by `decide`."""

    def __init__(
        self,
        *,
        replicas: int,
        model: FixedCapacity,
        max_replicas: int = 8,
        min_replicas: int = 1,
        start_seconds: float = 120.0,
        planned_start_seconds: float | None = None,
        speed: Speed = Speed(),
        seed: int = 1,
    ) -> None:
        self.random = random.Random(seed)
        self.now = BEGIN
        self.speed, self.start_seconds = speed, start_seconds
        self.replicas: list[Replica] = []
        self.gone: list[Replica] = []
        self._number = 0
        self.recent_starts: list[float] = []
        self.inputs = Inputs(
            signals=ServiceObserver().signals({}, self.now),
            fleet=Fleet(
                wanted=replicas,
                ready=replicas,
                planned_start_seconds=planned_start_seconds or start_seconds,
            ),
            capacity=model,
            expected_mix=MIX,
            objectives=OBJECTIVES,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
        )
        self.observer = ServiceObserver()
        self.state = ScalerState()
        self.wanted = replicas
        for _ in range(replicas):
            self._start(ready_at=self.now - 600)
        self.result = Result()
        self.scraped: Callable[[Replica], bool] = lambda replica: True
        self.clock_offset = 0.0
        self._due = self.now

    @property
    def ready(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.ready_at <= self.now]

    def run(self, seconds: float, rate: Callable[[float], float] | float) -> Result:
        """Let time pass under this load: requests a second, or a function of the seconds since the begin."""
        end = self.now + seconds
        while self.now < end:
            per_second = rate(self.now - BEGIN) if callable(rate) else rate
            self._arrive(per_second)
            for replica in [*self.ready, *self.gone]:
                for ttft, tpot in replica.step(self.now):
                    self.result.ended.append((self.now, ttft, tpot))
            self.now += STEP
            self.result.replica_seconds += STEP * len(self.replicas)
            self.result.seconds += STEP
            if self.now >= self._due:
                self._due = self.now + PERIOD
                self.tick()
        self.result.unfinished = sum(len(replica.waiting) for replica in self.replicas)
        return self.result

    def tick(self) -> Decision:
        """One look and one decision, carried out."""
        clock = self.now + self.clock_offset
        for replica in self.ready:
            if self.scraped(replica):
                replica.show()
                self.observer.record(replica.name, replica.engine.page(), at=clock)
        ready = {replica.name: replica.ready_at + self.clock_offset for replica in self.ready}
        signals = self.observer.signals(ready, clock, Context(ttft_p95_seconds=3.0, tpot_p95_seconds=0.1))
        fleet = replace(
            self.inputs.fleet,
            wanted=self.wanted,
            ready=len(ready),
            starting=tuple(
                replica.created + self.clock_offset
                for replica in self.replicas
                if replica.ready_at > self.now
            ),
            recent_starts=tuple(
                replica.ready_at - replica.created for replica in self.ready if replica.created >= BEGIN
            ),
        )
        decision = decide(replace(self.inputs, signals=signals, fleet=fleet), self.state, clock)
        self.state = read_state(decision.state.to_json())
        self.result.decisions.append((self.now, decision))
        self._carry_out(decision.desired)
        return decision

    def restart_operator(self) -> None:
        """All memory is gone but the state, which is a minute old at most."""
        self.observer = ServiceObserver()

    def _carry_out(self, desired: int) -> None:
        self.wanted = desired
        while len(self.replicas) < desired:
            self._start(ready_at=self.now + self.start_seconds * self.random.uniform(0.9, 1.1))
        while len(self.replicas) > desired:
            starting = [replica for replica in self.replicas if replica.ready_at > self.now]
            victim = starting[-1] if starting else min(self.replicas, key=lambda replica: replica.work)
            self.replicas.remove(victim)
            victim.waiting, moved = deque(), victim.waiting  # a drain lets what runs end
            for arrival in moved:
                self._route().waiting.append(arrival)
            self.gone.append(victim)

    def _start(self, ready_at: float) -> None:
        self._number += 1
        created = self.now if ready_at > self.now else ready_at - 120
        self.replicas.append(Replica(f"r{self._number}", created, ready_at, self.speed))

    def _route(self) -> Replica:
        return min(self.ready, key=lambda replica: (replica.work, replica.name))

    def _arrive(self, rate: float) -> None:
        left = rate * STEP
        # Poisson by exponential gaps within the step.
        time = self.random.expovariate(1.0)
        while time < left:
            self._route().waiting.append(self.now + STEP * time / left)
            time += self.random.expovariate(1.0)
