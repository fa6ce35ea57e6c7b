"""Why an engine ended: exit status, stage and the lines it left → one class, in the engine's own words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmservice_runtime.log_parser import GIB, LogLine

MEMORY_CLASSES = frozenset({"KvCacheTooSmall", "OutOfMemory", "DeviceNotEmpty"})
_QUIET_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
_SIGKILL = 9


@dataclass(frozen=True)
class EvidenceRule:
    """A text that tells a cause. `stage` overrides the step that was under way; a lower `rank` is nearer the cause."""

    failure_class: str
    pattern: re.Pattern[str]
    rank: int
    stage: str | None = None


@dataclass(frozen=True)
class Evidence:
    """A line that told a cause, when it came."""

    failure_class: str
    message: str
    stage: str
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


_SPECIFIC, _GENERAL, _SYMPTOM = 0, 1, 2

# class, text, rank, stage. Texts of vLLM 0.19 to 0.33, torch 2.10 to 2.14, transformers 5 and huggingface_hub 1.
_TABLE: tuple[tuple[str, str, int, str | None], ...] = (
    ("KvCacheTooSmall", r"To serve at least one request with the model's max seq len", _SPECIFIC, "profile"),
    ("KvCacheTooSmall", r"No available memory for the cache blocks", _SPECIFIC, "profile"),
    ("KvCacheTooSmall", r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks", _SPECIFIC, "profile"),
    ("KvCacheTooSmall", r"Cannot auto-fit max_model_len: not enough", _SPECIFIC, "profile"),
    ("DeviceNotEmpty", r"Free memory on device .*on startup is less than desired GPU memory utilization",
     _SPECIFIC, "load"),
    ("DeviceNotEmpty", r"Available memory on node .*on startup is less than desired CPU memory utilization",
     _SPECIFIC, "load"),
    ("DeviceNotEmpty", r"Error in memory profiling\. Initial free memory", _SPECIFIC, "profile"),
    ("OutOfMemory", r"Available memory on node .*is less than requested memory for kv", _SPECIFIC, "profile"),
    ("OutOfMemory", r"out of memory occurred when warming up (?:sampler|pooler)", _SPECIFIC, "warmup"),
    ("SharedMemoryTooSmall", r"Insufficient space in /dev/shm", _SPECIFIC, None),
    ("SharedMemoryTooSmall", r"insufficient shared memory \(shm\)|No space left on device: '/dev/shm", _SPECIFIC, None),
    ("PortInUse", r"[Aa]ddress already in use", _SPECIFIC, None),
    ("DiskFull", r"No space left on device|Disk quota exceeded", _SPECIFIC, None),
    ("DiskFull", r"Not enough free disk space", _GENERAL, None),
    ("ModelAccessDenied", r"GatedRepoError|gated repo\b|Access to model .* is restricted", _SPECIFIC, "load"),
    ("ModelAccessDenied", r"Invalid credentials in Authorization header|Invalid user token", _SPECIFIC, "load"),
    ("ModelNotFound", r"Repository Not Found|RepositoryNotFoundError|RevisionNotFoundError|Revision Not Found",
     _SPECIFIC, "load"),
    ("ModelNotFound", r"is not a local folder and is not a valid model identifier|Invalid repository ID or local "
     r"directory specified|HFValidationError", _SPECIFIC, "load"),
    ("ModelNotFound", r"does not appear to have a file named config\.json|LocalEntryNotFoundError|"
     r"Can't load the configuration of|No such file or directory: '[^']*(?:config\.json|\.safetensors)'",
     _SPECIFIC, "load"),
    ("ModelAccessDenied", r"(?:401|403) Client Error", _GENERAL, "load"),
    ("ModelAccessDenied", r"PermissionError: .*Permission denied: '[^']*(?:config\.json|\.safetensors)'", _GENERAL, "load"),
    ("ModelInvalid", r"Model architectures .*(?:are not supported|failed to be inspected)|Unrecognized model in|"
     r"does not recognize this architecture|should have a `model_type` key", _SPECIFIC, "load"),
    ("ModelInvalid", r"SafetensorError|Error while deserializing header|Cannot find any model weights with|"
     r"There is no module or parameter named|weights were not initialized from checkpoint|"
     r"Unknown quantization method|not valid JSON|It looks like the config file at", _SPECIFIC, "load"),
    ("BadFlag", r"error: (?:unrecognized arguments|argument |ambiguous option|the following arguments)", _SPECIFIC,
     "import"),
    ("BadFlag", r"User-specified max_model_len .* is greater than the derived|must be divisible by tensor parallel|"
     r"Quantization method specified in the model config|max_num_batched_tokens .*(?:greater than or equal|smaller than)|"
     r"is only supported on GPUs with compute capability|VLLM_PORT .*appears to be a URI", _SPECIFIC, None),
    ("BadFlag", r"\d+ validation errors? for \w*Config", _GENERAL, None),
    ("OutOfMemory", r"(?:torch|cuda)\.\w*OutOfMemoryError|(?:CUDA|HIP) out of memory|CUDA error: out of memory|"
     r"can't allocate memory|failure 2 'out of memory'", _GENERAL, None),
    ("OutOfMemory", r"^(?:\S*: )?(?:MemoryError\b|std::bad_alloc)|what\(\):\s+std::bad_alloc", _GENERAL, None),
    ("EngineDied", r"EngineDeadError|died unexpectedly|EngineCore encountered a fatal error|"
     r"EngineCore encountered an issue", _SYMPTOM, None),
)
EVIDENCE_RULES: tuple[EvidenceRule, ...] = tuple(
    EvidenceRule(failure_class, re.compile(pattern), rank, stage) for failure_class, pattern, rank, stage in _TABLE
)
_ANY = re.compile("|".join(f"(?:{pattern})" for _, pattern, _, _ in _TABLE))
_EXCEPTION = re.compile(r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?::|$)|error: ")
_KV = re.compile(
    r"\(([\d.]+) GiB KV cache is needed.*?available KV cache memory \(([\d.]+) GiB\)"
    r"(?:.*?estimated maximum model length is (\d+))?"
)


def find_evidence(line: LogLine, *, stage: str) -> Evidence | None:
    """The cause that a line tells, if it tells one. Lines of INFO and WARNING are no evidence: requests pass there."""
    if line.level in _QUIET_LEVELS or _ANY.search(line.body) is None:
        return None
    for rule in EVIDENCE_RULES:
        if rule.pattern.search(line.body):
            return Evidence(rule.failure_class, line.body.strip(), rule.stage or stage, rule.rank)
    return None


def is_error_line(line: LogLine) -> bool:
    """Whether the line would do as a message when nothing better is known: the end of a traceback, or argparse."""
    return line.level not in _QUIET_LEVELS and _EXCEPTION.search(line.body) is not None


def classify(ending: Ending, evidence: tuple[Evidence, ...], last_error: str | None) -> Failure:
    """One class for one ending. Our own doing outranks what the engine says about it, a kernel's kill its exit code."""
    best = min(evidence, key=lambda item: item.rank, default=None)
    if ending.stop_requested:
        return _failure(ending, "Stopped", "stopped as asked", stage="stop")
    if ending.hung is not None:
        return _failure(ending, "Hung", ending.hung, stage="serving")
    if ending.start_timeout is not None:
        return _failure(ending, "StartTimeout", ending.start_timeout)
    if ending.kernel_oom_kills:
        return _failure(ending, "HostOutOfMemory", _kernel_message(ending))
    if best is not None and best.rank < _SYMPTOM:
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
    return _failure(ending, "Unknown", said or f"the engine ended with exit code {ending.exit_code} and said nothing")


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
    return _failure(ending, "Signal", f"the engine was ended by signal {ending.signal} while {_doing(ending)}")


def _from_evidence(ending: Ending, evidence: Evidence) -> Failure:
    needed = available = estimated = None
    match = _KV.search(evidence.message)
    if match is not None:
        needed, available = int(float(match.group(1)) * GIB), int(float(match.group(2)) * GIB)
        estimated = int(match.group(3)) if match.group(3) else None
    return Failure(
        evidence.failure_class,
        evidence.message,
        "serving" if ending.was_ready else evidence.stage,
        ending.exit_code,
        ending.signal,
        estimated,
        needed,
        available,
    )
