"""The engine's continuous batching, event by event: who is scheduled in which step, and when its tokens come.

Follows vLLM's scheduler (v1/core/sched/scheduler.py): each step first gives one token to every decoding sequence, then
what is left of the token budget to prompts, in order of arrival, the last one in part; where the cache is full the
youngest sequence is pushed out and computed anew. With asynchronous scheduling a step is scheduled and launched while
the one before it runs, so that a new request waits for the rest of one step and for the whole next.

Stretches without arrivals, ends and prompts are taken at once: a step's time is nearly linear in the context.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from llmservice_operator.perfmodel.arrivals import Request
from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.perfmodel.step_time import Chunk, Known, StepTime

_CONTEXT_GRAIN = 32
"""Step times are kept for contexts in these steps (tokens): within 0.1 % of a step."""


LEAST_ANSWER_TOKENS = 32
"""Shorter answers have no time per token of their own: see Outcome.held_tpot_seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    ttft_seconds: float
    tpot_seconds: float
    """Mean time per token after the first; 0 for answers of one token."""
    end_seconds: float
    output_tokens: int

    @property
    def held_tpot_seconds(self) -> float:
        """What an objective for the time per token is held against.

        A short answer may take as long as one of LEAST_ANSWER_TOKENS: of a few tokens one that is late would decide.
        """
        gaps = max(0, self.output_tokens - 1)
        return self.tpot_seconds * gaps / max(gaps, LEAST_ANSWER_TOKENS - 1)


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request in the engine."""

    index: int
    ready_seconds: float
    """When the scheduler first sees it."""
    prompt: int
    """Tokens to compute before the next one is sampled; after a preemption the answer so far counts as prompt."""
    answer: int
    """Tokens to be sampled after that prompt."""
    computed: int = 0
    """Of the prompt."""
    first_token_seconds: float | None = None
    ends_at: int = 0
    """The step counter's value at which its answer is complete, once it decodes."""
    births: int = 0
    """How often it was pushed out: what an older entry of the heap is told by."""


class KeptSteps:
    """Times of an engine's steps, each worked out once for as long as this is kept."""

    def __init__(self, model: SpeedModel) -> None:
        self.model = model
        self._parts: Known = {}
        self._decoding: dict[tuple[int, int], StepTime] = {}

    def decoding(self, batch: int, context: float) -> StepTime:
        """Without prompts, at a context of about so many tokens."""
        key = (batch, int(context / _CONTEXT_GRAIN))
        found = self._decoding.get(key)
        if found is None:
            about = (key[1] + 0.5) * _CONTEXT_GRAIN
            found = self.model.timer.step(batch=batch, context=about, known=self._parts)
            self._decoding[key] = found
        return found

    def with_prompts(self, batch: int, context: float, chunks: Sequence[Chunk]) -> StepTime:
        """With these prompts or parts of them."""
        return self.model.timer.step(batch=batch, context=context, chunks=chunks, known=self._parts)


class Engine:
    """One replica that serves one load."""

    def __init__(self, model: SpeedModel, load: Sequence[Request], steps: "KeptSteps | None" = None) -> None:
        """The load is in order of arrival. `steps`: what engines of the same model have worked out before.

        Raises ValueError for a request that the cache can't hold alone.
        """
        self._model = model
        self._case, self._host = model.case, model.constants.host
        self._load = load
        self._outcomes: list[Outcome | None] = [None] * len(load)
        half = self._host.request_seconds / 2.0
        self._coming = deque(
            _Sequence(index, each.arrival_seconds + half, each.input_tokens, each.output_tokens)
            for index, each in enumerate(load)
        )
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._prefilling: list[_Sequence] = []
        self._ends: list[tuple[int, int, int, _Sequence]] = []
        self._steps = self._decoding = self._context_sum = 0
        self._end = self._end_before = self._launched = self._front_end_free = 0.0
        self._kept = steps or KeptSteps(model)
        self._pool = math.inf if self._case.kv_cache_tokens is None else self._case.kv_cache_tokens
        self.preemptions = self.rounds = 0
        longest = max((each.input_tokens + each.output_tokens for each in load), default=0)
        if longest > self._pool:
            raise ValueError(f"a request of {longest} tokens in a cache of {self._pool}")

    @property
    def served(self) -> bool:
        """Whether nothing of the load is left."""
        return not (self._coming or self._waiting or self._running)

    def run(self, most_rounds: float = math.inf) -> list[Outcome]:
        """Serve all of it, or what so many rounds serve (`rounds` says how many it took, a stretch of steps is one).

        Outcomes are in the load's order.
        """
        while not self.served and self.rounds < most_rounds:
            self.rounds += 1
            at = self._next_schedule_seconds()
            if not self._waiting and not self._running:
                at = max(at, self._coming[0].ready_seconds)
            while self._coming and self._coming[0].ready_seconds <= at:
                self._waiting.append(self._coming.popleft())
            self._advance(at)
        return [each for each in self._outcomes if each is not None]

    def _next_schedule_seconds(self) -> float:
        if not self._host.overlaps:
            return self._end
        # One rank runs in the scheduler's own process, which therefore waits for the launch.
        blocked = self._launched if self._case.tensor_parallel_size == 1 else 0.0
        return max(self._end_before, blocked)

    def _advance(self, at: float) -> None:
        """Schedule and run one step, or a stretch of like ones."""
        self._make_room()
        batch = self._decoding
        context = self._context_sum / batch if batch else 0.0
        chunks, complete = self._take_prompts(self._case.max_num_batched_tokens - batch)
        if chunks:
            self._run_once(at, self._kept.with_prompts(batch, context, chunks))
            count = 1
        else:
            count = self._run_stretch(at, batch, context)
        self._steps += count
        self._context_sum += count * batch
        told = self._tell(batch + len(complete))
        self._end_answers(told)
        for sequence in complete:
            self._begin_answer(sequence, told)

    def _run_once(self, at: float, step: StepTime) -> None:
        begin = max(at, self._launched)
        self._launched = begin + step.launch_seconds
        self._end_before, self._end = self._end, step.end(begin, self._end)

    def _run_stretch(self, at: float, batch: int, context: float) -> int:
        """Decode until an answer ends, a request may come in, or the cache is full; how many steps."""
        step = self._kept.decoding(batch, context)
        self._run_once(at, step)
        count = self._ends[0][0] - self._steps
        if self._pool < math.inf:
            count = min(count, max(1, int((self._pool - self._held()) / batch)))
        pace = self._model.pace(step, batch)
        if self._coming:
            count = min(count, max(1, math.ceil((self._coming[0].ready_seconds - self._end) / pace) + 1))
        if count > 1:
            pace = self._model.pace(self._kept.decoding(batch, context + count / 2.0), batch)
            self._end += (count - 1) * pace
            self._end_before = self._end - pace
            self._launched = max(self._launched, self._end_before)
        return count

    def _tell(self, tokens: int) -> float:
        """When the front end has handed on this step's tokens: it is one process, and may lag."""
        begin = max(self._end, self._front_end_free)
        self._front_end_free = begin + tokens * self._host.token_seconds
        return self._front_end_free

    def _held(self) -> int:
        """Tokens of the cache that are taken or promised to prompts in progress."""
        return self._context_sum + sum(each.prompt for each in self._prefilling)

    def _make_room(self) -> None:
        """Push out the youngest until each decoding sequence finds room for one more token."""
        while self._running and self._held() + self._decoding > self._pool:
            victim = self._running.pop()
            self.preemptions += 1
            if victim in self._prefilling:
                self._prefilling.remove(victim)
            else:
                left = victim.ends_at - self._steps
                given = victim.answer - left
                self._decoding -= 1
                self._context_sum -= victim.prompt + given
                victim.prompt, victim.answer = victim.prompt + given + 1, left
            victim.computed = 0
            victim.births += 1
            self._waiting.appendleft(victim)
        while self._ends and self._ends[0][2] != self._ends[0][3].births:
            heapq.heappop(self._ends)

    def _take_prompts(self, budget: int) -> tuple[list[Chunk], list[_Sequence]]:
        """Chunks of this step, and the sequences whose prompt is complete with it."""
        chunks: list[Chunk] = []
        for sequence in self._prefilling:
            budget -= self._take_chunk(sequence, budget, chunks)
        while self._waiting and budget > 0 and len(self._running) < self._case.max_num_seqs:
            sequence = self._waiting[0]
            if self._held() + self._decoding + sequence.prompt > self._pool:
                break
            self._running.append(self._waiting.popleft())
            self._prefilling.append(sequence)
            budget -= self._take_chunk(sequence, budget, chunks)
        complete = [each for each in self._prefilling if each.computed == each.prompt]
        self._prefilling = [each for each in self._prefilling if each.computed < each.prompt]
        return chunks, complete

    @staticmethod
    def _take_chunk(sequence: _Sequence, budget: int, chunks: list[Chunk]) -> int:
        size = min(budget, sequence.prompt - sequence.computed)
        if size > 0:
            chunks.append(Chunk(size, sequence.computed, sequence.computed + size == sequence.prompt))
            sequence.computed += size
        return size

    def _begin_answer(self, sequence: _Sequence, told: float) -> None:
        if sequence.first_token_seconds is None:
            sequence.first_token_seconds = told
        sequence.answer -= 1
        if not sequence.answer:
            self._finish(sequence, told)
            return
        sequence.ends_at = self._steps + sequence.answer
        self._decoding += 1
        self._context_sum += sequence.prompt
        heapq.heappush(self._ends, (sequence.ends_at, sequence.index, sequence.births, sequence))

    def _end_answers(self, told: float) -> None:
        while self._ends and self._ends[0][0] <= self._steps:
            _, _, births, sequence = heapq.heappop(self._ends)
            if births == sequence.births:
                self._decoding -= 1
                self._context_sum -= sequence.prompt + sequence.answer
                self._finish(sequence, told)

    def _finish(self, sequence: _Sequence, told: float) -> None:
        self._running.remove(sequence)
        half = self._host.request_seconds / 2.0
        request = self._load[sequence.index]
        first = told if sequence.first_token_seconds is None else sequence.first_token_seconds
        gaps = request.output_tokens - 1
        self._outcomes[sequence.index] = Outcome(
            ttft_seconds=first + half - request.arrival_seconds,
            tpot_seconds=(told - first) / gaps if gaps else 0.0,
            end_seconds=told + half,
            output_tokens=request.output_tokens,
        )
