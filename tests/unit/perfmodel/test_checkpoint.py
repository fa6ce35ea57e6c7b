"""What the headers of safetensors files tell, what they are not believed, and what is not loaded of a checkpoint.

Names and shapes are those of public checkpoints: SmolLM2-135M, Qwen3.5, DeepSeek-V3, Qwen2.5-VL.
"""

import json
from typing import Any

import pytest

from llmservice_operator.perfmodel.checkpoint import (
    MAX_HEADER_BYTES,
    Checkpoint,
    CheckpointError,
    Tensor,
    add_up,
    header_length,
    index_total,
    read_header,
    weight_files,
)


def header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


def described(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def checkpoint(*names: str, config: dict[str, Any] | None = None) -> Checkpoint:
    """One tensor of 100 bytes of each name."""
    return add_up([[Tensor(name, "BF16", 100) for name in names]], config or {})


def test_tensors_are_listed_with_their_bytes() -> None:
    text = header(
        __metadata__={"format": "pt"},
        a=described("BF16", [49152, 576], 0, 56_623_104),
        b=described("F32", [576], 56_623_104, 56_625_408),
    )

    assert read_header(text) == (Tensor("a", "BF16", 56_623_104), Tensor("b", "F32", 2_304))


def test_four_bit_tensors_are_half_a_byte_an_element() -> None:
    assert read_header(header(a=described("F4", [3, 2], 0, 3))) == (Tensor("a", "F4", 3),)


def test_format_that_is_not_known_counts_by_its_place() -> None:
    assert read_header(header(a=described("F3_NEW", [8], 0, 3))) == (Tensor("a", "F3_NEW", 3),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"<html>", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (header(a=7), "has not a dtype"),
        (header(a={"dtype": "BF16", "shape": [1]}), "has not a dtype"),
        (header(a=described("BF16", [1], 0, 2) | {"shape": "1"}), "has not a dtype"),
        (header(a=described("BF16", [1], 0, 2) | {"data_offsets": [0, True]}), "has not a dtype"),
        (header(a=described("BF16", [-1], 0, 2)), "has not a dtype"),
        (header(a=described("BF16", [1], 0, 1 << 63)), "has not a dtype"),
        (header(a=described("BF16", [1], 8, 2)), "claims -6 bytes"),
        (header(a=described("BF16", [100], 0, 2)), "does not fill its 2 bytes"),
        (header(a=described("BF16", [1 << 40] * 8, 0, 2)), "does not fill"),
        (header(a=described("BF16", [1] * 17, 0, 2)), "claims 2 bytes"),
    ],
)
def test_header_that_cannot_be_is_refused_by_name(text: bytes, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_header(text)


def test_tensors_that_the_file_has_no_room_for_are_refused() -> None:
    text = header(a=described("BF16", [500], 0, 1000))

    with pytest.raises(CheckpointError, match="its tensors are 1,000 bytes, and the whole file has 900"):
        read_header(text, 900)


@pytest.mark.parametrize(
    ("first", "file_bytes", "words"),
    [
        (b"", None, "it has 0 bytes"),
        (b"\x10\x00\x00", None, "it has 3 bytes"),
        ((1 << 63).to_bytes(8, "little"), None, "claims 9,223,372,036,854,775,808 bytes"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), None, "at most 8,388,608 are read"),
        ((0).to_bytes(8, "little"), None, "claims 0 bytes"),
        ((1000).to_bytes(8, "little"), 500, "and the file has 500"),
        (b"<!DOCTYPE html>", None, "claims"),
    ],
)
def test_length_that_cannot_be_is_refused(first: bytes, file_bytes: int | None, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        header_length(first, file_bytes)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.0.mlp.down_proj.weight", "model"),
        ("model.language_model.layers.3.linear_attn.A_log", "model"),
        ("mtp.layers.0.mlp.experts.5.gate_proj.weight", "mtp"),
        ("model.mtp_layers.0.input_proj.weight", "mtp"),
        ("model.layers.61.embed_tokens.weight", "mtp"),
        ("visual.blocks.0.attn.qkv.weight", "vision"),
        ("model.visual.merger.mlp.0.weight", "vision"),
        ("vision_tower.vision_model.encoder.layers.70.mlp.fc1.weight", "vision"),
        ("multi_modal_projector.linear_1.weight", "vision"),
        ("model.embed_vision.embedding_projection.weight", "vision"),
        ("model.audio_tower.layers.0.norm.weight", "vision"),
        ("lm_head.weight", "model"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "buffers"),
    ],
)
def test_part_of_a_tensor_is_told_by_its_name(name: str, part: str) -> None:
    config = {"text_config": {"num_hidden_layers": 61}, "tie_word_embeddings": False}

    assert checkpoint(name, config=config).sizes == ((part, "BF16", 100),)


def test_head_beside_a_tied_embedding_is_not_loaded_twice() -> None:
    found = checkpoint("model.embed_tokens.weight", "lm_head.weight", config={"tie_word_embeddings": True})

    assert (found.total_bytes, found.loaded_bytes(vision=True)) == (200, 100)


def test_what_is_loaded_depends_on_what_is_served() -> None:
    found = checkpoint("model.norm.weight", "visual.a.weight", "mtp.norm.weight")

    loaded = [
        found.loaded_bytes(vision=vision, mtp=mtp)
        for vision, mtp in [(False, False), (True, False), (False, True), (True, True)]
    ]
    assert loaded == [100, 200, 200, 300]


def test_wider_checkpoint_is_cast_while_it_is_loaded() -> None:
    found = add_up([[Tensor("a.weight", "F32", 400), Tensor("b.weight", "I64", 80)]], {})

    assert found.loaded_bytes(vision=True, float_bytes=2) == 280


@pytest.mark.parametrize("layers", [None, "61", True, -3, 0])
def test_number_of_layers_that_is_none_makes_no_prediction_layer(layers: object) -> None:
    assert checkpoint("model.layers.61.x.weight", config={"num_hidden_layers": layers}).part("mtp") == 0


# ── which files ──────────────────────────────────────────────────────────────────────────────────────────────


def test_files_of_the_index_are_the_weights() -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    names = [*index["weight_map"].values(), "extra.safetensors"]

    assert weight_files(names, index) == tuple(index["weight_map"].values())


@pytest.mark.parametrize("index", [None, {}, {"weight_map": []}, {"weight_map": {"a": "gone.safetensors"}}])
def test_without_a_good_index_all_of_the_folder_are(index: dict[str, Any] | None) -> None:
    names = ["model.safetensors", "consolidated.safetensors", "original/model.safetensors", "a.bin"]

    assert weight_files(names, index) == ("model.safetensors",)


@pytest.mark.parametrize(
    ("total", "size"),
    [(16_381_470_720, 16_381_470_720), (-1, None), (0, None), ("7", None), (True, None), (1e9, None)],
)
def test_total_of_an_index_is_believed_if_it_is_a_size(total: object, size: int | None) -> None:
    assert index_total({"metadata": {"total_size": total}}) == size
