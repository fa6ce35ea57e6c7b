"""spec and facts → plan, or why there is none. Pure.

1. The checks of `checks.py`: names, config.json, contradictions.
2. Candidates: accelerators and how many, visible ones first, cheapest first.
3. For each, the most generous batch knobs at which context and concurrency fit and the objectives are kept; the
   first candidate of that kind is taken.
4. An objective that none keeps refuses nothing: the plan says by how much it is missed.
5. A refusal says the shortfall of the candidate that comes closest, and what would fit.
"""

from collections.abc import Callable
from dataclasses import replace

from llmservice_operator.planning.candidates import candidates
from llmservice_operator.planning.case import FP8_IF_NEEDED, Case
from llmservice_operator.planning.checks import read_case
from llmservice_operator.planning.cpu import plan_cpu
from llmservice_operator.planning.fit import Fit, Misfit, fit
from llmservice_operator.planning.gpu import plan_gpu
from llmservice_operator.planning.objectives import Choice, expected, missed, objectives_of, tune
from llmservice_operator.planning.reasons import Passed, passed_over, too_slow
from llmservice_operator.planning.refusal import does_not_fit, no_candidate
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal
from llmservice_operator.planning.users_flags import with_users_flags
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
    """The plan of the first candidate that fits and keeps the objectives, and those that don't fit.

    Where none keeps them, the first that fits is taken: a service that is slower than promised still serves. One that
    no node has yet never takes the place of one that is there, for that alone.
    """
    objectives = objectives_of(case.spec)
    misfits: list[Misfit] = []
    passed: list[Passed] = []
    slow: list[Choice] = []
    for candidate in candidates(case):
        if slow and slow[0].fit.candidate.seen and not candidate.seen:
            break
        result: Plan | Fit | Misfit = (
            plan_cpu(case, candidate) if candidate.row.is_cpu else fit(case, candidate)
        )
        if isinstance(result, Fit):
            result = with_users_flags(case, result)
        if isinstance(result, Misfit):
            misfits.append(result)
            passed.append(passed_over(result))
            continue
        if isinstance(result, Plan):
            return result, misfits
        choice = expected(case, result) if objectives is None else tune(case, result, objectives)
        if choice.keeps:
            return plan_gpu(case, choice, passed), misfits
        slow.append(choice)
        passed.append(too_slow(choice))
    if not slow or objectives is None:
        return None, misfits
    nearest = min(slow, key=lambda each: each.excess)
    before = [each for each in passed if each.candidate.cost < slow[0].fit.candidate.cost]
    return plan_gpu(case, slow[0], before, missed(case, slow[0], objectives, nearest)), misfits


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
