"""What a start that failed for memory changes in the next plan: what the engine measured, else a fixed step. Pure."""

import math
import re
from dataclasses import replace

from llmservice_operator.perfmodel.calibration import SIZE_TOLERANCE
from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.candidates import Candidate
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.types import MemoryCorrection

OUT_OF_MEMORY, NOT_EMPTY, HOST = "OutOfMemory", "DeviceNotEmpty", "HostOutOfMemory"
FAILED_STEP = 0.05
"""Taken off the utilisation where memory ran out after the load and the engine did not say how much was missing."""
MISSING_SLACK_BYTES = GIB // 4
"""Beside what was missing: the next allocation of the same step would have failed too."""
WEIGHTS_STEP = 1.1
"""More weights where a load failed and the engine did not say how large it had become."""
SMALLEST_CARD_BYTES = GIB
"""What is said to be less is a misread line."""
CPU_STEP = 1.25
"""More memory beside the KV cache where the kernel, or the engine itself, found too little on the CPU row."""

_FREE_OF_TOTAL = re.compile(r"\(([\d.]+)/([\d.]+) GiB\)")


def sized(case: Case, candidate: Candidate) -> Candidate:
    """The candidate with the memory that the failed start found on a card of this row, where that is less."""
    correction = case.inputs.correction
    total = correction.device_total_bytes if correction is not None else None
    if correction is None or total is None or correction.accelerator != candidate.row.name:
        return candidate
    if not SMALLEST_CARD_BYTES <= total < candidate.row.memory_bytes * (1 - SIZE_TOLERANCE):
        return candidate
    return replace(candidate, row=replace(candidate.row, memory_bytes=total))


def corrected_weights(case: Case, derived_bytes: int, ranks: int) -> int:
    """Weights of one rank: by what the failed start had loaded, or had when its load failed."""
    correction = case.inputs.correction
    if correction is None:
        return derived_bytes
    scale = correction.accelerators / ranks if correction.accelerators else 1.0
    if correction.weights_bytes is not None:
        # The engine's own figure, for so many ranks; what every rank has whole makes it a little more elsewhere.
        return max(derived_bytes, int(correction.weights_bytes * scale))
    if correction.failure_class != OUT_OF_MEMORY or correction.stage != "load":
        return derived_bytes
    if correction.weights_at_least_bytes is None:
        return int(derived_bytes * WEIGHTS_STEP)
    return max(derived_bytes, int(correction.weights_at_least_bytes * scale))


def lowered(case: Case, candidate: Candidate) -> float:
    """What the failure takes off the utilisation: by figures on cards of the same row, by a fixed step on others."""
    correction = case.inputs.correction
    if correction is None:
        return 0.0
    if correction.accelerator not in ("", candidate.row.name):
        return FAILED_STEP if correction.failure_class == OUT_OF_MEMORY else 0.0
    total_bytes = candidate.row.memory_bytes
    taken = max(0, correction.device_others_bytes or 0) / total_bytes
    if correction.failure_class == NOT_EMPTY:
        return max(taken, _not_free(correction))
    if correction.failure_class != OUT_OF_MEMORY:
        return taken
    if correction.stage == "load":
        # No budget is kept to while loading: a smaller one would not have helped.
        return taken or FAILED_STEP
    missing = correction.missing_bytes
    step = 0.0 if missing is None else (missing + MISSING_SLACK_BYTES) / total_bytes
    return max(taken, FAILED_STEP, step)


def _not_free(correction: MemoryCorrection) -> float:
    """The share of the card that others hold, by the engine's own words."""
    match = _FREE_OF_TOTAL.search(correction.message)
    return max(0.0, 1.0 - float(match[1]) / max(float(match[2]), 0.01)) if match else 0.0


def cache_limit(case: Case, candidate: Candidate) -> int | None:
    """The most KV cache that may be planned: what the failed start had, on as many of the same cards."""
    correction = case.inputs.correction
    seen = correction.kv_cache_available_bytes if correction is not None else None
    if correction is None or seen is None or seen <= 0:
        return None
    known = correction.accelerators > 0
    same = (correction.accelerator, correction.accelerators) == (
        candidate.row.name,
        0 if candidate.row.is_cpu else candidate.tensor_parallel_size,
    )
    return seen if same or not (known or correction.accelerator) else None


def cpu_cache(case: Case, cache_bytes: int) -> int:
    """KV cache within a limit of the user's own: less than what ran out of it, by a GiB or by half."""
    correction = case.inputs.correction
    failed = correction.planned_cache_bytes if correction is not None else None
    if correction is None or failed is None or correction.failure_class not in (OUT_OF_MEMORY, HOST):
        return cache_bytes
    return max(0, min(cache_bytes, max(failed - GIB, failed // 2)))


def cpu_needed(case: Case, needed_bytes: int) -> int:
    """Memory beside the KV cache on the CPU row: more, after the container ran out of it."""
    correction = case.inputs.correction
    if correction is not None and correction.failure_class in (OUT_OF_MEMORY, HOST):
        return math.ceil(needed_bytes * CPU_STEP)
    return needed_bytes
