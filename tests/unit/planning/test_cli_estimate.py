"""`llmservice estimate`: what it prints, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.cli import main
from unit.perfmodel.samples import DATA

LLAMA_8B = str(DATA / "models" / "meta-llama--Meta-Llama-3.1-8B")
GIVEN = ("--config", LLAMA_8B, "--accelerator", "nvidia-h200", "--engine-version", "0.26.0")


def ends(*arguments: str) -> int:
    return main(["estimate", *arguments])


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    ends(*GIVEN, *arguments, "-o", "json")
    return json.loads(capsys.readouterr().out)


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "--set", "max_model_len=8192", "--set", "tensor_parallel_size=2")

    assert set(document) == {
        "memory", "kv_cache", "fits", "shortfall_bytes", "warnings", "explain", "settings"
    }  # fmt: skip
    assert set(document["memory"]) == {
        "total_bytes", "requested_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes", "cuda_graph_bytes",
        "cuda_graph_charged_bytes", "kv_cache_bytes", "outside_budget_bytes",
    }  # fmt: skip
    assert set(document["kv_cache"]) == {
        "tokens",
        "blocks",
        "block_size",
        "bytes_per_token",
        "max_concurrency",
    }
    assert document["fits"] is True
    assert document["settings"]["tensor_parallel_size"] == 2


def test_the_part_of_speed(capsys: pytest.CaptureFixture[str]) -> None:
    speed = printed(
        capsys, "--prefill", "512", "--prefill", "1024", "--decode", "16x2048", "--arrival", "2:500:100"
    )["speed"]

    assert [each["tokens"] for each in speed["prefill"]] == [512, 1024]
    assert set(speed["prefill"][0]) == {"tokens", "ttft_seconds", "regime"}
    assert set(speed["decode"][0]) == {"batch", "context", "itl_seconds", "regime"}
    assert speed["open_loop"]["rate_per_second"] == 2
    assert speed["ridge_point_flops_per_byte"] > 0


def test_the_same_in_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys)
    ends(*GIVEN, "-o", "yaml")

    assert yaml.safe_load(capsys.readouterr().out) == document


def test_the_table_shows_every_term_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(*GIVEN, "--prefill", "512", "--decode", "1x512", "--arrival", "1:500:100") == 0

    out = capsys.readouterr().out
    assert out.startswith("vLLM 0.26.0 on nvidia-h200: it starts\n")
    assert "requested              128.62 GiB  ceil(total x gpu_memory_utilization 0.92)" in out
    assert "TTFT of 512 tokens" in out


def test_what_does_not_start_ends_with_1_and_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--config", LLAMA_8B, "--accelerator", "nvidia-t4", "--engine-version", "0.26.0")

    assert ends(*arguments, "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["fits"] is False


def test_environment_and_entry_point_reach_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    document = printed(capsys, "--entry-point", "llm", "--env", "VLLM_USE_V2_MODEL_RUNNER=0")

    assert document["settings"]["max_num_batched_tokens"] == 16384
    assert document["settings"]["model_runner"] == "V1"


def test_a_config_with_its_quantisation_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text((DATA / "models" / Path(LLAMA_8B).name / "config.json").read_text())
    apart = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(apart))

    ends("--config", str(tmp_path), "--accelerator", "nvidia-h200", "-o", "json")

    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["kv_cache_dtype"] == "fp8_e4m3"


def test_rows_of_a_users_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.yaml"
    rows.write_text(
        "rows:\n- {name: acme-x1, memoryGiB: 64, memoryBandwidthBytesPerSecond: 2e12, bf16FlopsPerSecond: 4e14, "
        "resourceName: acme.dev/x, costPerHour: 1}\n"
    )

    assert ends("--config", LLAMA_8B, "--accelerator", "acme-x1", "--catalogue", str(rows)) == 0
    assert "acme-x1" in capsys.readouterr().out


def checkpoint(folder: Path, size_bytes: int) -> None:
    """A folder with Llama-3.1-8B's config and one sparse safetensors file."""
    (folder / "config.json").write_text((Path(LLAMA_8B) / "config.json").read_text())
    header = {"model.w": {"dtype": "BF16", "shape": [size_bytes // 2], "data_offsets": [0, size_bytes]}}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size_bytes)


def in_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    ends("--config", str(folder), *GIVEN[2:], "-o", "json")
    return json.loads(capsys.readouterr().out)


def test_a_checkpoint_that_agrees_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path, 16_060_522_496)  # metadata.total_size of its public index

    document = in_folder(tmp_path, capsys)
    assert "the checkpoint's 1 tensors have 14.96 GiB" in document["explain"]["memory"]["weights_bytes"]
    assert document["warnings"] == []


def test_a_checkpoint_that_has_more_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path, 2 * 16_060_522_496)

    document = in_folder(tmp_path, capsys)
    assert document["memory"]["weights_bytes"] > 2 * 16_000_000_000
    assert "its config.json tells of" in document["warnings"][0]


def test_a_file_that_is_no_checkpoint_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path, 1024)
    (tmp_path / "model.safetensors").write_bytes(b"<html>")

    assert "the checkpoint: " in in_folder(tmp_path, capsys)["warnings"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "/nowhere"), "/nowhere"),
        (("--config", LLAMA_8B, "--accelerator", "nvidia-h2000"), "did you mean nvidia-h200"),
        (("--config", LLAMA_8B), "give --accelerator NAME"),
        ((*GIVEN, "--set", "max_model_length=1"), "did you mean max_model_len?"),
        ((*GIVEN, "--env", "VLLM_USE_FLASHINFER_SAMPLER"), "NAME=VALUE is expected"),
        ((*GIVEN, "--prefill", "0"), "--prefill 0: whole numbers of 1 to"),
        ((*GIVEN, "--prefill", "9" * 99), "whole numbers of 1 to"),
        ((*GIVEN, "--decode", "16"), "--decode 16: BATCHxCONTEXT"),
        ((*GIVEN, "--decode", "16x-1"), "--decode 16x-1: whole numbers"),
        ((*GIVEN, "--arrival", "1:2"), "--arrival 1:2: RATE:IN_P50:OUT_P50"),
        ((*GIVEN, "--arrival", "nan:1:1"), "--arrival nan:1:1: a rate of more than 0"),
        ((*GIVEN, "--arrival", "1:one:1"), "whole numbers"),
    ],
)
def test_a_bad_use_ends_with_2_and_a_sentence(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(*arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("llmservice estimate: ")
    assert message in captured.err
