"""Speed that is expected of a plan at its workload, and what it is bound by.

A replica is looked at while it is full: as many requests run as the KV cache and max_num_seqs hold, and each that ends
lets the next one in. Per step `batch / output` prompts then come in, so

    TPOT = mean of the steps: decode steps, and those that carry a prompt's chunk
    TTFT = the step that is under way + the chunks of the prompt, each beside the running requests
    throughput = batch / TPOT

Waiting in a queue before that isn't in the TTFT: it depends on the arrival rate, and grows without end above
`requests_per_second`. The times of steps are those of perfmodel/speed.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmservice_operator.engines.versions import known_version
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.arrivals import Lengths, mean_length
from llmservice_operator.perfmodel.quantization import online_quantization, read_quantization
from llmservice_operator.perfmodel.speed import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    SpeedCase,
    SpeedModel,
)
from llmservice_operator.perfmodel.step_time import Chunk
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.types import Knobs, PlannedSpeed, SpeedFlags

TYPICAL = Lengths(input_p50=1020, input_p95=4083, output_p50=129, output_p95=451)
"""Lengths that are assumed where the workload says none: quantiles of the 19,366 conversations of the Azure LLM
inference trace of 2023 (Azure/AzurePublicDataset, AzureLLMInferenceTrace_conv)."""
SPREAD_INPUT = TYPICAL.input_p95 / TYPICAL.input_p50 if TYPICAL.input_p95 else 1.0
SPREAD_OUTPUT = TYPICAL.output_p95 / TYPICAL.output_p50 if TYPICAL.output_p95 else 1.0
"""p95 over p50 of those, where only one of the two is said."""
TPOT_TAIL = 1.3
"""p95 over the mean of TPOT while a replica is full: 1.06 measured with lengths all alike (H200, 36 requests/s), 1.13
to 1.41 in played loads with the lengths above (four models on H200, H100 and L4)."""
PROMPTS_TAIL = 2.2
"""The same of the time that prompts of others add: 1.2 to 2.2 in those loads, the most at 8 requests at once."""

MOST_CHUNKS = 64
"""Of one prompt, or of one step, that are timed one by one; beyond, more of the same. Pins may ask for millions."""
WORTH_MORE_CACHE = 1.1
"""The cache is the bound where twice of it would bring so many times the tokens per second."""
COMPUTE, BANDWIDTH, HOST, KV_CAPACITY = "Compute", "MemoryBandwidth", "Host", "KVCapacity"
"""What bounds a full replica."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The lengths that a prediction is for."""

    lengths: Lengths
    assumed: bool
    """Whether the workload says none of them."""

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt; not above p95, as a log-normal's would be whose quantiles lie very far apart."""
        return min(mean_length(self.lengths.input_p50, self.lengths.input_p95), self.long_prompt)

    @property
    def answer(self) -> float:
        """Mean tokens of an answer."""
        longest = self.lengths.output_p95 or self.lengths.output_p50
        return min(mean_length(self.lengths.output_p50, self.lengths.output_p95), longest)

    @property
    def context(self) -> float:
        """Mean tokens of a request while it runs."""
        return self.prompt + self.answer / 2

    @property
    def long_prompt(self) -> int:
        """p95 of the prompts."""
        return self.lengths.input_p95 or self.lengths.input_p50


def load_of(case: Case, context: int) -> Load:
    """The workload's lengths, with what it doesn't say filled in, cut so that a request fits the context."""
    workload = case.spec.workload
    said_in, said_out = workload.input_tokens, workload.output_tokens
    prompt = _pair(said_in.p50, said_in.p95, (TYPICAL.input_p50, TYPICAL.input_p95), SPREAD_INPUT)
    answer = _pair(said_out.p50, said_out.p95, (TYPICAL.output_p50, TYPICAL.output_p95), SPREAD_OUTPUT)
    # Halves of a context that is shorter than a typical request: there is no better guess.
    room_in, room_out = max(1, context // 2), max(1, context - context // 2)
    if prompt[1] + answer[1] > context:
        prompt, answer = _cut(prompt, room_in), _cut(answer, room_out)
    said = (said_in.p50, said_in.p95, said_out.p50, said_out.p95)
    lengths = Lengths(input_p50=prompt[0], input_p95=prompt[1], output_p50=answer[0], output_p95=answer[1])
    return Load(lengths=lengths, assumed=not any(said))


def _pair(
    p50: int | None, p95: int | None, typical: tuple[int, int | None], spread: float
) -> tuple[int, int]:
    if p50 is None and p95 is None:
        return typical[0], typical[1] or typical[0]
    if p50 is None:
        high = p95 or 1
        return max(1, round(high / spread)), high
    return p50, max(p50, p95) if p95 is not None else max(p50, round(p50 * spread))


def _cut(pair: tuple[int, int], room: int) -> tuple[int, int]:
    return min(pair[0], room), min(pair[1], room)


def speed_model(
    case: Case, candidate: Candidate, *, dtype: str, seqs: int, tokens: int, context: int
) -> SpeedModel:
    """Times of steps at these batch knobs on this candidate. The KV cache's size is the caller's to heed."""
    return SpeedModel(
        SpeedCase(
            model=case.model,
            quantization=case.quantization,
            accelerator=candidate.row,
            tensor_parallel_size=candidate.tensor_parallel_size,
            dtype=dtype,
            kv_cache_dtype=case.kv_cache_dtype,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            max_model_len=context,
            engine_version=case.version,
            enforce_eager=case.switches.enforce_eager,
        )
    )


def planned_speed_case(
    config: Mapping[str, Any],
    row: AcceleratorRow,
    knobs: Knobs,
    *,
    engine_version: str,
    kv_cache_tokens: int,
    flags: SpeedFlags,
) -> SpeedCase:
    """What the speed of an engine depends on that runs a plan, as the plan's own prediction had it.

    `config` is the model's config.json, as of the plan.
    """
    model = read_architecture(config)
    quantization = online_quantization(flags.quantization) or read_quantization(config)
    kv_cache_dtype = knobs.kv_cache_dtype
    if kv_cache_dtype == "auto":
        kv_cache_dtype = quantization.kv_cache_dtype or "auto"
    return SpeedCase(
        model=model,
        quantization=quantization,
        accelerator=row,
        tensor_parallel_size=knobs.tensor_parallel_size,
        dtype=flags.dtype or model.dtype,
        kv_cache_dtype=kv_cache_dtype,
        max_num_seqs=knobs.max_num_seqs,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        max_model_len=knobs.max_model_len,
        engine_version=known_version(engine_version).version,
        kv_cache_tokens=kv_cache_tokens,
        enforce_eager=flags.enforce_eager,
    )


def tpot_seconds(model: SpeedModel, load: Load, batch: int) -> float:
    """Mean time per output token of a request beside `batch - 1` others that end and begin at all times.

    Ends are independent of each other, so the prompts of a step are Poisson distributed, and a share of
    1 - exp(-mean) of the steps carries any.
    """
    decode = model.decode_seconds(batch, load.context)
    per_step = (batch - 1) * load.prompt / load.answer
    budget = max(1, model.case.max_num_batched_tokens - batch)
    unit = min(load.prompt, budget)
    share = -math.expm1(-per_step / unit)
    if share <= 0.0:
        return decode
    chunk = max(1, round(min(per_step / share, budget)))
    return (1.0 - share) * decode + share * _mixed_seconds(model, load, batch, chunk)


def tpot_p95_seconds(model: SpeedModel, load: Load, batch: int) -> float:
    """Time per output token of all but 5 of 100 requests: the unlucky ones meet more prompts of others."""
    mean, decode = tpot_seconds(model, load, batch), model.decode_seconds(batch, load.context)
    return min(mean * TPOT_TAIL, decode + (mean - decode) * PROMPTS_TAIL)


def ttft_seconds(model: SpeedModel, load: Load, batch: int, prompt: int) -> float:
    """Time to the first token of a prompt that comes while `batch` requests run: no queue before it."""
    running = model.decode_seconds(batch, load.context)
    budget = max(1, model.case.max_num_batched_tokens - batch)
    counted = min(prompt, MOST_CHUNKS * budget)
    busy, done = 0.0, 0
    while done < counted:
        size = min(budget, counted - done)
        chunk = Chunk(size, done, last=done + size >= prompt)
        busy += model.pace(model.timer.step(batch=batch, context=load.context, chunks=(chunk,)), batch)
        done += size
    alone = model.prefill_seconds(min(prompt, MOST_CHUNKS * model.case.max_num_batched_tokens))
    return max(running + busy * prompt / counted, alone)


def tokens_per_second(model: SpeedModel, load: Load, batch: int) -> float:
    """Output tokens per second of a full replica: of `batch` requests, or of the prompts that steps can carry."""
    budget = max(1, model.case.max_num_batched_tokens - batch)
    tpot = tpot_seconds(model, load, batch)
    admission = ttft_seconds(model, load, max(1, batch - 1), max(1, round(load.prompt)))
    rate = batch * load.answer / (admission + load.answer * tpot)
    return min(rate, budget / load.prompt * load.answer / tpot)


def _mixed_seconds(model: SpeedModel, load: Load, batch: int, chunk: int) -> float:
    """A step with as many prompts beside the running requests as come to `chunk` tokens."""
    prompt = max(1, round(load.prompt), chunk // MOST_CHUNKS)
    whole, rest = divmod(chunk, prompt)
    chunks = [Chunk(prompt, 0, last=True)] * whole + ([Chunk(rest, 0, last=False)] if rest else [])
    return model.pace(model.timer.step(batch=batch, context=load.context, chunks=chunks), batch)


def predict(model: SpeedModel, load: Load, *, batch: int, held: int, wanted: int) -> PlannedSpeed:
    """The prediction at `batch` requests at once; the cache holds `held`, and `wanted` are let in at most."""
    tpot = tpot_seconds(model, load, batch)
    rate = tokens_per_second(model, load, batch)
    decode = model.decode_seconds(batch, load.context)
    longest = MOST_CHUNKS * model.case.max_num_batched_tokens
    prefill_regime = model.regime(tokens=max(1, min(longest, round(load.prompt))))
    decode_regime = model.regime(batch=batch, context=load.context)
    mostly_prefill = decode < tpot / 2
    kind = _kind(prefill_regime if mostly_prefill else decode_regime)
    if held < wanted and tokens_per_second(model, load, min(wanted, 2 * held)) > WORTH_MORE_CACHE * rate:
        kind = KV_CAPACITY
    return PlannedSpeed(
        input_tokens=load.lengths.input_p50,
        input_p95_tokens=load.long_prompt,
        output_tokens=load.lengths.output_p50,
        assumed=load.assumed,
        batch=batch,
        ttft_seconds=ttft_seconds(model, load, batch, load.lengths.input_p50),
        ttft_p95_seconds=ttft_seconds(model, load, batch, load.long_prompt),
        tpot_seconds=tpot,
        tpot_p95_seconds=tpot_p95_seconds(model, load, batch),
        itl_seconds=decode,
        tokens_per_second=rate,
        requests_per_second=rate / load.answer,
        prefill_regime=prefill_regime,
        decode_regime=decode_regime,
        bottleneck=kind,
    )


def _kind(regime: str) -> str:
    if regime == COMPUTE_BOUND:
        return COMPUTE
    return BANDWIDTH if regime == MEMORY_BOUND else HOST
