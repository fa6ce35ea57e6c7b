"""The CPU engine's memory, against starts of it (tests/truth/cpu)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.memory import Batch
from llmservice_operator.perfmodel.memory_cpu import CpuAccount, cpu_account
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from unit.perfmodel.samples import SMOLLM2, load_config

MIB, GIB = 1 << 20, 1 << 30
RECORDS = Path(__file__).parents[2] / "truth" / "cpu" / "memory.json"
SUPERVISOR_MIB = 13
"""Not around the recorded starts."""
TOKENIZER_MIB = 170
"""The wide one has none: its API server and engine core hold so much less."""


@cache
def records() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(RECORDS.read_text())}


def account_of(record: dict[str, Any]) -> CpuAccount:
    config = {**load_config("Qwen--Qwen3-0.6B"), "num_hidden_layers": 4, "max_window_layers": 4}
    config = SMOLLM2 if record["model"].startswith("SmolLM2") else config
    model, dtype = read_architecture(config), "float32"
    batch = Batch(
        max_num_seqs=record["max_num_seqs"],
        max_num_batched_tokens=record["max_num_batched_tokens"],
        tensor_parallel_size=1,
        dtype=dtype,
        enforce_eager=record["enforce_eager"],
    )
    weights = rank_weight_bytes(model, read_quantization(config), dtype=dtype, tensor_parallel_size=1)
    compiles = not record.get("compile_disabled", False)
    return cpu_account(weights_bytes=weights, model=model, batch=batch, compiles=compiles)


GIVEN = [name for name, each in records().items() if each["kv_cache_bytes"] is not None]


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_ready_engine_holds(name: str) -> None:
    """Within 0.13 GiB, what equal starts differ by and the tokenizer's rounding."""
    record, account = records()[name], account_of(records()[name])
    missing = SUPERVISOR_MIB + (TOKENIZER_MIB if name == "wide-vocabulary" else 0)

    held = record["ready_mib"] + missing - record["kv_cache_bytes"] / MIB
    assert (account.process_bytes + account.weights_bytes + account.packed_bytes) / MIB == pytest.approx(
        held, abs=0.13 * 1024
    )


@pytest.mark.parametrize("name", GIVEN)
def test_no_load_takes_more_than_a_plan_leaves(name: str) -> None:
    record, account = records()[name], account_of(records()[name])

    highest = max(each["peak_mib"] for each in record["loaded"]) + SUPERVISOR_MIB
    assert highest <= (account.fixed_bytes + record["kv_cache_bytes"]) / MIB


@pytest.mark.parametrize("name", GIVEN)
def test_a_plan_leaves_no_more_than_a_quarter_unused_beside_the_cache(name: str) -> None:
    record, account = records()[name], account_of(records()[name])

    highest = max(each["peak_mib"] for each in record["loaded"]) - record["kv_cache_bytes"] / MIB
    assert (account.fixed_bytes - account.compiler_bytes) / MIB <= 1.25 * highest


def test_the_worker_takes_off_what_it_holds_when_it_sizes_its_cache() -> None:
    record = records()["sized-by-itself"]

    assert account_of(record).worker_bytes / GIB == pytest.approx(record["said_consumed_gib"], abs=0.13)


def test_a_wide_vocabulary_is_held_three_times() -> None:
    """The matrix and two packed copies: 151,936 x 1,024 x 4 B is 593.5 MiB."""
    account = account_of(records()["wide-vocabulary"])

    assert account.packed_bytes / MIB == pytest.approx(2 * 593.5)
