"""The speed part of an estimate: points that were asked for, each with what bounds it."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.open_loop import Lengths, open_loop
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_types import Arrival, EstimateInputs, Outcome, Speed


def estimate_speed(
    inputs: EstimateInputs, model: Architecture, settings: Settings, outcome: Outcome
) -> Speed:
    """Times of the prompts, steps and arrivals that are asked for.

    Raises InvalidInputError for a card of which only the memory is known.
    """
    card = settings.card
    if not (card.memory_bandwidth_bytes_per_second and card.bf16_flops_per_second):
        raise InvalidInputError(
            f"speed on {card.name}: its bandwidth and FLOP/s aren't known; name a row by --accelerator, or write one "
            "and give it by --catalogue"
        )
    speed = SpeedModel(_case(model, settings, outcome))
    return Speed(
        document={
            "prefill": [_prefill(speed, each) for each in inputs.prefill],
            "decode": [_decode(speed, batch, context) for batch, context in inputs.decode],
            "open_loop": _open_loop(speed, inputs.arrival, outcome) if inputs.arrival else None,
            "ridge_point_flops_per_byte": speed.ridge_point_flops_per_byte(),
        },
        warnings=(*_left_out(settings), *_beyond(inputs, settings, outcome)),
    )


def _case(model: Architecture, settings: Settings, outcome: Outcome) -> SpeedCase:
    return SpeedCase(
        model=model,
        quantization=settings.quantization,
        accelerator=settings.card,
        tensor_parallel_size=settings.parallel.tensor,
        dtype=settings.dtype,
        kv_cache_dtype=settings.kv_cache_dtype,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=max(1, outcome.max_model_len),
        engine_version=settings.version,
        kv_cache_tokens=outcome.kv_cache["tokens"],
        enforce_eager=settings.enforce_eager,
        largest_graph_tokens=settings.captures.largest,
    )


def _prefill(speed: SpeedModel, tokens: int) -> dict[str, Any]:
    return {
        "tokens": tokens,
        "ttft_seconds": speed.prefill_seconds(tokens),
        "regime": speed.regime(tokens=tokens),
    }


def _decode(speed: SpeedModel, batch: int, context: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "context": context,
        "itl_seconds": speed.decode_seconds(batch, context),
        "regime": speed.regime(batch=batch, context=context),
    }


def _open_loop(speed: SpeedModel, arrival: Arrival, outcome: Outcome) -> dict[str, Any] | None:
    """Quantiles under this load; None where the pool can't hold one such request."""
    if arrival.input_p50 + arrival.output_p50 > min(outcome.max_model_len, outcome.kv_cache["tokens"]):
        return None
    lengths = Lengths(input_p50=arrival.input_p50, output_p50=arrival.output_p50)
    played = open_loop(speed, rate_per_second=arrival.rate_per_second, lengths=lengths)
    values = asdict(played)
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _left_out(settings: Settings) -> Iterator[str]:
    """What the times don't count."""
    if settings.card.is_cpu:
        yield "speed: rough on a CPU, whose figures are those of no particular machine (operator/docs/speed.md)"
    if settings.parallel.pipeline > 1:
        yield "speed: a pipeline's stages are timed one after the other; that they overlap isn't counted"
    if settings.parallel.data > 1:
        yield f"speed: of one of {settings.parallel.data} engines"
    if settings.speculation.method:
        yield "speed: without speculation; how many drafted tokens are taken isn't known"


def _beyond(inputs: EstimateInputs, settings: Settings, outcome: Outcome) -> Iterator[str]:
    """Points that this engine would never run."""
    length, pool = outcome.max_model_len, outcome.kv_cache["tokens"]
    for prompt in inputs.prefill:
        if prompt > length:
            yield f"a prompt of {prompt:,} tokens is longer than max_model_len {length:,}: the engine refuses it"
    for batch, context in inputs.decode:
        if batch > settings.max_num_seqs:
            yield f"a batch of {batch:,} is above max_num_seqs {settings.max_num_seqs:,}: the rest would wait"
        elif batch * context > pool:
            yield f"{batch:,} sequences of {context:,} tokens don't fit into the KV cache of {pool:,}: some would wait"
    arrival = inputs.arrival
    if arrival and arrival.input_p50 + arrival.output_p50 > min(length, pool):
        yield (
            f"requests of {arrival.input_p50 + arrival.output_p50:,} tokens don't fit into max_model_len {length:,} "
            f"and a KV cache of {pool:,} tokens: no open loop is played"
        )
