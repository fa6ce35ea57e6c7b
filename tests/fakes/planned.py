"""Fake engines that are what the operator plans: told of the plan's memory, they report it as a real engine would."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmservice_operator.cli_plan import plan_services
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal

Object = dict[str, Any]
_TERMS = {"activation": "ACTIVATION", "non_torch": "NON_TORCH", "cuda_graphs": "CUDA_GRAPH"}


def memory_environment(plan: Plan) -> dict[str, str]:
    """The environment of a fake engine with the plan's memory, term by term."""
    sizes = {term.name: term.size_bytes for term in plan.memory}
    told = {f"{name}_BYTES": sizes[term] for term, name in _TERMS.items() if term in sizes} | {
        "WEIGHTS_BYTES": sizes["weights"] + sizes.get("extras", 0),
        "TOTAL_BYTES": plan.total_bytes,
        "KV_CACHE_TOKENS": plan.kv_cache_tokens,
        "KV_BYTES_PER_TOKEN": sizes["kv_cache"] // plan.kv_cache_tokens,
    }
    device = "cpu" if plan.accelerator.is_cpu else "cuda"
    return {
        "FAKE_ENGINE_DEVICE": device,
        **{f"FAKE_ENGINE_{name}": str(size) for name, size in told.items()},
    }


def plans_of(
    services: Sequence[Mapping[str, Any]], config_maps: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[PlanInputs, Plan]]:
    """What each of the LLMServices is planned from, and its plan.

    Raises:
        TypeError: a service is refused.

    """
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # YAML takes JSON.
        file.write("\n---\n".join(json.dumps(each) for each in (*services, *config_maps)))
        file.flush()
        given = argparse.Namespace(filename=file.name, config=None, catalogue=None, engine_version="")
        plans = plan_services(given)
    for inputs, plan in plans:
        if isinstance(plan, Refusal):
            raise TypeError(f"{inputs.service_name} is refused: {plan.message}")
        yield inputs, plan


def as_planned(
    services: Sequence[Mapping[str, Any]], config_maps: Sequence[Mapping[str, Any]]
) -> Iterator[Object]:
    """The LLMServices, each on fake engines with the memory that it is planned to have. Raises as plans_of does."""
    for service, (_, plan) in zip(services, plans_of(services, config_maps), strict=True):
        yield _with_environment(service, memory_environment(plan))


def _with_environment(service: Mapping[str, Any], more: Mapping[str, str]) -> Object:
    """With these variables over those that it has."""
    spec = service["spec"]
    kept = [each for each in spec["engine"].get("env", ()) if each["name"] not in more]
    environment = [*kept, *({"name": name, "value": value} for name, value in more.items())]
    return {**service, "spec": {**spec, "engine": {**spec["engine"], "env": environment}}}
