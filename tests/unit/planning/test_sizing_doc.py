"""The worked examples and tolerances of sizing.md are what the code computes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.engines.versions import memory_rules
from llmservice_operator.perfmodel.accelerators import load_catalogue
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.kv_cache import CacheSettings, cache_layout
from llmservice_operator.perfmodel.memory import (
    GIB,
    context_bytes,
    growth_bytes,
    margin_bytes,
    outside_margin_bytes,
    safe_utilization,
)
from llmservice_operator.perfmodel.memory_sampler import sampler_bytes, sampler_state_bytes
from llmservice_operator.planning.prediction import TYPICAL, tokens_per_second, tpot_p95_seconds, tpot_seconds
from llmservice_operator.planning.slices import Profile, sliced
from unit.perfmodel.samples import (
    SMOLLM2,
    catalogue,
    load_config,
    on,
    planned,
    read_starts,
    start_account,
    start_batch,
    start_layout,
    start_model,
)
from unit.planning.test_prediction import ALIKE, h200

DOC = (Path(__file__).resolve().parents[3] / "operator" / "docs" / "sizing.md").read_text()
LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"


@pytest.fixture
def start() -> dict[str, Any]:
    return read_starts("starts.json")["h200-llama8b_default"]


def row_of(name: str) -> list[float]:
    """The numbers at the end of a line of the worked account: ours, and the engine's where it is told."""
    (line,) = re.findall(rf"^{name} .*GiB.*$", DOC, re.MULTILINE)
    return [float(each) for each in re.findall(r"(?:=|engine:) +([\d.]+)", line)]


def test_the_cpu_example() -> None:
    plan = planned(SMOLLM2, on("cpu", workload={"context": {"max": 2048}}))
    cache = next(term.explanation for term in plan.memory if term.name == "kv_cache")

    assert cache == "182 blocks, 5,898,240 B a block of 128 tokens"
    assert "= 5,898,240 B a block; 1 GiB holds 182 blocks" in DOC
    assert f"= {plan.max_concurrency:.2f} requests, {plan.kv_cache_tokens:,} tokens" in DOC


def test_the_h200_example(start: dict[str, Any]) -> None:
    layout = start_layout(start)
    blocks = layout.blocks(int(start["memory"]["available_kv_gib"] * GIB))

    assert f"= {layout.bytes_per_block:,} B; 111.61 GiB hold {blocks:,} blocks" in DOC
    assert f"{blocks:,} / 512 = {blocks / layout.blocks_per_request(8192):.2f} requests" in DOC


@pytest.mark.parametrize(
    ("line", "term", "engines"),
    [
        ("requested", "requested", None),
        ("weights", "weights", "weights_gib"),
        ("activation", "activation", "peak_activation_gib"),
        ("non_torch", "non_torch", "non_torch_gib"),
    ],
)
def test_a_line_of_the_account(start: dict[str, Any], line: str, term: str, engines: str | None) -> None:
    expected = [round(getattr(start_account(start), term) / GIB, 2)]
    if engines is not None:
        expected.append(start["memory"][engines])

    assert row_of(line) == pytest.approx(expected, abs=0.001)


def test_the_cache_of_the_account(start: dict[str, Any]) -> None:
    account = start_account(start)

    assert row_of("kv_cache") == pytest.approx(
        [round((account.available + account.margin) / GIB, 2), start["memory"]["available_kv_gib"]], abs=0.001
    )


def test_the_forward_pass_by_hand() -> None:
    """Gate and up, the product; attention's output and two residuals; cuBLAS and the L2 cache of an H200."""
    parts = (16_384 * 14_336 * 6, 3 * 16_384 * 4_096 * 2, (32 << 20) + (60 << 20))

    lines = DOC.partition("forward  ")[2].splitlines()[:3]
    assert [float(each.rpartition("=")[2].split()[0]) for each in lines] == [
        pytest.approx(each / GIB, abs=0.006) for each in parts
    ]
    assert sum(parts) / GIB == pytest.approx(row_of("activation")[0], abs=0.005)


def test_the_sampler_of_the_account(start: dict[str, Any]) -> None:
    model, batch = start_model(start), start_batch(start)

    size = sampler_bytes(model, batch, memory_rules((0, 26, 0), model))

    assert row_of("sampler") == [pytest.approx(size / GIB, abs=0.005)]


def test_what_lies_outside_of_the_budget(start: dict[str, Any]) -> None:
    model, batch, account = start_model(start), start_batch(start), start_account(start)
    rules = memory_rules((0, 26, 0), model)
    parts = (
        context_bytes(batch),
        account.graphs,
        sampler_state_bytes(model, batch, rules),
        growth_bytes(model, batch),
    )
    text = " + ".join(f"{each / GIB:.2f}" for each in parts)
    utilization = safe_utilization(total_bytes=account.total, model=model, batch=batch, rules=rules)

    margin = outside_margin_bytes(account.total)
    kept = account.outside + margin

    assert f"{text} = {account.outside / GIB:.2f} GiB, and {margin / GIB:.2f} of margin" in DOC
    assert f"is {1 - kept / account.total:.3f}, so {utilization:g}." in DOC


def test_the_margin_outside_of_the_budget() -> None:
    assert "2 % of the card and at most 1.5 GiB" in DOC
    assert (outside_margin_bytes(80 * GIB), outside_margin_bytes(50 * GIB)) == (1.5 * GIB, GIB)


def test_the_cliff_of_a_sampler_that_warms_up_outside_is_kept_clear_of() -> None:
    """gpt-oss-20b at 0.95 of an 80-GB H100 died there with vLLM 0.19."""
    plan = planned(
        "openai--gpt-oss-20b", {"accelerator": {"types": ["nvidia-h100-80gb"]}}, engine_version="0.19.0"
    )

    assert plan.knobs.gpu_memory_utilization is not None
    assert plan.knobs.gpu_memory_utilization < 0.95


def test_the_margin() -> None:
    assert "half a GiB, 1 % on small cards" in DOC
    assert (margin_bytes(80 * GIB), margin_bytes(20 * GIB)) == (GIB // 2, 20 * GIB // 100)


def test_the_example_with_windows() -> None:
    layouts = [
        cache_layout(
            read_architecture(load_config("google--gemma-4-26B-A4B")),
            CacheSettings(
                kv_cache_dtype="auto",
                model_dtype="bfloat16",
                tensor_parallel_size=1,
                block_size=16,
                max_num_batched_tokens=tokens,
                prefix_caching=True,
            ),
        )
        for tokens in (8192, 2048)
    ]

    blocks = [each.blocks_per_request(32_768) for each in layouts]

    assert f"together {blocks[0]:,}." in DOC
    assert f"together {blocks[1]:,}: {blocks[0] / blocks[1]:.2f} times the requests fit" in DOC


def test_the_example_of_speed() -> None:
    model = h200()
    tpot, p95 = tpot_seconds(model, ALIKE, 256), tpot_p95_seconds(model, ALIKE, 256)
    rate = tokens_per_second(model, ALIKE, 256) / ALIKE.answer

    assert f"ITL {model.decode_seconds(256, ALIKE.context) * 1e3:.1f} ms" in DOC
    assert f"TPOT {tpot * 1e3:.1f} ms, {p95 * 1e3:.1f} at p95, {rate:.1f} requests/s" in DOC


def test_the_lengths_that_are_assumed() -> None:
    assert f"{TYPICAL.input_p50:,} in and {TYPICAL.output_p50} out at the median" in DOC
    assert f"{TYPICAL.input_p95:,} and {TYPICAL.output_p95} at p95" in DOC


def test_the_example_of_an_objective() -> None:
    plan = planned(
        LLAMA_8B,
        {
            "accelerator": {"types": ["nvidia-l4", "nvidia-h200"], "parallelism": {"tensor": 1}},
            "workload": {
                "inputTokens": {"p50": 1000, "p95": 4000},
                "outputTokens": {"p50": 200, "p95": 600},
                "context": {"max": 16_384},
            },
            "slo": {"tpot": {"p95": "20ms"}},
        },
    )
    assert plan.speed is not None
    (reason,) = (each for each in plan.reasons if each.startswith("max_num_seqs:"))
    here, more = re.findall(r"(?:expected|take) ([\d.]+) ms", reason)
    seqs = plan.knobs.max_num_seqs

    assert f"{plan.memory[0].size_bytes / GIB:.2f} GiB at 300 GB/s in" in DOC
    assert f"{seqs} sequences are expected to take {here} ms, {seqs + 8} would take {more}" in DOC
    assert f"`max_num_seqs` is {seqs}, {plan.speed.tokens_per_second:,.0f} tokens/s" in DOC


def test_the_example_of_host_memory() -> None:
    spec = {"accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 2}}}
    plan = planned("meta-llama--Meta-Llama-3.1-70B", spec)

    assert f"{plan.weights_bytes / GIB:.2f} / 10, so {plan.host_memory_bytes / GIB:.0f} GiB" in DOC


def test_the_example_of_a_limit() -> None:
    spec = {
        **on("cpu", workload={"context": {"max": 2048}}, engine={"args": {"enforce-eager": "true"}}),
        "podTemplate": {"resources": {"limits": {"memory": "3Gi"}}},
    }
    plan = planned(SMOLLM2, spec, engine_version="0.32.0")
    sizes = {term.name: term.size_bytes / GIB for term in plan.memory}
    kept = tuple(sizes[name] for name in ("process", "weights", "packed", "activation"))

    assert f"1.10 x ({' + '.join(f'{each:.2f}' for each in kept)}) = {1.1 * sum(kept):.2f} GiB" in DOC
    assert f"so {sizes['kv_cache'] * 1024:.0f} MiB of KV cache: {plan.kv_cache_tokens // 128} blocks" in DOC
    assert f"{plan.max_concurrency:.2f} requests of 2,048 tokens" in DOC


@pytest.mark.parametrize(("card", "parts", "nominal"), [("nvidia-h200", 1, 18), ("nvidia-a100-80gb", 3, 40)])
def test_the_example_of_slices(card: str, parts: int, nominal: int) -> None:
    row = next(each for each in catalogue() if each.name == card)

    memory = sliced(row, Profile(compute_parts=parts, nominal_gib=nominal)).memory_bytes / GIB

    assert f"= {memory:.2f} GiB (the driver says" in DOC


def test_the_users_row_is_a_row() -> None:
    text = DOC.partition("```yaml\n")[2].partition("```")[0]

    assert [row.name for row in load_catalogue(text)] == ["nvidia-rtx-a6000"]
    assert yaml.safe_load(text)
