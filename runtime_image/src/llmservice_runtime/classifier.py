"""Why an engine ended: exit status, stage and lines of log → one class, in the engine's own words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmservice_runtime.failure_texts import SPECIFIC, SYMPTOM, TABLE
from llmservice_runtime.log_parser import GIB, LogLine

MEMORY_CLASSES = frozenset({"KvCacheTooSmall", "OutOfMemory", "DeviceNotEmpty"})
_QUIET_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
_SIGKILL = 9


@dataclass(frozen=True)
class Evidence:
    """A line that told a cause. `stage` is set where the text itself tells the step."""

    failure_class: str
    message: str
    stage: str | None
    rank: int


@dataclass(frozen=True)
class Ending:
    """How the engine's process ended and what was going on. `*_requested` are our own doings."""

    exit_code: int | None
    signal: int | None
    stage: str
    was_ready: bool
    stop_requested: bool = False
    hung: str | None = None
    start_timeout: str | None = None
    kernel_oom_kills: int | None = None


@dataclass(frozen=True)
class Failure:
    """What /report and the termination message carry. Sizes in bytes."""

    failure_class: str
    message: str
    stage: str
    exit_code: int | None = None
    signal: int | None = None
    estimated_max_model_len: int | None = None
    kv_cache_needed_bytes: int | None = None
    kv_cache_available_bytes: int | None = None


_COMPILED = tuple(
    (texts, re.compile("|".join(texts.patterns))) for texts in sorted(TABLE, key=lambda texts: texts.rank)
)
_ANY = re.compile("|".join(pattern for texts in TABLE for pattern in texts.patterns))
_EXCEPTION = re.compile(r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?::|$)|error: ")
_KV = re.compile(
    r"\(([\d.]+) GiB KV cache is needed.*?available KV cache memory \(([\d.]+) GiB\)"
    r"(?:.*?estimated maximum model length is (\d+))?"
)


def find_evidence(line: LogLine) -> Evidence | None:
    """The cause that a line tells, if any. INFO and WARNING are none: users' requests are logged there."""
    if line.level in _QUIET_LEVELS or _ANY.search(line.body) is None:
        return None
    for texts, pattern in _COMPILED:
        if pattern.search(line.body):
            return Evidence(texts.failure_class, line.body.strip(), texts.stage, texts.rank)
    return None


def is_error_line(line: LogLine) -> bool:
    """Whether the line would do as a message when nothing better is known: a traceback's end, or argparse."""
    return line.level not in _QUIET_LEVELS and _EXCEPTION.search(line.body) is not None


def classify(ending: Ending, evidence: tuple[Evidence, ...], last_error: str | None) -> Failure:
    """One class for one ending.

    Our own doing outranks what the engine says about it, and a kill by the kernel outranks the exit code.
    """
    best = min(evidence, key=lambda item: item.rank, default=None)
    if ending.hung is not None:
        return _failure(ending, "Hung", ending.hung, stage="serving")
    if ending.stop_requested:
        return _failure(ending, "Stopped", "stopped as asked", stage="stop")
    if ending.kernel_oom_kills:
        return _failure(ending, "HostOutOfMemory", _kernel_message(ending))
    if ending.start_timeout is not None and (best is None or best.rank > SPECIFIC):
        return _failure(
            ending, "StartTimeout", ending.start_timeout
        )  # else it said why, and then would not end
    if best is not None and best.rank < SYMPTOM:
        return _from_evidence(ending, best)
    if ending.signal is not None:
        return _from_signal(ending)
    if ending.exit_code == 2 and not ending.was_ready:
        return _failure(ending, "BadFlag", last_error or "the engine refused its arguments", stage="import")
    if ending.was_ready or ending.exit_code == 0:
        said = best.message if best is not None else last_error
        how = f"the engine ended with exit code {ending.exit_code} while {_doing(ending)}"
        return _failure(ending, "EngineDied", f"{how}: {said}" if said else how)
    said = last_error or (best.message if best is not None else None)
    return _failure(
        ending, "Unknown", said or f"the engine ended with exit code {ending.exit_code} and said nothing"
    )


def _doing(ending: Ending) -> str:
    return "serving" if ending.was_ready else f"starting (step {ending.stage})"


def _failure(ending: Ending, failure_class: str, message: str, *, stage: str | None = None) -> Failure:
    return Failure(failure_class, message, stage or ending.stage, ending.exit_code, ending.signal)


def _kernel_message(ending: Ending) -> str:
    return (
        f"the kernel killed {ending.kernel_oom_kills or 'a'} process(es) of the engine for host memory while "
        f"{_doing(ending)}; the container's memory limit, or the node's memory, is too small"
    )


def _from_signal(ending: Ending) -> Failure:
    # Where the count of kernel kills cannot be read, a SIGKILL that is not ours is most likely one of them.
    if ending.signal == _SIGKILL and ending.kernel_oom_kills is None:
        return _failure(ending, "HostOutOfMemory", _kernel_message(ending))
    return _failure(
        ending, "Signal", f"the engine was ended by signal {ending.signal} while {_doing(ending)}"
    )


def _from_evidence(ending: Ending, evidence: Evidence) -> Failure:
    needed = available = estimated = None
    match = _KV.search(evidence.message)
    if match is not None:
        needed, available = int(float(match.group(1)) * GIB), int(float(match.group(2)) * GIB)
        estimated = int(match.group(3)) if match.group(3) else None
    return Failure(
        evidence.failure_class,
        evidence.message,
        "serving" if ending.was_ready else evidence.stage or ending.stage,
        ending.exit_code,
        ending.signal,
        estimated,
        needed,
        available,
    )
