"""Step times of one engine as tables, so that a compiled loop can look them up.

A step's time on the card is a sum over its parts (`perfmodel.step_time`): products over its tokens, the output head
over its sampled sequences, attention over its decoding sequences, attention of each chunk of a prompt. Each part is
tabulated by asking the speed model itself, so that the tables follow whatever law it has.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from llmservice_operator.perfmodel.speed import SpeedModel
from llmservice_operator.perfmodel.step_time import Chunk, StepTimer
from llmservice_operator.simulation.records import SETTINGS, Floats

_INTERVALS = 64
"""Of each interpolated axis. Attention is linear in the context, and quadratic in a chunk's tokens."""


Tables = tuple[Any, Floats, Floats, Floats, Floats]
"""Settings (a record), then seconds and, last along the last axis, seconds of memory traffic at the peak bandwidth:

- tokens [tokens, 2]: products, experts, collectives and kernels of a step of this many tokens
- sampled [sequences, 2]: head and sampling
- decode [with prompts or not, sequences, context / context_grain, 2]: attention and states of decoding sequences
- prefill [tokens / chunk_grain, cached / context_grain, 2]: attention of one chunk

A plain tuple: the compiler does not recognise a named one that another process compiled for.
"""


def build_tables(model: SpeedModel, *, block_size: int = 16, slowdown: float = 1.0) -> Tables:
    """Tables of this engine. `slowdown` stretches every device time (a capacity model that is off by so much)."""
    case, timer = model.case, model.timer
    plain = replace(timer, work=replace(timer.work, attention=(), state_bytes=0.0))
    share = model.constants.device.weight_bandwidth_share
    budget, sequences = case.max_num_batched_tokens, case.max_num_seqs
    tokens = np.array([_cost(plain, share, chunks=(Chunk(n, 0, last=False),)) for n in range(budget + 1)])
    sampled = np.array([_cost(plain, share, batch=n) - tokens[min(n, budget)] for n in range(sequences + 1)])
    sampled[0] = 0.0
    contexts = np.linspace(0.0, case.max_model_len, _INTERVALS + 1)
    sizes = np.linspace(0.0, budget, _INTERVALS + 1)
    decode = np.array(
        [
            [
                _decode_row(timer, plain, share, batch, contexts, beside=beside)
                for batch in range(sequences + 1)
            ]
            for beside in ((), (Chunk(1, 0, last=False),))
        ]
    )
    prefill = np.array([[_chunk(timer, plain, share, size, cached) for cached in contexts] for size in sizes])
    settings = np.zeros(1, SETTINGS)
    for name, value in _settings(model, block_size).items():
        settings[name] = value
    settings["context_grain"], settings["chunk_grain"] = contexts[1], sizes[1]
    return (settings[0], tokens * slowdown, sampled * slowdown, decode * slowdown, prefill * slowdown)


def _settings(model: SpeedModel, block_size: int) -> dict[str, float]:
    case, timer, host = model.case, model.timer, model.constants.host
    one, two = (timer.step(batch=n, context=0.0).prepare_seconds for n in (1, 2))
    return {
        "prepare_seconds": 2 * one - two,
        "prepare_sequence_seconds": two - one,
        "piece_launch_seconds": _launch(timer, 1),
        "eager_launch_seconds": _launch(timer, timer.capture.largest_tokens + 1),
        "half_request_seconds": host.request_seconds / 2.0,
        "token_seconds": host.token_seconds,
        "pool_tokens": math.inf if case.kv_cache_tokens is None else case.kv_cache_tokens,
        "half_block": block_size / 2.0,
        "largest_graph": timer.capture.largest_tokens,
        "max_num_seqs": case.max_num_seqs,
        "token_budget": case.max_num_batched_tokens,
        "overlaps": host.overlaps,
        "blocks_on_launch": case.tensor_parallel_size == 1,
    }


def _cost(
    timer: StepTimer, share: float, *, batch: int = 0, context: float = 0.0, chunks: tuple[Chunk, ...] = ()
) -> Floats:
    device = timer.step(batch=batch, context=context, chunks=chunks).device
    return np.array([device.seconds, device.memory_seconds * share])


def _decode_row(
    timer: StepTimer,
    plain: StepTimer,
    share: float,
    batch: int,
    contexts: Floats,
    *,
    beside: tuple[Chunk, ...],
) -> list[Floats]:
    """Attention of decoding sequences over contexts; beside prompts it may be another kernel's."""
    if not batch:
        return [np.zeros(2) for _ in contexts]
    without = _cost(plain, share, batch=batch, chunks=beside)
    if beside:
        without = without + _cost(timer, share, chunks=beside) - _cost(plain, share, chunks=beside)
    return [
        _cost(timer, share, batch=batch, context=float(each), chunks=beside) - without for each in contexts
    ]


def _chunk(timer: StepTimer, plain: StepTimer, share: float, size: float, cached: float) -> Floats:
    if not size:
        return np.zeros(2)
    chunks = (Chunk(round(size), round(cached), last=False),)
    return _cost(timer, share, chunks=chunks) - _cost(plain, share, chunks=chunks)


def _launch(timer: StepTimer, tokens: int) -> float:
    step = timer.step(batch=0, context=0.0, chunks=(Chunk(tokens, 0, last=False),))
    return step.launch_seconds - step.prepare_seconds
