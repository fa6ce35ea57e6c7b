"""A start that failed for memory, as the planner takes it: the engine's words and figures, as bytes. Pure.

The report of a held engine has what it had measured until then; the words have what was missing. Of both the planner
gets bytes of one rank, with the accelerator that they are about, since another one is not bound by them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from llmservice_operator.clients.engine import EngineFailure, EngineReport
from llmservice_operator.perfmodel.memory import GIB, MIB
from llmservice_operator.planning.types import MemoryCorrection, Plan

_UNITS: Mapping[str, int] = {"GiB": GIB, "MiB": MIB, "KiB": 1024, "bytes": 1}
_SIZE = r"([\d.]+) (GiB|MiB|KiB|bytes)"

# torch/csrc/.../CUDACachingAllocator.cpp (2.1 to 2.14): "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of
# 79.19 GiB of which 1.06 GiB is free. Process 7 has 30.00 GiB memory in use. Including non-PyTorch memory, this process
# has 48.10 GiB memory in use. Of the allocated memory 47.01 GiB is allocated by PyTorch, and ..."
_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free")
_OTHERS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
# vllm/v1/worker/utils.py: "Free memory on device cuda:0 (30.12/79.19 GiB) on startup is less than desired ..."
_FREE = re.compile(r"\(([\d.]+)/([\d.]+) GiB\) on startup")
DRIVER_SHARE = 0.99
"""Of the memory that the driver lists, what the runtime gives out: 139.8 of 140.4 GiB on an H200."""


def correction_of(
    failure: EngineFailure, report: EngineReport | None = None, plan: Plan | None = None
) -> MemoryCorrection:
    """The correction that this failure asks for. `report` is the held engine's, `plan` the one that failed."""
    correction = MemoryCorrection(
        estimated_max_model_len=failure.estimated_max_model_len,
        kv_cache_available_bytes=failure.kv_cache_available_bytes,
        failure_class=failure.failure_class,
        stage=failure.stage,
        message=failure.message,
        accelerator="" if plan is None else plan.accelerator.name,
        accelerators=0 if plan is None else plan.accelerators_per_replica,
        planned_cache_bytes=None if plan is None else plan.knobs.kv_cache_bytes,
    )
    # There the card is the container, and its size is the plan's own.
    on_cpu = plan is not None and plan.accelerator.is_cpu
    return correction if on_cpu else _with_figures(correction, report)


def _with_figures(correction: MemoryCorrection, report: EngineReport | None) -> MemoryCorrection:
    """The same with what was measured of the card and the weights."""
    words = correction.message
    said: Mapping[str, float] = {} if report is None else report.memory
    tried, capacity = _found(_TRIED, words), _CAPACITY.search(words)
    free = None if capacity is None else _bytes(capacity[3], capacity[4])
    allocated = _found(_ALLOCATED, words)
    return replace(
        correction,
        device_total_bytes=_total(words, said, report),
        device_others_bytes=sum(_bytes(*each) for each in _OTHERS.findall(words)) or None,
        weights_bytes=_whole(said.get("weightsBytes")),
        weights_at_least_bytes=None if allocated is None else allocated + (tried or 0),
        missing_bytes=None if tried is None or free is None else max(0, tried - free),
    )


def tells_what_is_free(failure: EngineFailure) -> bool:
    """Whether a card that others use was measured, so that a plan can be made for the rest of it."""
    return _FREE.search(failure.message) is not None


def _total(words: str, said: Mapping[str, float], report: EngineReport | None) -> int | None:
    """The card's memory: by the failure's words, by what the engine said before, or by what the driver lists."""
    if (capacity := _CAPACITY.search(words)) is not None:
        return _bytes(capacity[1], capacity[2])
    if (free := _FREE.search(words)) is not None:
        return _bytes(free[2], "GiB")
    if (total := _whole(said.get("totalBytes"))) is not None:
        return total
    listed = [each.memory_bytes for each in report.devices if each.memory_bytes] if report is not None else []
    return int(min(listed) * DRIVER_SHARE) if listed else None


def _found(pattern: re.Pattern[str], words: str) -> int | None:
    match = pattern.search(words)
    return None if match is None else _bytes(match[1], match[2])


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:  # such as "1.2.3": not a figure, whatever it is
        return 0


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
