"""spec and facts → plan, or why there is none. Pure.

1. The checks of `checks.py`: names, config.json, contradictions.
2. Candidates: accelerators and how many, visible ones first, cheapest first.
3. For each, the most generous batch knobs at which context and concurrency fit; the first that fits is taken.
4. A refusal says the shortfall of the candidate that comes closest, and what would fit.
"""

from llmservice_operator.planning.candidates import candidates
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.checks import read_case
from llmservice_operator.planning.cpu import plan_cpu
from llmservice_operator.planning.fit import Fit, Misfit, fit
from llmservice_operator.planning.gpu import plan_gpu
from llmservice_operator.planning.refusal import does_not_fit, no_candidate
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal


def make_plan(inputs: PlanInputs) -> Plan | Refusal:
    """The plan for these inputs. Always an answer; raises only InvalidInputError, for a quantity that is none."""
    case = read_case(inputs)
    if isinstance(case, Refusal):
        return case
    misfits: list[Misfit] = []
    for candidate in candidates(case):
        result: Plan | Fit | Misfit = (
            plan_cpu(case, candidate) if candidate.row.is_cpu else fit(case, candidate)
        )
        if isinstance(result, Misfit):
            misfits.append(result)
            continue
        return result if isinstance(result, Plan) else plan_gpu(case, result, misfits)
    return does_not_fit(case, misfits) if misfits else no_candidate(case)


__all__ = ["Case", "make_plan"]
