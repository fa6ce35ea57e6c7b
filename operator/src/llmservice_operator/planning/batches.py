"""Batch knobs that are tried, from generous to frugal."""

import math
from collections.abc import Iterator
from dataclasses import replace

from llmservice_operator.engines.versions import gpu_block_size
from llmservice_operator.perfmodel.capture import capture_rule
from llmservice_operator.perfmodel.device_shape import device_shape
from llmservice_operator.perfmodel.memory import GIB, Batch
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.types import MemoryCorrection

LARGE_CARD_BYTES = 70 * GIB
"""From here on vLLM's own default is 8,192 batched tokens, below 2,048 (engine/arg_utils.py)."""
_LARGE = ((8192, 256), (4096, 128), (2048, 64), (2048, 16))
_SMALL = ((2048, 256), (2048, 128), (2048, 64), (2048, 16))
LEAST_BUDGET = 1024
"""A token budget below this leaves a card idle: a step is over before the host has prepared the next."""
USUAL_BUDGET = 2048
"""vLLM's own default on small cards; a smaller one is taken for an objective only."""


def batches(case: Case, candidate: Candidate) -> Iterator[Batch]:
    """Batch knobs to try, from generous to frugal, around what is pinned and what the engine's failure ruled out."""
    pin, correction = case.spec.engine.pin, case.inputs.correction
    steps: tuple[tuple[int, int], ...]
    steps = _LARGE if candidate.row.memory_bytes >= LARGE_CARD_BYTES else _SMALL
    if correction is not None and correction.failure_class == "OutOfMemory" and correction.stage != "load":
        steps = steps[1:]
    if correction is not None and _tells_no_size(correction):
        steps = steps[-1:]
    least = math.ceil(case.wish.concurrency / 8) * 8 if case.wish.concurrency > 1 else 1
    tried = set()
    for tokens, seqs in steps:
        chosen_seqs = pin.max_num_seqs or max(seqs, least)
        chosen_tokens = pin.max_num_batched_tokens or max(tokens, chosen_seqs)
        if (chosen_tokens, chosen_seqs) in tried:
            continue
        tried.add((chosen_tokens, chosen_seqs))
        batch = case.batch(
            seqs=chosen_seqs,
            tokens=chosen_tokens,
            tensor_parallel_size=candidate.tensor_parallel_size,
            dtype=case.gpu_dtype,
        )
        capability = candidate.row.compute_capability
        yield replace(
            batch,
            capture_rule=capture_rule(
                case.quantization, engine_version=case.version, compute_capability=capability
            ),
            device=device_shape(capability, candidate.row.memory_bytes),
            block_size=pin.block_size or gpu_block_size(case.version, case.model, capability),
        )


def _tells_no_size(correction: MemoryCorrection) -> bool:
    """The engine had no memory for any block, and so no figure to go by."""
    length, available = correction.estimated_max_model_len or 0, correction.kv_cache_available_bytes or 0
    return correction.failure_class == "KvCacheTooSmall" and length <= 0 and available <= 0


def frugal_budgets(case: Case, batch: Batch, *, least: int = LEAST_BUDGET) -> Iterator[int]:
    """Smaller token budgets beside the same sequences, by halves; none where the user pins it."""
    if case.spec.engine.pin.max_num_batched_tokens:
        return
    tokens = batch.max_num_batched_tokens // 2
    while tokens >= max(least, batch.max_num_seqs):
        yield tokens
        tokens //= 2


def with_sequences(batch: Batch, seqs: int) -> Batch:
    """The batch with so many sequences, and a token budget of at least as many."""
    return replace(batch, max_num_seqs=seqs, max_num_batched_tokens=max(seqs, batch.max_num_batched_tokens))
