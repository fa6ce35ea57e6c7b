"""spec and facts → plan, or why there is none. Pure.

1. The checks of `checks.py`: names, config.json, contradictions.
2. Candidates: accelerators and how many, visible ones first, cheapest first.
3. For each, the most generous batch knobs at which context and concurrency fit; the first that fits is taken.
4. A refusal says the shortfall of the candidate that comes closest, and what would fit.
"""

from collections.abc import Callable
from dataclasses import replace

from llmservice_operator.planning.candidates import candidates
from llmservice_operator.planning.case import FP8_IF_NEEDED, Case
from llmservice_operator.planning.checks import read_case
from llmservice_operator.planning.cpu import plan_cpu
from llmservice_operator.planning.fit import Fit, Misfit, fit
from llmservice_operator.planning.gpu import plan_gpu
from llmservice_operator.planning.refusal import does_not_fit, no_candidate
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal
from llmservice_operator.planning.words import gib


def make_plan(inputs: PlanInputs) -> Plan | Refusal:
    """The plan for these inputs. Always an answer; raises only InvalidInputError, for a quantity that is none."""
    case = read_case(inputs)
    if isinstance(case, Refusal):
        return case
    plan, misfits = _first_plan(case)
    if plan is None and misfits and inputs.spec.engine.kv_cache_dtype == FP8_IF_NEEDED:
        plan, _ = _first_plan(case.with_engine(kv_cache_dtype="fp8"))
        if plan is not None:
            return replace(plan, reasons=(*plan.reasons, _needed(misfits)))
    if plan is not None:
        return plan
    return does_not_fit(case, misfits) if misfits else no_candidate(case)


def _first_plan(case: Case) -> tuple[Plan | None, list[Misfit]]:
    """The plan of the first candidate that fits, and those before it that don't."""
    misfits: list[Misfit] = []
    for candidate in candidates(case):
        result: Plan | Fit | Misfit = (
            plan_cpu(case, candidate) if candidate.row.is_cpu else fit(case, candidate)
        )
        if isinstance(result, Misfit):
            misfits.append(result)
            continue
        return result if isinstance(result, Plan) else plan_gpu(case, result, misfits), misfits
    return None, misfits


def _needed(misfits: list[Misfit]) -> str:
    nearest = min(misfits, key=lambda each: (bool(each.why), each.shortfall_bytes))
    return (
        f"kv_cache_dtype: fp8, as spec.engine.kvCacheDtype allows; with auto {nearest.candidate} is "
        f"{nearest.why or gib(nearest.shortfall_bytes) + ' short'}"
    )


def plan_for_image(inputs: PlanInputs, version_of: Callable[[str], str]) -> Plan | Refusal:
    """The plan for the engine version that the chosen accelerator's own image has.

    `version_of` tells the version by the row's name, also for the empty name; it takes the place of
    `inputs.engine_version`. Which row is chosen may depend on the version, so the first one named is assumed and
    the plan made again where the choice says otherwise.
    """
    types = inputs.spec.accelerator.types
    version = version_of(types[0] if types else "")
    result = make_plan(replace(inputs, engine_version=version))
    if isinstance(result, Refusal):
        return result
    actual = version_of(result.accelerator.name)
    return result if actual == version else make_plan(replace(inputs, engine_version=actual))
