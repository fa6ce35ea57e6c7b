"""The engine with exactly a plan's flags: the estimate holds what the plan promises, and the margin beside it."""

from typing import Any

import pytest

from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.estimate import Estimate, EstimateInputs, estimate
from llmservice_operator.planning.types import Plan
from unit.perfmodel.samples import generating_models, load_config, on, planned


def at_the_flags_of(plan: Plan, config: dict[str, Any], **more: object) -> Estimate:
    """What `llmservice estimate` says of the plan's own settings, and of `more` flags."""
    knobs = plan.knobs
    flags = {
        "max_model_len": knobs.max_model_len,
        "gpu_memory_utilization": knobs.gpu_memory_utilization,
        "max_num_seqs": knobs.max_num_seqs,
        "max_num_batched_tokens": knobs.max_num_batched_tokens,
        "kv_cache_dtype": knobs.kv_cache_dtype,
        "tensor_parallel_size": knobs.tensor_parallel_size,
        **more,
    }
    return estimate(
        EstimateInputs(
            config=config,
            card=plan.accelerator,
            engine_version=plan.engine_version,
            flags=tuple((name, str(value)) for name, value in flags.items()),
        )
    )


@pytest.mark.parametrize("version", ["0.19.0", "0.22.0", "0.26.0", "0.33.0"])
@pytest.mark.parametrize("name", generating_models())
def test_the_plan_promises_what_the_engine_has_less_its_margin(name: str, version: str) -> None:
    config = load_config(name)
    plan = planned(config, on("nvidia-h200", "nvidia-b200"), engine_version=version)
    terms = {term.name: term.size_bytes for term in plan.memory}

    result = at_the_flags_of(plan, config)

    assert result.fits, result.warnings
    spare = result.memory.kv_cache_bytes - terms["kv_cache"]
    assert spare / GIB == pytest.approx(terms["margin"] / GIB, abs=0.1)


@pytest.mark.parametrize("version", ["0.19.0", "0.24.0", "0.26.0", "0.33.0"])
@pytest.mark.parametrize("name", generating_models())
def test_a_pool_of_the_planned_size_holds_the_planned_requests(name: str, version: str) -> None:
    config = load_config(name)
    plan = planned(config, on("nvidia-h200", "nvidia-b200"), engine_version=version)
    pool = next(term.size_bytes for term in plan.memory if term.name == "kv_cache")

    result = at_the_flags_of(plan, config, kv_cache_memory_bytes=pool)

    assert result.kv_cache.max_concurrency == pytest.approx(plan.max_concurrency, abs=0.006)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("eagle3", "meta-llama--Meta-Llama-3.1-8B"),
        ("ngram", "meta-llama--Meta-Llama-3.1-8B"),
        ("mtp", "Qwen--Qwen3.5-27B"),
    ],
)
def test_drafting_takes_of_the_plan_what_it_takes_of_the_engine(method: str, name: str) -> None:
    config = load_config(name)
    speculation = {"speculative-config": f'{{"method": "{method}", "num_speculative_tokens": 2}}'}
    plan = planned(config, on("nvidia-h200", engine={"args": speculation}), engine_version="0.26.0")
    terms = {term.name: term.size_bytes for term in plan.memory}

    result = at_the_flags_of(plan, config, **{"speculative_config.method": method})

    spare = result.memory.kv_cache_bytes - terms["kv_cache"]
    assert spare / GIB == pytest.approx(terms["margin"] / GIB, abs=0.1)
    held = result.kv_cache.max_concurrency * terms["kv_cache"] / result.memory.kv_cache_bytes
    assert held == pytest.approx(plan.max_concurrency, rel=0.005)
