"""Refusals: the shortfall in GiB and the cheapest changes that would fit."""

from dataclasses import replace

from llmservice_operator.api.conditions import Reason
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.candidates import Candidate, candidates, splits
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.checks import refuse
from llmservice_operator.planning.cpu import memory_limit
from llmservice_operator.planning.fit import Fit, Misfit, fit
from llmservice_operator.planning.types import Refusal
from llmservice_operator.planning.words import gib, tokens

SHORTEST_OFFERED = 1024
"""A shorter context isn't offered as a mend: nobody serves that."""


def no_candidate(case: Case) -> Refusal:
    """Nothing to try: the size asked for splits badly."""
    said = case.spec.accelerator.parallelism.tensor
    fitting = [str(size) for size in (1, 2, 4, 8) if splits(case, size) is None]
    return refuse(
        Reason.INVALID_SPEC,
        f"spec.accelerator.parallelism.tensor is {said}: "
        f"{splits(case, int(said)) if said != 'auto' else 'no size divides the model'}; "
        f"{', '.join(fitting) or 'none'} would do",
    )


def does_not_fit(case: Case, misfits: list[Misfit]) -> Refusal:
    """The candidate that comes closest, its shortfall, and up to three changes that would fit, cheapest first."""
    blocked = [each for each in misfits if each.why]
    if len(blocked) == len(misfits):
        return refuse(Reason.INVALID_SPEC, blocked[0].why)
    nearest = min(
        (each for each in misfits if not each.why),
        key=lambda each: (each.shortfall_bytes, each.candidate.cost),
    )
    wish = case.wish
    length = wish.concurrency_tokens(wish.floor)
    asked = f"{tokens(wish.floor)} of context"
    if wish.concurrency > 1:
        asked += f" and {wish.concurrency} requests of {tokens(length)} at once"
    short = f"{gib(nearest.shortfall_bytes)} short"
    message = f"{case.spec.model.uri} with {asked} doesn't fit on {nearest.candidate}: {short}"
    if nearest.account is not None:
        held = nearest.account
        message += (
            f" (of {gib(held.requested)} the weights take {gib(held.weights)} and activation and the rest "
            f"{gib(held.requested - held.weights - held.available)}; the KV cache needs {gib(nearest.needed_bytes)})"
        )
    elif nearest.note:
        message += f" ({nearest.note})"
    elif (limit := memory_limit(case)) is not None:
        message += f" of the container's limit of {gib(limit)} (spec.podTemplate.resources.limits.memory)"
    mends = remedies(case, misfits)
    message += (
        "; what would fit, cheapest first: " + "; ".join(mends)
        if mends
        else "; no accelerator of the catalogue holds it"
    )
    return refuse(Reason.DOES_NOT_FIT, message, shortfall_bytes=nearest.shortfall_bytes)


def remedies(case: Case, misfits: list[Misfit]) -> list[str]:
    """Up to three changes that would fit, cheapest first."""
    found = [_shorter(case, misfits), _fp8_cache(case), _more_ranks(case), _other_accelerator(case, misfits)]
    return [each for each in found if each][:3]


def _shorter(case: Case, misfits: list[Misfit]) -> str:
    longest = max(each.longest for each in misfits if not each.why) // 256 * 256
    if SHORTEST_OFFERED <= longest < case.wish.floor:
        field = "engine.pin.maxModelLen" if case.spec.engine.pin.max_model_len else "workload.context.min"
        return f"spec.{field} of {longest}"
    if case.wish.concurrency > 1:
        single = replace(case, wish=replace(case.wish, concurrency=1))
        if any(
            isinstance(fit(single, each.candidate), Fit) for each in misfits if not each.candidate.row.is_cpu
        ):
            return "a smaller spec.workload.concurrency.min"
    return ""


def _with_engine(case: Case, **changes: object) -> Case:
    spec = case.spec.model_copy(update={"engine": case.spec.engine.model_copy(update=changes)})
    return replace(case, inputs=replace(case.inputs, spec=spec))


def _with_accelerator(case: Case, **changes: object) -> Case:
    spec = case.spec.model_copy(update={"accelerator": case.spec.accelerator.model_copy(update=changes)})
    return replace(case, inputs=replace(case.inputs, spec=spec))


def _first_fit(case: Case) -> Candidate | None:
    tried = (each for each in sorted(candidates(case), key=lambda each: each.cost) if not each.row.is_cpu)
    return next((each for each in tried if isinstance(fit(case, each), Fit)), None)


def _fp8_cache(case: Case) -> str:
    if case.kv_cache_dtype != "auto" or case.model.dtype == "float32":
        return ""
    return "spec.engine.kvCacheDtype of fp8" if _first_fit(_with_engine(case, kv_cache_dtype="fp8")) else ""


def _more_ranks(case: Case) -> str:
    said = case.spec.accelerator.parallelism.tensor
    if said == "auto":
        return ""
    freed = _with_accelerator(
        case, parallelism=case.spec.accelerator.parallelism.model_copy(update={"tensor": "auto"})
    )
    found = _first_fit(freed)
    return f"spec.accelerator.parallelism.tensor of {found.tensor_parallel_size}" if found else ""


def _other_accelerator(case: Case, misfits: list[Misfit]) -> str:
    tried = {each.candidate.row.name for each in misfits}
    rows: list[AcceleratorRow] = [
        row for row in case.inputs.catalogue if row.name not in tried and not row.is_cpu
    ]
    if not rows:
        return ""
    names = tuple(row.name for row in rows)
    free = {
        "types": names,
        "resource_name": "",
        "parallelism": case.spec.accelerator.parallelism.model_copy(update={"tensor": "auto"}),
    }
    found = _first_fit(_with_accelerator(case, **free))
    return (
        f"spec.accelerator.types of [{found.row.name}], {found.tensor_parallel_size} a replica"
        if found
        else ""
    )
