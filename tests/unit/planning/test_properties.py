"""What holds for every plan."""

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import Plan, Refusal
from unit.perfmodel.samples import catalogue, generating_models, inputs_for, load_config, model_names, on

MODELS = st.sampled_from(
    ["meta-llama--Meta-Llama-3.1-8B", "openai--gpt-oss-20b", "Qwen--Qwen3-30B-A3B", "Qwen--Qwen3.5-27B"]
)
CARD = next(row for row in catalogue() if row.name == "nvidia-h200")


def plan_with(name: str, memory_gib: float, **workload: Any) -> Plan | Refusal:
    """A plan on one card of this size, with the batch knobs held."""
    row = replace(CARD, memory_bytes=int(memory_gib * GIB), max_per_node=1)
    pin = {"maxNumSeqs": 64, "maxNumBatchedTokens": 2048}
    return make_plan(
        inputs_for(name, on("nvidia-h200", engine={"pin": pin}, workload=workload), catalogue=(row,))
    )


@settings(deadline=None, max_examples=40)
@given(name=MODELS, memory=st.floats(20, 200), more=st.floats(0, 100))
def test_more_memory_never_shortens_the_context_or_the_cache(name: str, memory: float, more: float) -> None:
    small, large = plan_with(name, memory), plan_with(name, memory + more)

    if isinstance(small, Plan):
        assert isinstance(large, Plan)
        assert large.knobs.max_model_len >= small.knobs.max_model_len
        assert large.memory[-2].size_bytes >= small.memory[-2].size_bytes


@settings(deadline=None, max_examples=40)
@given(name=MODELS, context=st.integers(2048, 32768), more=st.integers(0, 8192))
def test_a_longer_context_never_gives_more_concurrency(name: str, context: int, more: int) -> None:
    def at(length: int) -> Plan | Refusal:
        return plan_with(name, 139.8, context={"min": length, "max": length})

    shorter, longer = at(context), at(min(32768, context + more))

    assert isinstance(shorter, Plan)
    assert isinstance(longer, Plan)
    assert shorter.max_concurrency >= longer.max_concurrency


@settings(deadline=None, max_examples=40)
@given(name=MODELS, minimum=st.integers(1, 40_960), concurrency=st.integers(1, 64), memory=st.floats(20, 200))
def test_floors_are_kept_or_refused(name: str, minimum: int, concurrency: int, memory: float) -> None:
    workload = {
        "context": {"min": minimum},
        "inputTokens": {"p95": 1000},
        "outputTokens": {"p95": 200},
        "concurrency": {"min": concurrency},
    }

    result = plan_with(name, memory, **workload)

    if isinstance(result, Refusal):
        assert result.reason in {"DoesNotFit", "InvalidSpec"}
    else:
        assert result.knobs.max_model_len >= minimum


@pytest.mark.parametrize("name", generating_models())
@pytest.mark.parametrize("version", ["0.19.0", "0.26.0", "0.33.0"])
def test_every_model_fits_somewhere(name: str, version: str) -> None:
    result = make_plan(inputs_for(name, on("nvidia-b200", "nvidia-h200"), engine_version=version))

    assert isinstance(result, Plan), result


VALUES: list[Any] = [
    None,
    0,
    -1,
    1,
    3,
    1 << 20,
    1 << 40,
    0.5,
    float("nan"),
    float("inf"),
    "8",
    "",
    [],
    [1],
    {},
    True,
]


def mutated(seed: int) -> dict[str, Any]:
    """A model's config with one to three fields missing or strange."""
    chance = random.Random(seed)
    config = load_config(chance.choice(model_names()))
    part = config["text_config"] if "text_config" in config and chance.random() < 0.7 else config
    for _ in range(chance.randint(1, 3)):
        part[chance.choice(sorted(part))] = chance.choice(VALUES)
    return config


@pytest.mark.parametrize("seed", range(300))
def test_a_mutated_config_is_planned_or_refused_in_words(seed: int) -> None:
    result = make_plan(inputs_for(mutated(seed), on("nvidia-h200")))

    if isinstance(result, Refusal):
        assert result.message
    else:
        assert result.kv_cache_tokens > 0
        assert result.memory[0].size_bytes < result.total_bytes


@pytest.mark.parametrize(
    ("pin", "workload"),
    [
        ({"maxNumBatchedTokens": 1, "maxNumSeqs": 1}, {"inputTokens": {"p95": 100_000}}),
        (
            {"maxNumBatchedTokens": 16_777_216, "maxNumSeqs": 65_536},
            {"inputTokens": {"p50": 1, "p95": 1}, "outputTokens": {"p50": 1, "p95": 1}},
        ),
        ({"maxNumSeqs": 1, "maxModelLen": 1}, {}),
        ({"maxNumBatchedTokens": 3}, {"concurrency": {"min": 65_536}}),
    ],
)
def test_absurd_pins_are_answered_at_once(pin: dict[str, int], workload: dict[str, Any]) -> None:
    spec = on("nvidia-h200", engine={"pin": pin}, workload=workload, slo={"tpot": {"p95": "1ms"}})
    begin = time.process_time()

    result = make_plan(inputs_for("meta-llama--Meta-Llama-3.1-8B", spec))

    assert isinstance(result, Plan | Refusal)
    assert time.process_time() - begin < 2.0


@settings(deadline=None, max_examples=30)
@given(
    name=MODELS,
    tpot=st.integers(1, 10_000),
    ttft=st.integers(1, 60_000),
    prompt=st.integers(1, 30_000),
    answer=st.integers(1, 2000),
)
def test_an_objective_is_kept_or_told_to_be_missed(
    name: str, tpot: int, ttft: int, prompt: int, answer: int
) -> None:
    slo = {"tpot": {"p95": f"{tpot}ms"}, "ttft": {"p95": f"{ttft}ms"}}
    workload = {"inputTokens": {"p95": prompt}, "outputTokens": {"p95": answer}}

    result = make_plan(inputs_for(name, on("nvidia-h100-80gb", "nvidia-h200", slo=slo, workload=workload)))

    if isinstance(result, Plan):
        speed = result.speed
        assert speed is not None
        kept = speed.tpot_p95_seconds * 1e3 <= tpot and speed.ttft_p95_seconds * 1e3 <= ttft
        assert kept == (result.missed == ())
