"""The loop on what real engines printed: vLLM 0.26.0 on an NVIDIA H200, as recorded in `unit/runtime/data`."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from llmservice_operator.api.conditions import Reason
from llmservice_operator.clients.engine import EngineFailure, EngineReport
from llmservice_operator.controller.accuracy import finding
from llmservice_operator.controller.failed_start import correction_of, tells_what_is_free
from llmservice_operator.controller.statusfields import engine_status
from llmservice_runtime.memory_facts import EngineFacts
from unit.perfmodel.samples import on, planned
from unit.runtime.test_real_cuda_logs import DATA, FACTS, FAILURES

GIB, MIB = 1 << 30, 1 << 20
TOTAL = int(139.8 * GIB)


def words_of(name: str) -> str:
    """The line that the engine failed with."""
    text = (Path(DATA) / f"vllm-0.26.0-h200-{name}.log").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(FAILURES[name].message)}.*", text)
    assert found is not None
    return found[0]


def report_of(facts: EngineFacts) -> EngineReport:
    """The supervisor's report of these facts, as the operator reads it."""
    names = {name: re.sub(r"_(\w)", lambda match: match[1].upper(), name) for name in asdict(facts)}
    memory = {names[name]: value for name, value in asdict(facts).items() if isinstance(value, int | float)}
    return EngineReport(service="a/b", revision="r", phase="Ready", engine_version="0.26.0", memory=memory)


def failure(name: str) -> EngineFailure:
    expected = FAILURES[name]
    return EngineFailure(failure_class=expected.failure_class, stage=expected.stage, message=words_of(name))


def test_load_that_broke_off_tells_what_it_had_come_to() -> None:
    correction = correction_of(failure("v2-oom-load"))

    assert correction.device_total_bytes == TOTAL
    assert correction.weights_at_least_bytes == int(138.42 * GIB) + int(1.75 * GIB)


def test_capture_that_broke_off_tells_what_was_missing() -> None:
    correction = correction_of(failure("v2-oom-capture"), report_of(FACTS["v2-oom-capture"]))

    assert correction.missing_bytes == pytest.approx((256 - 11.12) * MIB, abs=1)
    assert correction.weights_bytes == 15 * GIB


def test_card_in_use_tells_what_was_free() -> None:
    assert tells_what_is_free(failure("v2-device-not-empty"))
    assert correction_of(failure("v2-device-not-empty")).device_total_bytes == TOTAL


def test_start_without_room_for_a_block_tells_the_weights_that_it_had_loaded() -> None:
    correction = correction_of(failure("v2-no-kv-memory"), report_of(FACTS["v2-no-kv-memory"]))

    assert correction.weights_bytes == int(131.45 * GIB)


@pytest.mark.parametrize(
    "words", ["", "Tried to allocate 1.2.3 GiB", "Process 1 has . GiB memory in use", "(" * 5000]
)
def test_words_without_a_figure_tell_none(words: str) -> None:
    correction = correction_of(EngineFailure(failure_class="OutOfMemory", stage="load", message=words))

    assert (correction.device_total_bytes, correction.missing_bytes) == (None, None)


@pytest.mark.parametrize(
    ("log", "model"),
    [
        ("v2-llama-3.1-8b-served", "meta-llama--Meta-Llama-3.1-8B"),
        ("v1-qwen3-30b-a3b-served", "Qwen--Qwen3-30B-A3B"),
        ("v2-deepseek-v2-lite-served", "deepseek-ai--DeepSeek-V2-Lite"),
    ],
)
def test_plan_of_a_real_start_is_found_accurate(log: str, model: str) -> None:
    plan = planned(model, on("nvidia-h200", engine={"version": "0.26.0"}), engine_version="0.26.0")
    engine = engine_status(report_of(FACTS[log]), plan, 0.0)

    assert finding(engine, plan, "r").reason == Reason.WITHIN_TOLERANCE
