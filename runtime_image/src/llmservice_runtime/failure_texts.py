"""The texts by which an engine's failures are known, as data.

Seen in vLLM 0.19 to 0.33 (v1/core/kv_cache_planning.py, v1/worker/utils.py, v1/worker/cpu_worker.py,
v1/worker/gpu_model_runner.py, v1/engine/core.py, distributed/device_communicators/shm_broadcast.py), torch
2.10 to 2.14, transformers 5 and huggingface_hub 1.
"""

from __future__ import annotations

from dataclasses import dataclass

# How near a text is to the cause. The nearest one wins, then the first that came.
SPECIFIC, GENERAL, SYMPTOM = 0, 1, 2


@dataclass(frozen=True)
class Texts:
    """Regular expressions of one class. `stage` overrides the step that the start was in."""

    failure_class: str
    rank: int
    stage: str | None
    patterns: tuple[str, ...]


_WEIGHT_FILE = r"[^']*(?:config\.json|\.safetensors)"

TABLE: tuple[Texts, ...] = (
    Texts(
        "KvCacheTooSmall",
        SPECIFIC,
        "profile",
        (
            r"To serve at least one request with the model's max seq len",
            r"No available memory for the cache blocks",
            r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks",
            r"Cannot auto-fit max_model_len: not enough",
        ),
    ),
    Texts(
        "DeviceNotEmpty",
        SPECIFIC,
        "load",
        (
            r"Free memory on device .*on startup is less than desired GPU memory utilization",
            r"Available memory on node .*on startup is less than desired CPU memory utilization",
        ),
    ),
    Texts("DeviceNotEmpty", SPECIFIC, "profile", (r"Error in memory profiling\. Initial free memory",)),
    Texts("OutOfMemory", SPECIFIC, "profile", (r"Available memory on node .*than requested memory for kv",)),
    Texts("OutOfMemory", SPECIFIC, "warmup", (r"out of memory occurred when warming up (?:sampler|pooler)",)),
    Texts(
        "SharedMemoryTooSmall",
        SPECIFIC,
        None,
        (
            r"Insufficient space in /dev/shm",
            r"insufficient shared memory \(shm\)",
            r"No space left on device: '/dev/shm",
        ),
    ),
    Texts("PortInUse", SPECIFIC, None, (r"[Aa]ddress already in use",)),
    Texts("DiskFull", SPECIFIC, None, (r"No space left on device", r"Disk quota exceeded")),
    Texts("DiskFull", GENERAL, None, (r"Not enough free disk space",)),
    Texts(
        "ModelAccessDenied",
        SPECIFIC,
        "load",
        (
            r"GatedRepoError",
            r"gated repo\b",
            r"Access to model .* is restricted",
            r"Invalid credentials in Authorization header",
            r"Invalid user token",
        ),
    ),
    Texts("ModelAccessDenied", GENERAL, "load", (r"(?:401|403) Client Error",)),
    Texts("ModelAccessDenied", SPECIFIC, "load", (rf"Permission denied: '{_WEIGHT_FILE}'",)),
    Texts(
        "ModelNotFound",
        SPECIFIC,
        "load",
        (
            r"Repository ?Not ?Found",
            r"Revision ?Not ?Found",
            r"is not a local folder and is not a valid model identifier",
            r"Invalid repository ID or local directory specified",
            r"HFValidationError",
            r"does not appear to have a file named config\.json",
            r"LocalEntryNotFoundError",
            r"Can't load the configuration of",
            rf"No such file or directory: '{_WEIGHT_FILE}'",
        ),
    ),
    Texts(
        "ModelInvalid",
        SPECIFIC,
        "load",
        (
            r"Model architectures .*(?:are not supported|failed to be inspected)",
            r"Unrecognized model in",
            r"does not recognize this architecture",
            r"should have a `model_type` key",
            r"SafetensorError",
            r"Error while deserializing header",
            r"Cannot find any model weights with",
            r"There is no module or parameter named",
            r"weights were not initialized from checkpoint",
            r"Unknown quantization method",
            r"It looks like the config file at",
        ),
    ),
    Texts(
        "BadFlag",
        SPECIFIC,
        "import",
        (r"error: (?:unrecognized arguments|argument |ambiguous option|the following arguments)",),
    ),
    Texts(
        "BadFlag",
        SPECIFIC,
        None,
        (
            r"User-specified max_model_len .* is greater than the derived",
            r"must be divisible by tensor parallel",
            r"Quantization method specified in the model config",
            r"max_num_batched_tokens .*(?:greater than or equal|smaller than)",
            r"is only supported on GPUs with compute capability",
            r"VLLM_PORT .*appears to be a URI",
        ),
    ),
    Texts("BadFlag", GENERAL, None, (r"\d+ validation errors? for \w*Config",)),
    Texts(
        "OutOfMemory",
        GENERAL,
        None,
        (
            r"\bOutOfMemoryError\b",
            r"(?:CUDA|HIP) out of memory",
            r"CUDA error: out of memory",
            r"can't allocate memory",
            r"failure 2 'out of memory'",
            r"^MemoryError\b",
            r"std::bad_alloc",
        ),
    ),
    Texts(
        "EngineDied",
        SYMPTOM,
        None,
        (
            r"EngineDeadError",
            r"died unexpectedly",
            r"EngineCore encountered a fatal error",
            r"EngineCore encountered an issue",
        ),
    ),
)
