"""300 broken configs: each is refused by its field or sized to finite figures, at once."""

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import find_row
from llmservice_operator.planning.estimate import Estimate, EstimateInputs, estimate
from unit.perfmodel.samples import catalogue, load_config, model_names

MUTATIONS = 300
VALUES: tuple[Any, ...] = (
    None, 0, -1, 1, 10**6, 10**8, 2**31, 2**63, 10**30, math.nan, math.inf, -0.5, 0.5, 1e300, True, False, "", "x",
    "4096", "NaN", [], [0], [None], ["x"] * 3, {}, {"a": 1},
)  # fmt: skip
WORTH_BREAKING = ("text_config", "vision_config", "rope_scaling", "rope_parameters", "quantization_config")

Path = tuple[str, ...]


def fields(values: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, dict) and key in WORTH_BREAKING:
            yield from fields(value, (*path, key))


def mutated(seed: int) -> dict[str, Any]:
    """A published config with one to three of its fields missing, zero, huge or of another type."""
    rng = random.Random(seed)
    config = load_config(rng.choice(model_names()))
    for path in rng.sample(sorted(fields(config)), rng.choice([1, 1, 1, 2, 3])):
        owner: Any = config
        for key in path[:-1]:
            owner = owner.get(key) if isinstance(owner, dict) else None
        if not isinstance(owner, dict):
            continue
        if rng.random() < 0.2:
            owner.pop(path[-1], None)
        else:
            owner[path[-1]] = rng.choice(VALUES)
    return config


def refusal_or_estimate(config: dict[str, Any]) -> tuple[str, Estimate | None]:
    row = find_row(catalogue(), "nvidia-h200")
    try:
        return "", estimate(EstimateInputs(config=config, card=row, engine_version="0.26.0"))
    except InvalidInputError as refusal:
        return str(refusal), None


@pytest.mark.timeout(5)
@pytest.mark.parametrize("seed", range(MUTATIONS))
def test_a_broken_config_is_refused_by_its_field_or_sized_to_finite_figures(seed: int) -> None:
    refusal, found = refusal_or_estimate(mutated(seed))

    if found is None:
        assert refusal.startswith("config.json: ")
    else:
        figures = [*found.to_json()["memory"].values(), found.kv_cache.tokens, found.kv_cache.blocks]
        assert all(isinstance(each, int) and 0 <= each < 2**80 for each in figures)
        assert found.memory.weights_bytes > 0


def test_a_config_that_contains_itself_is_refused() -> None:
    config = load_config("meta-llama--Meta-Llama-3.1-8B")
    config["text_config"] = {"text_config": config}

    refusal, _ = refusal_or_estimate(config)

    assert "text_config.hidden_size" in refusal


def test_a_field_of_a_hundred_megabytes_is_refused_in_a_short_message() -> None:
    config = load_config("meta-llama--Meta-Llama-3.1-8B") | {"hidden_size": "9" * 100_000_000}

    refusal, _ = refusal_or_estimate(config)

    assert refusal.startswith("config.json: hidden_size is '999")
    assert len(refusal) < 300
