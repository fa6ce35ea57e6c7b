"""Predictions against what real engines reported: vLLM 0.26 on H200, 0.19 on H100, and public logs."""

from typing import Any

import pytest

from llmservice_operator.engines.versions import known_version, memory_rules
from llmservice_operator.perfmodel.memory import GIB, start_limit
from unit.perfmodel.samples import (
    read_starts,
    start_account,
    start_batch,
    start_layout,
    start_model,
    start_weights,
)

STARTS = read_starts("starts.json")
WEIGHTS = read_starts("weights.json")
GROUPED = {name: start for name, start in STARTS.items() if start["memory"]["num_gpu_blocks"]}
PRINTED = {name: start for name, start in GROUPED.items() if start["memory"]["max_concurrency"]}

WEIGHTS_TOLERANCE = 0.005
"""Of the weights. Worst seen: 0.4 %."""
LOG_ROUNDING_GIB = 0.005
UNDER_PROMISE_GIB = 2.6
"""By how much the KV cache is under-promised at most, the margin of 1 GiB included (runner V1 on H200, where
FlashInfer's sampler was off)."""


def each(starts: dict[str, dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("start", starts.values(), ids=starts.keys())


@each(STARTS)
def test_weights_of_measured_starts(start: dict[str, Any]) -> None:
    assert start_weights(start) / GIB == pytest.approx(start["memory"]["weights_gib"], rel=WEIGHTS_TOLERANCE)


@each(WEIGHTS)
def test_weights_of_public_logs(start: dict[str, Any]) -> None:
    tolerance = (
        0.009 if start["name"] == "mi-qwen7b-0170" else 0.003
    )  # a card of AMD, whose runtime pads more

    assert start_weights(start) / GIB == pytest.approx(start["weights_gib"], rel=tolerance)


@each(GROUPED)
def test_blocks_of_the_engines_own_pool(start: dict[str, Any]) -> None:
    layout, memory = start_layout(start), start["memory"]
    rounding = int(LOG_ROUNDING_GIB * GIB / layout.bytes_per_block) + 1

    blocks = layout.blocks(int(memory["available_kv_gib"] * GIB))

    assert blocks == pytest.approx(memory["num_gpu_blocks"], abs=rounding)


@each(PRINTED)
def test_concurrency_from_the_engines_own_blocks(start: dict[str, Any]) -> None:
    layout, memory = start_layout(start), start["memory"]

    concurrency = memory["num_gpu_blocks"] / layout.blocks_per_request(start["max_model_len"])

    assert round(concurrency, 2) == memory["max_concurrency"]


@each(PRINTED)
def test_block_size(start: dict[str, Any]) -> None:
    assert start_layout(start).block_size == start["memory"]["block_size"]


@each(STARTS)
def test_the_kv_cache_is_never_over_promised(start: dict[str, Any]) -> None:
    assert start_account(start).available / GIB <= start["memory"]["available_kv_gib"]


@each(STARTS)
def test_the_kv_cache_is_under_promised_by_a_stated_amount(start: dict[str, Any]) -> None:
    lacking = start["memory"]["available_kv_gib"] - start_account(start).available / GIB

    assert lacking <= UNDER_PROMISE_GIB


@each(STARTS)
def test_activation_is_not_under_estimated(start: dict[str, Any]) -> None:
    tolerance_gib = 0.06  # 70B FP8 at TP 2 on 0.19

    assert start_account(start).activation / GIB >= start["memory"]["peak_activation_gib"] - tolerance_gib


@each(STARTS)
def test_the_kind_is_told_in_words(start: dict[str, Any]) -> None:
    model = start_model(start)

    assert ("mixture of experts" in model.kind) == (model.mixture is not None)


@each(STARTS)
def test_no_start_that_worked_is_called_impossible(start: dict[str, Any]) -> None:
    model = start_model(start)

    limit = start_limit(
        total_bytes=int(start["memory"]["total_gib"] * GIB),
        model=model,
        batch=start_batch(start),
        rules=memory_rules(known_version(start["engine_version"]).version, model),
    )

    assert start["utilization"] <= limit
