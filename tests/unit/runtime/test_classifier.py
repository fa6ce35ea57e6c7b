"""Exit status, stage and lines → class. Each row is an end that engines have had."""

from typing import Any

import pytest

from llmservice_runtime.classifier import Ending, Evidence, Failure, classify, find_evidence, is_error_line
from llmservice_runtime.log_parser import GIB, split_prefix

ERROR = "(EngineCore pid=7) ERROR 11-29 23:00:00 [core.py:1584] "
TOO_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (32768), (4.00 GiB KV cache is "
    "needed, which "
    "is larger than the available KV cache memory (2.50 GiB). Based on the available memory, the estimated "
    "maximum model "
    "length is 20480. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
    "backend) or "
    "decreasing `max_model_len` when initializing the engine."
)
ROOT = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."


def failure_of(lines: list[str], *, stage: str = "load", **ending: Any) -> Failure:
    evidence: list[Evidence] = []
    last_error = None
    for text in lines:
        line = split_prefix(text)
        found = find_evidence(line)
        if found is not None:
            evidence.append(found)
        if is_error_line(line):
            last_error = line.body.strip()
    defaults: dict[str, Any] = {"exit_code": 1, "signal": None, "stage": stage, "was_ready": False}
    return classify(Ending(**{**defaults, **ending}), tuple(evidence), last_error)


START_FAILURES = [
    (ERROR + TOO_SMALL, "profile", "KvCacheTooSmall", "profile"),
    (
        ERROR
        + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
        "when "
        "initializing the engine.",
        "profile",
        "KvCacheTooSmall",
        "profile",
    ),
    (
        ERROR + "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (361). Each decode "
        "sequence requires "
        "one Mamba cache block",
        "warmup",
        "KvCacheTooSmall",
        "profile",
    ),
    (
        ERROR
        + "ValueError: Free memory on device cuda:0 (20.1/79.1 GiB) on startup is less than desired GPU "
        "memory "
        "utilization (0.92, 72.8 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
        "processes.",
        "import",
        "DeviceNotEmpty",
        "load",
    ),
    (
        ERROR
        + "ValueError: Available memory on node 0 (3.1/23.4 GiB) on startup is less than desired CPU memory "
        "utilization (0.92, 21.5 GiB).",
        "import",
        "DeviceNotEmpty",
        "load",
    ),
    (
        ERROR + "ValueError: Available memory on node 0 (3.1/23.4 GiB) on kv cache allocation is less than "
        "requested "
        "memory for kv (16.0 GiB).",
        "compile",
        "OutOfMemory",
        "profile",
    ),
    (
        ERROR + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79 GiB",
        "load",
        "OutOfMemory",
        "load",
    ),
    (ERROR + "torch.cuda.OutOfMemoryError: CUDA out of memory.", "profile", "OutOfMemory", "profile"),
    (ERROR + "torch.OutOfMemoryError: HIP out of memory.", "capture", "OutOfMemory", "capture"),
    (
        ERROR + "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. "
        "Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        "profile",
        "OutOfMemory",
        "warmup",
    ),
    (
        "(APIServer pid=1) OSError: You are trying to access a gated repo.",
        "import",
        "ModelAccessDenied",
        "load",
    ),
    (
        "(APIServer pid=1) huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: 1)",
        "import",
        "ModelNotFound",
        "load",
    ),
    (
        "(APIServer pid=1) OSError: acme/x is not a local folder and is not a valid model identifier listed",
        "import",
        "ModelNotFound",
        "load",
    ),
    (
        "(APIServer pid=1) ValueError: Invalid repository ID or local directory specified: '/models/x'.",
        "import",
        "ModelNotFound",
        "load",
    ),
    (
        "(APIServer pid=1) ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        "import",
        "ModelInvalid",
        "load",
    ),
    (
        ERROR + "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "load",
        "ModelInvalid",
        "load",
    ),
    (ERROR + "OSError: [Errno 28] No space left on device", "load", "DiskFull", "load"),
    (
        ERROR
        + "RuntimeError: Insufficient space in /dev/shm for shared memory ring buffer: 160 MiB required, "
        "64 MiB free.",
        "import",
        "SharedMemoryTooSmall",
        "import",
    ),
    ("(APIServer pid=1) OSError: [Errno 98] Address already in use", "import", "PortInUse", "import"),
    (
        "(APIServer pid=1) ValueError: User-specified max_model_len (9999) is greater than the derived one",
        "import",
        "BadFlag",
        "import",
    ),
]


@pytest.mark.parametrize(("line", "stage", "failure_class", "failure_stage"), START_FAILURES)
def test_a_failed_start_has_the_class_of_its_root_cause(
    line: str, stage: str, failure_class: str, failure_stage: str
) -> None:
    failure = failure_of([ERROR + "EngineCore failed to start.", line, ROOT], stage=stage)

    assert (failure.failure_class, failure.stage) == (failure_class, failure_stage)


def test_the_message_is_the_engines_own_line_without_its_prefix() -> None:
    assert failure_of([ERROR + TOO_SMALL, ROOT]).message == TOO_SMALL


def test_the_length_that_would_fit_is_read_from_the_line() -> None:
    failure = failure_of([ERROR + TOO_SMALL, ROOT])

    assert failure.estimated_max_model_len == 20480
    assert failure.kv_cache_needed_bytes == 4 * GIB
    assert failure.kv_cache_available_bytes == int(2.5 * GIB)


def test_without_an_estimate_there_is_none() -> None:
    text = TOO_SMALL.replace(
        "Based on the available memory, the estimated maximum model length is 20480. ", ""
    )

    failure = failure_of([ERROR + text])

    assert failure.estimated_max_model_len is None
    assert failure.kv_cache_needed_bytes == 4 * GIB


@pytest.mark.parametrize(
    "line",
    [
        '(APIServer pid=1) INFO 11-29 23:00:00 [logger.py:1] Received request: prompt: "CUDA out of memory"',
        "(EngineCore pid=1) WARNING 11-29 23:00:00 [x.py:1] torch.OutOfMemoryError: CUDA out of memory",
    ],
)
def test_what_users_write_is_no_evidence(line: str) -> None:
    assert find_evidence(split_prefix(line)) is None


def test_the_general_line_gives_way_to_the_specific_one() -> None:
    lines = [
        ERROR + "torch.OutOfMemoryError: CUDA out of memory.",
        ERROR + "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.",
    ]

    assert failure_of(lines, stage="profile").stage == "warmup"


def test_argparse_is_a_bad_flag_in_its_own_words() -> None:
    line = "api_server.py: error: unrecognized arguments: --max-model-length 5"

    failure = failure_of(["usage: api_server.py [-h]", line], stage="import", exit_code=2)

    assert (failure.failure_class, failure.message) == ("BadFlag", line)


def test_exit_code_0_while_serving_is_the_death_of_the_engine() -> None:
    lines = [ERROR + "EngineCore encountered a fatal error.", ERROR + "RuntimeError: illegal instruction"]

    failure = failure_of(lines, stage="serving", was_ready=True, exit_code=0)

    assert failure.failure_class == "EngineDied"
    assert "exit code 0 while serving" in failure.message


def test_exit_code_0_before_serving_is_no_success() -> None:
    assert failure_of([], exit_code=0).failure_class == "EngineDied"


def test_out_of_memory_while_serving_says_so() -> None:
    failure = failure_of(
        [ERROR + "torch.OutOfMemoryError: CUDA out of memory."], stage="serving", was_ready=True, exit_code=0
    )

    assert (failure.failure_class, failure.stage) == ("OutOfMemory", "serving")


@pytest.mark.parametrize(
    ("ending", "failure_class"),
    [
        ({"exit_code": None, "signal": 9, "kernel_oom_kills": 1}, "HostOutOfMemory"),
        ({"exit_code": None, "signal": 9, "kernel_oom_kills": None}, "HostOutOfMemory"),
        ({"exit_code": None, "signal": 9, "kernel_oom_kills": 0}, "Signal"),
        ({"exit_code": None, "signal": 11, "kernel_oom_kills": None}, "Signal"),
        ({"exit_code": 1, "kernel_oom_kills": 2}, "HostOutOfMemory"),
        ({"exit_code": 0, "was_ready": True, "kernel_oom_kills": 1}, "HostOutOfMemory"),
        ({"exit_code": 0, "was_ready": True, "stop_requested": True}, "Stopped"),
        ({"exit_code": None, "signal": 9, "stop_requested": True}, "Stopped"),
        ({"exit_code": None, "signal": 15, "hung": "3 requests run"}, "Hung"),
        ({"exit_code": 1, "start_timeout": "not ready"}, "StartTimeout"),
        ({"exit_code": 3}, "Unknown"),
    ],
)
def test_without_words_the_way_of_ending_decides(ending: dict[str, Any], failure_class: str) -> None:
    assert failure_of([], **ending).failure_class == failure_class


def test_an_unknown_end_repeats_the_last_error_line() -> None:
    failure = failure_of(["(APIServer pid=1) KeyError: 'rope'", "(APIServer pid=1) done"])

    assert (failure.failure_class, failure.message) == ("Unknown", "KeyError: 'rope'")
