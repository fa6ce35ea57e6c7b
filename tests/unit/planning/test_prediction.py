"""Speed that is expected of a full replica."""

import json
from typing import Any

import pytest

from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.arrivals import Lengths
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.planning.prediction import (
    TYPICAL,
    Load,
    tokens_per_second,
    tpot_p95_seconds,
    tpot_seconds,
)
from unit.perfmodel.samples import DATA, SMOLLM2, catalogue, load_config, on, planned

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
ALIKE = Load(lengths=Lengths(input_p50=1024, output_p50=128), assumed=False)
"""The lengths of the recorded loads of fixed lengths."""


def h200(*, seqs: int = 256, tokens: int = 8192, ranks: int = 1) -> SpeedModel:
    """Llama-3.1-8B with the knobs of the recorded runs."""
    config, row = load_config(LLAMA_8B), find_row(catalogue(), "nvidia-h200")
    assert row is not None
    return SpeedModel(
        SpeedCase(
            model=read_architecture(config),
            quantization=read_quantization(config),
            accelerator=row,
            tensor_parallel_size=ranks,
            dtype="bfloat16",
            kv_cache_dtype="auto",
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            max_model_len=33_280,
            engine_version=(0, 26, 0),
        )
    )


def test_a_full_replica_is_as_fast_as_the_recorded_one() -> None:
    """36.4 requests/s of 1,024 tokens in and 128 out saturate 256 sequences: TPOT 61.7 ms, 65.2 at p95."""
    assert tpot_seconds(h200(), ALIKE, 256) == pytest.approx(0.0617, rel=0.15)


def test_a_full_replica_takes_what_the_recorded_one_took() -> None:
    """At 29.0 requests/s TTFT stays at 0.19 s at p95; at 36.4 the queue grows: the capacity lies between."""
    assert 29.0 < tokens_per_second(h200(), ALIKE, 256) / 128 < 37.0


def test_one_request_alone_meets_no_prompts() -> None:
    model = h200()

    assert tpot_p95_seconds(model, ALIKE, 1) == model.decode_seconds(1, ALIKE.context)


@pytest.mark.parametrize("batch", [2, 8, 32, 128])
def test_p95_lies_above_the_mean(batch: int) -> None:
    model = h200()

    assert tpot_seconds(model, ALIKE, batch) < tpot_p95_seconds(model, ALIKE, batch)


def test_each_further_request_makes_tokens_slower_and_more() -> None:
    model = h200()
    batches = (1, 8, 32, 64, 128)

    paces = [tpot_seconds(model, ALIKE, each) for each in batches]
    rates = [tokens_per_second(model, ALIKE, each) for each in batches]

    assert paces == sorted(paces)
    assert rates == sorted(rates)


def test_lengths_that_are_not_said_are_assumed_and_said_to_be() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200"))

    assert plan.speed is not None
    assert (plan.speed.assumed, plan.speed.input_tokens) == (True, TYPICAL.input_p50)
    assert any("(assumed: the workload says none)" in each for each in plan.reasons)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"inputTokens": {"p50": 100}}, (100, 400, 129)),
        ({"inputTokens": {"p95": 4003}}, (1000, 4003, 129)),
        ({"inputTokens": {"p50": 100, "p95": 100}, "outputTokens": {"p50": 7}}, (100, 100, 7)),
    ],
)
def test_what_is_said_of_lengths_is_kept(workload: dict[str, Any], expected: tuple[int, int, int]) -> None:
    speed = planned(LLAMA_8B, on("nvidia-h200", workload=workload)).speed

    assert speed is not None
    assert (speed.input_tokens, speed.input_p95_tokens, speed.output_tokens) == expected


def test_assumed_lengths_fit_a_short_context() -> None:
    speed = planned(LLAMA_8B, on("nvidia-h200", workload={"context": {"min": 512, "max": 512}})).speed

    assert speed is not None
    assert speed.input_p95_tokens <= 256


def test_a_small_cache_is_the_bound() -> None:
    """An L4 holds 15 GiB of weights and some 30 requests of a thousand tokens."""
    speed = planned(LLAMA_8B, on("nvidia-l4")).speed

    assert speed is not None
    assert speed.bottleneck == "KVCapacity"


def test_few_sequences_are_bound_by_bandwidth() -> None:
    speed = planned(LLAMA_8B, on("nvidia-h200", engine={"pin": {"maxNumSeqs": 4}})).speed

    assert speed is not None
    assert (speed.bottleneck, speed.decode_regime) == ("MemoryBandwidth", "memory-bound")


def test_headroom_is_what_the_floors_leave() -> None:
    """One request of 2,048 tokens takes 129 blocks of 2 MiB, the null block included."""
    plan = planned(LLAMA_8B, on("nvidia-h200", workload={"context": {"min": 2048}}))
    cache = next(term.size_bytes for term in plan.memory if term.name == "kv_cache")

    assert plan.headroom_bytes == cache - 129 * (2 << 20)


def test_every_model_of_the_data_gets_a_prediction() -> None:
    names = json.loads((DATA / "models" / "ORIGIN.json").read_text())

    assert names
    assert planned(SMOLLM2, on("cpu")).speed is not None
