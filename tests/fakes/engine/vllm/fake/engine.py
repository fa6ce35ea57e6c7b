"""The engine core: one step after another, requests in a batch, tokens out. Times are the performance parameters'."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from vllm.fake.faults import Faults
from vllm.fake.metrics import Metrics
from vllm.fake.parameters import Parameters
from vllm.fake.steps import DEFAULT_TOKEN_BUDGET, budget_left, compute_step

_MIN_STEP_SECONDS = 0.0005


@dataclass(eq=False)
class Request:
    """One sequence. `output` receives True for each token and None at the end."""

    prompt_tokens: int
    max_tokens: int
    stop_after: int | None  # tokens after which the answer is complete; None: only max_tokens ends it
    arrived: float
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    generated: int = 0
    computed: int = 0  # of the prompt, where steps are computed one by one
    prefilled: bool = False
    finish_reason: str | None = None
    output: asyncio.Queue[bool | None] = field(default_factory=asyncio.Queue)

    @property
    def kv_tokens(self) -> int:
        return self.prompt_tokens + self.generated

    @property
    def kv_tokens_at_end(self) -> int:
        """The fake knows how long its answers get, so it admits what fits and never preempts."""
        return self.prompt_tokens + min(self.max_tokens, self.stop_after or self.max_tokens)


class EngineDeadError(Exception):
    """The engine core is gone."""


class Engine:
    """Admits while a slot and KV room are free, first come first served; makes one token a step for each running."""

    def __init__(
        self,
        parameters: Parameters,
        faults: Faults,
        metrics: Metrics,
        *,
        max_num_seqs: int,
        kv_cache_tokens: int,
        token_budget: int | None = None,
        counts_bytes: bool = True,
    ) -> None:
        self._parameters, self._metrics = parameters, metrics
        self._token_budget = token_budget or DEFAULT_TOKEN_BUDGET
        self._batches = parameters.step_seconds > 0
        self._counts_bytes = counts_bytes
        self.faults = faults
        self._max_num_seqs, self._kv_cache_tokens = max_num_seqs, kv_cache_tokens
        self._waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._work, self._stepped = asyncio.Event(), asyncio.Event()
        self.finished = itertools.count(1)
        self.finished_requests = 0
        self.total_tokens = 0
        self.told_running = self.told_waiting = 0  # the gauges, which move when a step ends
        self.rejecting = False
        self.dead = False
        self.on_progress: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        used = sum(request.kv_tokens for request in self.running)
        return min(1.0, used / self._kv_cache_tokens) if self._kv_cache_tokens else 0.0

    def submit(self, *, prompt_tokens: int, max_tokens: int, stop_after: int | None) -> Request:
        """Queue a request.

        Raises:
            EngineDeadError: when the core is dead or is ending.

        """
        if self.dead or self.rejecting:
            raise EngineDeadError
        request = Request(prompt_tokens, max_tokens, stop_after, time.monotonic())
        self._waiting.append(request)
        self._work.set()
        return request

    async def tokens(self, request: Request) -> AsyncIterator[int]:
        """The index of each token as it comes."""
        for index in itertools.count():
            if await request.output.get() is None:
                return
            yield index

    def abort(self, request: Request) -> None:
        """The client went away."""
        if request.finish_reason is None:
            self._finish(request, "abort")

    def abort_all(self) -> None:
        """Stop making tokens; the streams are left without an end, as vLLM does with --shutdown-timeout 0."""
        for request in [*self.running, *self._waiting]:
            self._metrics.labelled["request_success"]["abort"] += 1
            request.finish_reason = "abort"
        self.running.clear()
        self._waiting.clear()
        self._tell()

    def die(self) -> None:
        """The core is dead: every request ends in an error."""
        self.dead = True
        for request in [*self.running, *self._waiting]:
            self._finish(request, "error")

    async def next_step(self, timeout_seconds: float) -> None:
        """Wait for the end of a step, that long at most."""
        self._stepped.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stepped.wait(), timeout_seconds)

    async def run(self) -> None:
        """Steps for ever."""
        end = time.monotonic()
        while True:
            if not self.running and not self._waiting:
                self._work.clear()
                await self._work.wait()
                end = time.monotonic()
            self._admit()
            if self._batches:
                # From the end of the step before, not from now: what this process itself takes isn't the engine's.
                end += compute_step(self.running, self._parameters, self._token_budget)
                await asyncio.sleep(max(0.0, end - time.monotonic()))
            else:
                await asyncio.sleep(self._next_step_seconds())
                end = time.monotonic()
            if "hang" in self.faults and self.total_tokens >= self.faults.number("hang", "tokens", 1):
                await asyncio.Event().wait()
            self._step(end)
            self._tell()
            self._stepped.set()

    def _tell(self) -> None:
        self.told_running, self.told_waiting = len(self.running), len(self._waiting)

    def _admit(self) -> None:
        now = time.monotonic()
        reserved = sum(request.kv_tokens_at_end for request in self.running)
        while self._waiting and len(self.running) < self._max_num_seqs:
            request = self._waiting[0]
            need = request.kv_tokens_at_end
            if self.running and reserved + need > self._kv_cache_tokens:
                return
            if self._batches and budget_left(self.running, self._token_budget) < 1:
                return
            reserved += need
            request.scheduled = now
            self.running.append(self._waiting.popleft())

    def _prefill_seconds(self, request: Request) -> float:
        rate = self._parameters.prefill_tokens_per_second
        return self._parameters.ttft_seconds + (request.prompt_tokens / rate if rate else 0.0)

    def _next_step_seconds(self) -> float:
        decoding = sum(request.prefilled for request in self.running)
        now = time.monotonic()
        due = [
            request.scheduled + self._prefill_seconds(request) - now
            for request in self.running
            if not request.prefilled
        ]
        if decoding:
            due.append(self._parameters.tpot_seconds + self._parameters.tpot_seconds_per_running * decoding)
        return max(_MIN_STEP_SECONDS, min(due, default=_MIN_STEP_SECONDS))

    def _step(self, now: float) -> None:
        made = computed = 0
        for request in list(self.running):
            if request.finish_reason is not None:
                continue
            if not request.prefilled:
                if not self._is_computed(request, now):
                    continue
                computed += self._prefill(request, now)
            else:
                self._metrics.observe("inter_token_latency_seconds", now - request.last_token)
            request.last_token = now
            request.generated += 1
            made += 1
            request.output.put_nowait(True)
            if request.generated >= request.max_tokens:
                self._finish(request, "length")
            elif request.stop_after is not None and request.generated >= request.stop_after:
                self._finish(request, "stop")
        self._count_step(made, computed)

    def _is_computed(self, request: Request, now: float) -> bool:
        if self._batches:
            return request.computed >= request.prompt_tokens
        return now + _MIN_STEP_SECONDS >= request.scheduled + self._prefill_seconds(request)

    def _prefill(self, request: Request, now: float) -> int:
        request.prefilled, request.first_token = True, now
        self._metrics.observe("time_to_first_token_seconds", max(0.0, now - request.arrived))
        self._metrics.counters["prompt_tokens"] += request.prompt_tokens
        self._metrics.counters["prefix_cache_queries"] += request.prompt_tokens
        self._metrics.labelled["prompt_tokens_by_source"]["local_compute"] += request.prompt_tokens
        return request.prompt_tokens

    def _count_step(self, made: int, computed: int) -> None:
        if not made:
            return
        self.total_tokens += made
        self._metrics.counters["generation_tokens"] += made
        self._metrics.observe("iteration_tokens_total", made + computed)
        if self._counts_bytes:
            flops = self._parameters.flops_per_token * (made + computed)
            self._metrics.counters["estimated_read_bytes_per_gpu"] += self._parameters.read_bytes_per_step
            self._metrics.counters["estimated_flops_per_gpu"] += flops
        self.on_progress()

    def _finish(self, request: Request, reason: str) -> None:
        request.finish_reason = reason
        if request in self.running:
            self.running.remove(request)
        if request in self._waiting:
            self._waiting.remove(request)
        request.output.put_nowait(None)
        self._tell()
        self.finished_requests += 1
        self._metrics.labelled["request_success"][reason] += 1
        if request.prefilled:
            self._observe_finished(request)
        self.on_progress()

    def _observe_finished(self, request: Request) -> None:
        now, metrics = time.monotonic(), self._metrics
        decode = request.last_token - request.first_token
        metrics.observe("e2e_request_latency_seconds", now - request.arrived)
        metrics.observe("request_queue_time_seconds", request.scheduled - request.arrived)
        metrics.observe("request_inference_time_seconds", request.last_token - request.scheduled)
        metrics.observe("request_prefill_time_seconds", request.first_token - request.scheduled)
        metrics.observe("request_decode_time_seconds", decode)
        per_token = decode / (request.generated - 1) if request.generated > 1 else 0.0
        metrics.observe("request_time_per_output_token_seconds", per_token)
        metrics.observe("request_prompt_tokens", request.prompt_tokens)
        metrics.observe("request_generation_tokens", request.generated)
        metrics.observe("request_max_num_generation_tokens", request.generated)
        metrics.observe("request_params_n", 1)
        metrics.observe("request_params_max_tokens", request.max_tokens)
        metrics.observe("request_prefill_kv_computed_tokens", request.prompt_tokens)
        metrics.observe("request_num_preemptions", 0)
