"""The worked examples and tolerances of sizing.md are what the code computes."""

from pathlib import Path

import yaml

from llmservice_operator.perfmodel.accelerators import load_catalogue
from llmservice_operator.perfmodel.memory import GIB
from unit.perfmodel.samples import SMOLLM2, on, planned, read_starts, start_layout

DOC = (Path(__file__).resolve().parents[3] / "operator" / "docs" / "sizing.md").read_text()


def test_the_cpu_example() -> None:
    plan = planned(SMOLLM2, on("cpu", workload={"context": {"max": 2048}}))
    cache = next(term.explanation for term in plan.memory if term.name == "kv_cache")

    assert cache == "182 blocks, 5,898,240 B a block of 128 tokens"
    assert "= 5,898,240 B a block; 1 GiB holds 182 blocks" in DOC
    assert f"= {plan.max_concurrency:.2f} requests, {plan.kv_cache_tokens:,} tokens" in DOC


def test_the_h200_example() -> None:
    start = read_starts("starts.json")["h200-llama8b_default"]
    layout = start_layout(start)
    blocks = layout.blocks(int(start["memory"]["available_kv_gib"] * GIB))

    assert f"= {layout.bytes_per_block:,} B; 111.61 GiB hold {blocks:,} blocks" in DOC
    assert f"{blocks:,} / 512 = {blocks / layout.blocks_per_request(8192):.2f} requests" in DOC


def test_the_users_row_is_a_row() -> None:
    text = DOC.partition("```yaml\n")[2].partition("```")[0]

    assert [row.name for row in load_catalogue(text)] == ["nvidia-rtx-4090"]
    assert yaml.safe_load(text)
