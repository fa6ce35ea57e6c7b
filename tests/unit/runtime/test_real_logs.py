"""Logs of real starts, read from end to end: the figures are those that the engine printed and served."""

from pathlib import Path

from llmservice_runtime.classifier import Ending, Failure, classify
from llmservice_runtime.config import Config
from llmservice_runtime.log_parser import GIB
from llmservice_runtime.state import EngineState, Snapshot

DATA = Path(__file__).parent / "data"


class StillClock:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0


def read(name: str) -> EngineState:
    state = EngineState(Config(service="a/b", revision="r"), StillClock(), None)
    for stream in ("stdout", "stderr"):
        for line in (DATA / f"{name}.{stream}.log").read_text(encoding="utf-8").splitlines():
            state.take_line(line)
    return state


def snapshot_of(name: str) -> Snapshot:
    return read(name).snapshot()


def test_vllm_0_32_on_the_cpu_served() -> None:
    facts = snapshot_of("vllm-0.32.0-cpu-served").facts

    assert facts.version == "0.32.0"
    assert facts.kv_cache_bytes == GIB
    assert facts.total_bytes == int(17.96 * GIB)
    assert facts.kv_cache_tokens == 23_296
    assert facts.max_concurrency == 11.38
    assert facts.max_model_len == 2048
    assert facts.checkpoint_bytes == GIB // 4
    assert facts.weights_loaded


def test_vllm_0_32_on_the_cpu_had_too_little_kv_cache() -> None:
    state = read("vllm-0.32.0-cpu-kv-too-small")
    evidence, last_error = state.causes()

    failure = classify(
        Ending(exit_code=1, signal=None, stage=state.step, was_ready=False), evidence, last_error
    )

    assert failure.message.startswith(
        "ValueError: To serve at least one request with the model's max seq len (8192)"
    )
    assert failure == Failure(
        failure_class="KvCacheTooSmall",
        message=failure.message,
        stage="profile",
        exit_code=1,
        signal=None,
        estimated_max_model_len=1920,
        kv_cache_needed_bytes=int(0.35 * GIB),
        kv_cache_available_bytes=int(0.09 * GIB),
    )


def test_an_orderly_stop_leaves_no_evidence_but_the_symptom() -> None:
    """The real engine logs EngineDeadError when it is told to stop."""
    evidence, _ = read("vllm-0.32.0-cpu-served").causes()

    assert {item.failure_class for item in evidence} <= {"EngineDied"}
