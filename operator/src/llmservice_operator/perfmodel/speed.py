"""Speed of one engine replica: TTFT and ITL from shapes, the card's datasheet and a handful of constants."""

from dataclasses import dataclass

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.capture import Capture, capture_rule
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.roofline import rates
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.speed_constants import SpeedConstants, speed_constants
from llmservice_operator.perfmodel.step_time import Chunk, StepTime, StepTimer
from llmservice_operator.perfmodel.work import work_of

COMPUTE_BOUND, MEMORY_BOUND, OVERHEAD_BOUND = "compute-bound", "memory-bound", "overhead-bound"
_MOST_CHUNKS = 1_000
"""Chunks of one prompt that are timed one by one; of more, each stands for its neighbours: within 0.2 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCase:
    """What speed depends on."""

    model: Architecture
    quantization: Quantization
    accelerator: AcceleratorRow
    tensor_parallel_size: int
    dtype: str
    kv_cache_dtype: str
    """Resolved: a checkpoint's own wish counts as given."""
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    engine_version: tuple[int, int, int]
    kv_cache_tokens: int | None = None
    """Tokens that the cache holds; None: as many as asked for."""
    enforce_eager: bool = False
    largest_graph_tokens: int | None = None
    """Of the largest CUDA graph, where flags say; None: as the engine captures by itself."""


class SpeedModel:
    """Answers for one case. All times in seconds."""

    def __init__(self, case: SpeedCase, *, constants: SpeedConstants | None = None) -> None:
        """`constants` stands in for those of the card's kind and the engine's version (a fit tries others)."""
        self.case = case
        self.constants = constants or speed_constants(case.accelerator, case.engine_version)
        self.timer = StepTimer(
            work=work_of(
                case.model,
                case.quantization,
                dtype=case.dtype,
                kv_cache_dtype=case.kv_cache_dtype,
                tensor_parallel_size=case.tensor_parallel_size,
            ),
            rate=rates(case.accelerator, self.constants, dtype=case.dtype),
            constants=self.constants,
            capture=Capture(largest_tokens=_largest_graph(case), max_num_seqs=case.max_num_seqs),
            ranks=case.tensor_parallel_size,
        )

    def prefill_seconds(self, tokens: int, *, cached: int = 0) -> float:
        """TTFT of one request of `tokens` new tokens on an idle engine, after `cached` tokens that are in the cache.

        The prompt goes in chunks of max_num_batched_tokens; the host prepares one while the card works on the one
        before it.
        """
        host = self.constants.host
        begin = end = 0.0
        steps, each_stands_for = self._chunk_steps(tokens, cached)
        for step in steps:
            if not host.overlaps:
                begin = end
            before = end
            end, begin = step.end(begin, end), begin + step.launch_seconds
            others = (each_stands_for - 1) * (end - before)
            end, begin = end + others, begin + others
        return host.request_seconds + end

    def decode_seconds(self, batch: int, context: float) -> float:
        """ITL of `batch` sequences of this mean context (tokens), no prompt among them."""
        return self.pace(self.timer.step(batch=batch, context=context), batch)

    def pace(self, step: StepTime, batch: int) -> float:
        """Seconds from one such step to the next in a steady stream of them."""
        host = self.constants.host
        if not host.overlaps:
            return max(step.end(0.0, 0.0), host.token_seconds * batch)
        return max(step.device.seconds, step.launch_seconds, host.token_seconds * batch)

    def regime(self, *, tokens: int | None = None, batch: int | None = None, context: float = 0) -> str:
        """What bounds a prefill of `tokens`, or a decode step of `batch` sequences."""
        steps = (
            self._chunk_steps(tokens, 0)[0]
            if tokens is not None
            else [self.timer.step(batch=batch or 1, context=context)]
        )
        launch = sum(step.launch_seconds for step in steps)
        overhead = sum(step.device.overhead_seconds for step in steps)
        busy = sum(step.device.busy_seconds for step in steps)
        if launch > busy + overhead or overhead > busy:
            return OVERHEAD_BOUND
        compute = sum(step.device.compute_seconds for step in steps)
        memory = sum(step.device.memory_seconds for step in steps)
        return COMPUTE_BOUND if compute > memory else MEMORY_BOUND

    def ridge_point_flops_per_byte(self) -> float:
        """Operations per byte at which the card's compute and memory take equally long, by its datasheet."""
        row, dense = self.case.accelerator, self.timer.work.dense
        is_narrow = dense.narrow_elements > dense.wide_elements and row.fp8_flops_per_second is not None
        flops = row.fp8_flops_per_second if is_narrow else row.bf16_flops_per_second
        return (flops or row.bf16_flops_per_second) / row.memory_bandwidth_bytes_per_second

    def saturated_tokens_per_second(self, input_tokens: int, output_tokens: int) -> float:
        """Output tokens per second with requests always waiting.

        A cycle: one step takes as much of prompts as the token budget leaves, then steps decode until as many
        requests have ended as it let in.
        """
        batch = self.largest_batch(input_tokens + output_tokens / 2)
        if batch < 1:
            return 0.0
        context = input_tokens + output_tokens / 2
        budget = max(1, min(self.case.max_num_batched_tokens - batch, input_tokens * batch))
        decode_steps = budget * output_tokens / (input_tokens * batch)
        prompt_tokens = budget if decode_steps >= 1 else max(1, round(input_tokens * batch / output_tokens))
        ended = prompt_tokens / input_tokens
        chunks = self._packed(prompt_tokens, input_tokens)
        mixed = self.pace(self.timer.step(batch=batch, context=context, chunks=chunks), batch)
        cycle = mixed + max(0.0, decode_steps - 1) * self.decode_seconds(batch, context)
        return ended * output_tokens / cycle

    def largest_batch(self, context: float) -> int:
        """Sequences of this mean context that the cache and max_num_seqs hold at once."""
        if self.case.kv_cache_tokens is None:
            return self.case.max_num_seqs
        return min(self.case.max_num_seqs, int(self.case.kv_cache_tokens / max(1.0, context)))

    def largest_batch_within(self, itl_seconds: float, context: float) -> int:
        """The largest batch, held by the cache and max_num_seqs, whose ITL is within the bound; 0: not even one."""
        low, high = 0, self.largest_batch(context)
        while low < high:
            middle = (low + high + 1) // 2
            if self.decode_seconds(middle, context) <= itl_seconds:
                low = middle
            else:
                high = middle - 1
        return low

    def _chunk_steps(self, tokens: int, cached: int) -> tuple[list[StepTime], int]:
        """The steps of a prompt's chunks, and how many chunks each stands for: one, unless they are very many."""
        tokens = max(1, tokens)
        budget = self.case.max_num_batched_tokens
        stands_for = max(1, -(-tokens // (budget * _MOST_CHUNKS)))
        ahead = (stands_for - 1) // 2 * budget
        steps = []
        for done in range(0, tokens, budget * stands_for):
            size = min(budget, tokens - done)
            chunk = Chunk(size, cached + done + ahead, last=done + budget * stands_for >= tokens)
            steps.append(self.timer.step(batch=0, context=0.0, chunks=(chunk,)))
        return steps, stands_for

    @staticmethod
    def _packed(prompt_tokens: int, input_tokens: int) -> list[Chunk]:
        """A step's share of prompts: whole ones, and the begin of one more."""
        whole, rest = divmod(prompt_tokens, input_tokens)
        chunks = [Chunk(input_tokens, 0, last=True)] * whole
        return [*chunks, Chunk(rest, 0, last=False)] if rest else chunks


def _largest_graph(case: SpeedCase) -> int:
    """Tokens of the largest CUDA graph; 0: there is none."""
    if case.enforce_eager or case.accelerator.is_cpu:
        return 0
    if case.largest_graph_tokens is not None:
        return case.largest_graph_tokens
    rule = capture_rule(
        case.quantization,
        engine_version=case.engine_version,
        compute_capability=case.accelerator.compute_capability,
    )
    return rule.largest_tokens(
        max_num_seqs=case.max_num_seqs, max_num_batched_tokens=case.max_num_batched_tokens
    )
