"""What holds for every estimate."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmservice_operator.engines.flags import MEMORY_FLAGS
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.estimate import Estimate, EstimateInputs, estimate
from unit.perfmodel.samples import catalogue, generating_models, load_config

H200 = next(row for row in catalogue() if row.name == "nvidia-h200")
MODELS = [
    "meta-llama--Meta-Llama-3.1-8B",
    "openai--gpt-oss-20b",
    "Qwen--Qwen3.5-27B",
    "deepseek-ai--DeepSeek-V2-Lite",
]
TEXTS = [
    None, "", "0", "1", "-1", "3", "0.5", "1e9", "nan", "inf", "auto", "true", "none", "fp8", "[1,2]", "[]", "{}",
    '{"a": 1}', '{"image": 0}', '{"method": "mtp", "num_speculative_tokens": 3}', "8K", "9" * 40, "\u0663", "é",
    '{"cudagraph_capture_sizes": "x"}', '{"cudagraph_capture_sizes": [1, null]}', '{"method": 3, "model": []}',
]  # fmt: skip


def estimated(config: Any, *flags: tuple[str, str | None], version: str = "0.26.0") -> Estimate:
    return estimate(EstimateInputs(config=config, card=H200, engine_version=version, flags=flags))


def sane(result: Estimate) -> bool:
    """Numbers that can be printed, none below nothing, and a reason wherever it doesn't fit."""
    document = result.to_json()
    json.dumps(document, allow_nan=False)
    numbers = [*document["memory"].values(), *document["kv_cache"].values(), document["shortfall_bytes"]]
    return all(number >= 0 for number in numbers) and (result.fits or bool(result.warnings))


@pytest.mark.parametrize("flag", sorted(MEMORY_FLAGS))
@pytest.mark.parametrize("model", MODELS)
def test_a_flag_is_refused_in_words_or_taken(flag: str, model: str) -> None:
    config = load_config(model)
    for text in TEXTS:
        try:
            result = estimated(config, (flag, text))
        except InvalidInputError as error:
            assert len(str(error)) < 500  # noqa: PT017 - either is right
        else:
            assert sane(result)


@settings(deadline=None, max_examples=60)
@given(
    model=st.sampled_from(MODELS),
    memory=st.floats(8, 200),
    more=st.floats(0, 100),
    version=st.sampled_from(["0.8.5", "0.11.0", "0.19.0", "0.26.0", "0.33.0"]),
)
def test_more_memory_never_holds_fewer_tokens(model: str, memory: float, more: float, version: str) -> None:
    """The batch knobs are held: their defaults grow with the card."""
    held = (("max_num_seqs", "64"), ("max_num_batched_tokens", "2048"), ("max_model_len", "4096"))
    config = load_config(model)
    small, large = (
        estimated(config, ("total_gib", f"{size}"), *held, version=version)
        for size in (memory, memory + more)
    )

    assert large.kv_cache.tokens >= small.kv_cache.tokens
    assert large.fits or not small.fits


@settings(deadline=None, max_examples=60)
@given(model=st.sampled_from(MODELS), length=st.integers(1, 60_000), longer=st.integers(0, 60_000))
def test_a_longer_context_never_serves_more_requests(model: str, length: int, longer: int) -> None:
    held = (("max_num_seqs", "64"), ("max_num_batched_tokens", "2048"))
    config = load_config(model)
    short, long = (
        estimated(config, ("max_model_len", str(size)), *held) for size in (length, length + longer)
    )

    assert long.kv_cache.max_concurrency <= short.kv_cache.max_concurrency


@pytest.mark.parametrize("model", MODELS)
def test_what_auto_takes_is_the_longest_that_starts(model: str) -> None:
    held = (("kv_cache_memory_bytes", "1G"), ("max_num_seqs", "8"), ("max_num_batched_tokens", "2048"))
    config = load_config(model)
    longest = estimated(config, *held, ("max_model_len", "auto")).settings["max_model_len"]

    assert estimated(config, *held, ("max_model_len", str(longest))).fits
    assert not estimated(config, *held, ("max_model_len", str(longest + 1))).fits


def mutated(config: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The config with one to three fields gone, or of another value or type."""
    changed: dict[str, Any] = json.loads(json.dumps(config))
    for _ in range(dice.randint(1, 3)):
        holder = changed
        key = dice.choice(sorted(holder))
        while isinstance(holder[key], dict) and holder[key] and dice.random() < 0.7:
            holder = holder[key]
            key = dice.choice(sorted(holder))
        values = (
            0,
            -1,
            1,
            10**12,
            2.5,
            float("nan"),
            float("inf"),
            "",
            "x",
            None,
            True,
            [],
            {},
            [[]],
            {"a": {}},
        )
        if dice.random() < 0.2:
            del holder[key]
        else:
            holder[key] = dice.choice(values)
        if not holder:
            break
    return changed


def test_three_hundred_mutated_configs_are_refused_in_words_or_estimated() -> None:
    dice = random.Random(20260921)
    models = generating_models()
    for _ in range(300):
        config = mutated(load_config(dice.choice(models)), dice)
        try:
            result = estimated(config, ("max_model_len", "4096"))
        except InvalidInputError as error:
            assert "config.json" in str(error)  # noqa: PT017 - either is right
        else:
            assert sane(result)
