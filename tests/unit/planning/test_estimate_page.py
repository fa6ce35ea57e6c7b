"""operator/docs/estimate.md: what it says of flags, defaults and keys is so."""

from pathlib import Path

import pytest

from llmservice_operator.engines.defaults import batch_defaults, utilization
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.estimate import EstimateInputs, estimate
from unit.perfmodel.samples import catalogue, load_config

PAGE = (Path(__file__).resolve().parents[3] / "operator" / "docs" / "estimate.md").read_text()


def row(name: str) -> AcceleratorRow:
    return next(each for each in catalogue() if each.name == name)


def table_row(begin: str) -> list[str]:
    line = next(each for each in PAGE.splitlines() if each.startswith(f"| {begin}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("begin", "name"),
    [("160 GiB", "nvidia-b200"), ("70 GiB", "nvidia-h200"), ("others", "nvidia-l4")],
)
def test_the_table_of_batch_defaults(begin: str, name: str) -> None:
    server, program = (batch_defaults((0, 33, 0), row(name), entry, ranks=1) for entry in ("server", "llm"))

    assert table_row(begin)[1:] == [f"{server.tokens:,}", f"{program.tokens:,}", f"{server.seqs:,}"]


def test_the_defaults_of_the_cpu() -> None:
    server, program = (batch_defaults((0, 33, 0), row("cpu"), entry, ranks=1) for entry in ("server", "llm"))

    expected = [f"{server.tokens:,}", f"{program.tokens:,}", f"{server.seqs}, class LLM {program.seqs}"]
    assert table_row("CPU")[1:] == expected


def test_the_default_share_of_the_card() -> None:
    first, later = utilization((0, 19, 0)), utilization((0, 20, 2))

    assert f"`gpu_memory_utilization` {first:g} up to 0.19 and {later:g} after" in PAGE


def test_every_key_of_the_document_is_on_the_page() -> None:
    inputs = EstimateInputs(
        config=load_config("Qwen--Qwen3-8B"),
        card=row("nvidia-h200"),
        engine_version="0.26.0",
        prefill=(512,),
        decode=((1, 512),),
    )
    document = estimate(inputs).to_json()
    keys = [*document, *document["memory"], *document["kv_cache"], *document["speed"]]

    assert [key for key in keys if f"`{key}`" not in PAGE] == []
