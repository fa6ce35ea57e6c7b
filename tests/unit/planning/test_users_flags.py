"""Flags of the user's that move memory and that the plan doesn't choose by."""

from typing import Any

import pytest

from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import Plan, Refusal
from unit.perfmodel.samples import inputs_for, on, planned, refused

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
GEMMA = "google--gemma-4-26B-A4B"
WITHOUT_GROUPS = {"args": {"disable-hybrid-kv-cache-manager": "true"}}
"""Windows then keep the whole context."""


@pytest.mark.parametrize("args", [{"tool-call-parser": "hermes"}, {"enforce-eager": "true"}, {"seed": "7"}])
def test_flags_that_move_nothing_or_are_planned_for_are_no_matter(args: dict[str, Any]) -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", engine={"args": args}))

    assert not any(each.startswith("spec.engine.args.") for each in plan.reasons)


def test_what_a_flag_takes_from_the_cache_is_told() -> None:
    workload = {"context": {"max": 16_384}}

    plan = planned(GEMMA, on("nvidia-h100-80gb", engine=WITHOUT_GROUPS, workload=workload))

    (note,) = (each for each in plan.reasons if each.startswith("spec.engine.args."))
    assert "disable-hybrid-kv-cache-manager: the KV cache then has" in note
    assert f"and {plan.max_concurrency:.2f}" in note


def test_flags_with_which_the_engine_cannot_start_are_refused_by_name() -> None:
    one = {"types": ["nvidia-h100-80gb"], "parallelism": {"tensor": 1}}
    spec = {
        "accelerator": one,
        "engine": WITHOUT_GROUPS,
        "workload": {"context": {"min": 262_144}},
    }

    refusal = refused(GEMMA, spec)

    assert refusal.reason == "InvalidSpec"
    assert "with spec.engine.args.disable-hybrid-kv-cache-manager the engine doesn't start" in refusal.message


def test_a_value_that_is_none_is_refused_by_name() -> None:
    spec = on("nvidia-h200", engine={"args": {"max-cudagraph-capture-size": "many"}})

    refusal = refused(LLAMA_8B, spec)

    assert (refusal.reason, "max_cudagraph_capture_size" in refusal.message) == ("InvalidSpec", True)


@pytest.mark.parametrize(
    "args",
    [
        {"cpu-offload-gb": "1e400"},
        {"enable-lora": "true", "max-loras": "\N{SUPERSCRIPT TWO}"},
        {"enable-lora": "true", "max-lora-rank": "9" * 4000},
        {"speculative-config": "[" * 4000},
        {"limit-mm-per-prompt": "[" * 4000},
    ],
)
def test_values_that_no_engine_takes_stop_no_plan(args: dict[str, Any]) -> None:
    """The engine refuses them at its start; the operator goes on planning others."""
    result = make_plan(inputs_for(LLAMA_8B, on("nvidia-h200", engine={"args": args})))

    assert isinstance(result, Plan | Refusal)
