"""Logs of vLLM 0.26.0 on an NVIDIA H200, cut to the lines that matter: the figures are those that the engine printed.

Weights were dummies (`--load-format dummy`), so that a load is short. `v1` and `v2` name the model runner. The clock is
the log's own, which has whole seconds; `started_at` is when the process was started, in seconds of the day.
"""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmservice_runtime.classifier import Ending, Failure, classify
from llmservice_runtime.config import Config
from llmservice_runtime.log_parser import GIB
from llmservice_runtime.memory_facts import EngineFacts
from llmservice_runtime.state import EngineState

DATA = Path(__file__).parent / "data"
DAY_SECONDS = 86_400.0
_TIME = re.compile(r" \d\d-\d\d (\d\d):(\d\d):(\d\d) \[")


class LogClock:
    def __init__(self, started_at: float) -> None:
        self.now = started_at

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def follow(self, line: str) -> None:
        match = _TIME.search(line)
        if match is not None:
            hours, minutes, seconds = (int(part) for part in match.groups())
            self.now = max(self.now, hours * 3600.0 + minutes * 60.0 + seconds)


def read(name: str, started_at: float = 0.0) -> tuple[EngineState, LogClock]:
    clock = LogClock(started_at)
    state = EngineState(Config(service="a/b", revision="r"), clock, None)
    for line in (DATA / f"vllm-0.26.0-h200-{name}.log").read_text(encoding="utf-8").splitlines():
        clock.follow(line)
        state.take_line(line)
    return state, clock


def gib(value: float) -> int:
    return int(value * GIB)


# Of a start that got as far as the summary; 139.8 GiB, utilisation 0.95.
SUMMARY = EngineFacts(
    version="0.26.0",
    total_bytes=gib(139.8),
    requested_bytes=gib(132.81),
    free_bytes=gib(139.29),
    weights_loaded=True,
)

FACTS = {
    "v2-llama-3.1-8b-served": dataclasses.replace(
        SUMMARY,
        weights_bytes=gib(15.0),
        activation_bytes=gib(1.1),
        non_torch_bytes=gib(0.22),
        cuda_graph_bytes=gib(0.59),
        kv_cache_bytes=gib(116.48),
        kv_cache_tokens=954_176,
        max_concurrency=7.28,
        max_model_len=131_072,
    ),
    "v1-qwen3-30b-a3b-served": dataclasses.replace(
        SUMMARY,
        weights_bytes=gib(56.88),
        activation_bytes=gib(1.15),
        non_torch_bytes=gib(0.24),
        cuda_graph_bytes=gib(0.63),
        cuda_graph_estimate_bytes=gib(0.49),
        kv_cache_bytes=gib(74.05),
        kv_cache_tokens=808_848,
        max_concurrency=19.75,
        max_model_len=40_960,
    ),
    "v2-deepseek-v2-lite-served": dataclasses.replace(
        SUMMARY,
        weights_bytes=gib(29.34),
        activation_bytes=gib(1.09),
        non_torch_bytes=gib(0.22),
        cuda_graph_bytes=gib(0.89),
        kv_cache_bytes=gib(102.15),
        kv_cache_tokens=3_526_320,
        max_concurrency=21.52,
        max_model_len=163_840,
    ),
    "v2-kv-too-small": EngineFacts(
        version="0.26.0",
        weights_bytes=gib(15.0),
        weights_loaded=True,
        kv_cache_bytes=gib(4.87),
        max_model_len=131_072,
    ),
    "v2-no-kv-memory": EngineFacts(
        version="0.26.0",
        weights_bytes=gib(131.45),
        weights_loaded=True,
        kv_cache_bytes=gib(-1.07),
        max_model_len=131_072,
    ),
    "v2-device-not-empty": EngineFacts(
        version="0.26.0",
        total_bytes=gib(139.8),
        free_bytes=gib(78.77),
        requested_bytes=gib(132.81),
        max_model_len=131_072,
    ),
    "v2-oom-load": EngineFacts(version="0.26.0", total_bytes=gib(139.8), max_model_len=131_072),
    "v2-oom-capture": EngineFacts(
        version="0.26.0",
        total_bytes=gib(139.8),
        weights_bytes=gib(15.0),
        weights_loaded=True,
        kv_cache_bytes=gib(122.72),
        kv_cache_tokens=1_005_296,
        max_concurrency=7.67,
        max_model_len=131_072,
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_the_engines_own_figures(name: str) -> None:
    state, _ = read(name)

    assert state.snapshot().facts == FACTS[name]


@dataclass(frozen=True)
class Expected:
    """What an end is called, where it came, and how its message begins."""

    failure_class: str
    stage: str
    message: str
    exit_code: int = 1
    estimated_max_model_len: int | None = None
    needed_bytes: int | None = None
    available_bytes: int | None = None


FAILURES = {
    "v2-kv-too-small": Expected(
        "KvCacheTooSmall",
        "profile",
        "ValueError: To serve at least one request with the model's max seq len (131072)",
        estimated_max_model_len=39_856,
        needed_bytes=gib(16.0),
        available_bytes=gib(4.87),
    ),
    "v2-no-kv-memory": Expected(
        "KvCacheTooSmall", "profile", "ValueError: No available memory for the cache blocks."
    ),
    "v2-device-not-empty": Expected(
        "DeviceNotEmpty", "load", "ValueError: Free memory on device cuda:0 (78.77/139.8 GiB) on startup"
    ),
    "v2-oom-load": Expected(
        "OutOfMemory", "load", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB."
    ),
    "v2-oom-capture": Expected(
        "OutOfMemory", "capture", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB."
    ),
    "bad-flag": Expected(
        "BadFlag", "import", "api_server.py: error: unrecognized arguments: --no-such-flag", exit_code=2
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_why_it_ended(name: str) -> None:
    expected = FAILURES[name]
    state, _ = read(name)
    evidence, last_error = state.causes()

    failure = classify(
        Ending(exit_code=expected.exit_code, signal=None, stage=state.step, was_ready=False),
        evidence,
        last_error,
    )

    assert failure.message.startswith(expected.message)
    assert failure == Failure(
        failure_class=expected.failure_class,
        message=failure.message,
        stage=expected.stage,
        exit_code=expected.exit_code,
        estimated_max_model_len=expected.estimated_max_model_len,
        kv_cache_needed_bytes=expected.needed_bytes,
        kv_cache_available_bytes=expected.available_bytes,
    )


STEPS = {
    # started at, ready at; then the seconds of the steps: "torch.compile took 25.09 s", "Graph capturing finished in
    # 4 secs", "init engine (…) took 45.44 s", of which compile, profile, capture and the warm-up's greater part.
    "v2-llama-3.1-8b-served": (
        (86_272.3, 86_383.7),
        {"import": 62.7, "load": 1.0, "compile": 25.5, "profile": 3.5, "capture": 3.0, "warmup": 15.7},
    ),
    # "torch.compile took 37.41 s", "Profiling CUDA graph memory" 5 s, "Graph capturing finished in 21 secs"
    "v1-qwen3-30b-a3b-served": (
        (310.8, 449.0),
        {"import": 58.2, "load": 2.0, "compile": 37.4, "profile": 16.6, "capture": 21.0, "warmup": 3.0},
    ),
    # "torch.compile took 21.98 s", "Graph capturing finished in 18 secs"
    "v2-deepseek-v2-lite-served": (
        (460.5, 574.3),
        {"import": 48.5, "load": 2.0, "compile": 21.5, "profile": 7.5, "capture": 18.0, "warmup": 16.3},
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_a_start(name: str) -> None:
    """Within a second and a half: the log's clock has whole seconds."""
    (started_at, ready_at), expected = STEPS[name]
    state, clock = read(name, started_at)
    clock.now = ready_at
    state.take_health(200)

    steps = dict(state.snapshot().steps)

    assert list(steps) == list(expected)
    assert steps == pytest.approx(expected, abs=1.5)
    assert sum(steps.values()) == pytest.approx(ready_at - started_at)
