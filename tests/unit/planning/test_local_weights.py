"""A checkpoint in a folder: its headers stand beside the config in the plan, and win where they have more."""

import json
from pathlib import Path
from typing import Any

import pytest

from llmservice_operator.cli_plan import model_from_path
from llmservice_operator.clients.safetensors_files import read_folder
from llmservice_operator.perfmodel.checkpoint import CheckpointError
from llmservice_operator.planning.types import ModelFacts, Plan
from unit.perfmodel.samples import load_config, on, planned

LLAMA = "meta-llama--Meta-Llama-3.1-8B"
LLAMA_BYTES = 16_060_522_496
"""`metadata.total_size` of the public index of Llama-3.1-8B."""


def write(path: Path, *tensors: tuple[str, str, int]) -> None:
    """A safetensors file without its tensors' bytes: sparse, so that tests can have gigabytes."""
    width = {"BF16": 2, "F32": 4}
    listed: dict[str, Any] = {}
    begin = 0
    for name, dtype, size in tensors:
        listed[name] = {
            "dtype": dtype,
            "shape": [size // width[dtype]],
            "data_offsets": [begin, begin + size],
        }
        begin += size
    text = json.dumps(listed).encode()
    with path.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        opened.truncate(8 + len(text) + begin)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Llama-3.1-8B's config, without weights."""
    (tmp_path / "config.json").write_text(json.dumps(load_config(LLAMA)))
    return tmp_path


def plan_of(facts: ModelFacts) -> Plan:
    return planned(LLAMA, on("nvidia-h200"), engine_version="0.26.0", model=facts)


def weights(plan: Plan) -> int:
    return next(term.size_bytes for term in plan.memory if term.name == "weights")


def test_checkpoint_that_agrees_stands_beside_the_shapes(folder: Path) -> None:
    write(folder / "model.safetensors", ("model.layers.0.w", "BF16", LLAMA_BYTES))

    plan = plan_of(model_from_path(folder))

    (term,) = (each for each in plan.memory if each.name == "weights")
    assert "the checkpoint's 1 tensors have 14.96 GiB" in term.explanation
    assert not [each for each in plan.warnings if "checkpoint" in each]


def test_checkpoint_with_more_than_the_config_tells_is_planned_for(folder: Path) -> None:
    write(folder / "model.safetensors", ("model.layers.0.w", "BF16", 2 * LLAMA_BYTES))

    plan = plan_of(model_from_path(folder))

    assert weights(plan) == pytest.approx(2 * LLAMA_BYTES, rel=0.01)
    assert any("29.92 GiB is planned for" in each for each in plan.warnings)


def test_checkpoint_with_less_than_the_config_tells_is_told(folder: Path) -> None:
    write(folder / "model.safetensors", ("model.layers.0.w", "BF16", LLAMA_BYTES // 2))

    plan = plan_of(model_from_path(folder))

    assert weights(plan) == pytest.approx(LLAMA_BYTES, rel=0.01)
    assert any("the shapes are planned for" in each for each in plan.warnings)


def test_prediction_layers_and_towers_are_no_contradiction(folder: Path) -> None:
    write(
        folder / "model.safetensors",
        ("model.layers.0.w", "BF16", LLAMA_BYTES),
        ("mtp.layers.0.w", "BF16", LLAMA_BYTES // 16),
    )

    plan = plan_of(model_from_path(folder))

    assert weights(plan) == pytest.approx(LLAMA_BYTES, rel=0.01)
    assert any("0.93 GiB more are not loaded" in each.explanation for each in plan.memory)
    assert not [each for each in plan.warnings if "checkpoint" in each]


def test_wider_checkpoint_than_is_served_is_no_contradiction(folder: Path) -> None:
    """Stored in float32, loaded in bfloat16."""
    write(folder / "model.safetensors", ("model.layers.0.w", "F32", 2 * LLAMA_BYTES))

    plan = plan_of(model_from_path(folder))

    assert not [each for each in plan.warnings if "checkpoint" in each]


def test_index_alone_tells_the_size(folder: Path) -> None:
    index = {"metadata": {"total_size": LLAMA_BYTES}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert model_from_path(folder).weights_bytes == LLAMA_BYTES


@pytest.mark.parametrize("body", [b"", b"\xff" * 8, (1 << 62).to_bytes(8, "little"), b"<html>" * 9])
def test_file_that_is_no_checkpoint_is_named_and_the_plan_goes_on(folder: Path, body: bytes) -> None:
    (folder / "model.safetensors").write_bytes(body)

    plan = plan_of(model_from_path(folder))

    assert any("model.safetensors is no safetensors file" in each for each in plan.warnings)


def test_checkpoint_that_was_cut_off_is_named(folder: Path) -> None:
    write(folder / "model.safetensors", ("a", "BF16", 1000))
    with (folder / "model.safetensors").open("r+b") as opened:
        opened.truncate(500)

    with pytest.raises(CheckpointError, match="its tensors are 1,000 bytes, and the whole file has 500"):
        read_folder(folder, {})


def test_folder_without_weights_tells_nothing(folder: Path) -> None:
    facts = model_from_path(folder)

    assert (facts.weights_bytes, facts.checkpoint, facts.weights_problem) == (None, None, "")
