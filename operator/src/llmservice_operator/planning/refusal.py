"""Refusals: the shortfall in GiB and the cheapest changes that would fit."""

from llmservice_operator.api.conditions import Reason
from llmservice_operator.planning.candidates import splits
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.checks import refuse
from llmservice_operator.planning.cpu import memory_limit
from llmservice_operator.planning.fit import Misfit
from llmservice_operator.planning.remedies import remedies
from llmservice_operator.planning.slices import profile_of_resource
from llmservice_operator.planning.types import Refusal
from llmservice_operator.planning.words import gib, tokens

MOST_CARDS = 3
"""Cards of which it is told why they can't run a service, where none can."""


def no_candidate(case: Case) -> Refusal:
    """Nothing to try: the size asked for splits badly, or slices are asked for that can't be joined."""
    said = case.spec.accelerator.parallelism.tensor
    resource = case.spec.accelerator.resource_name
    if (
        said not in {"auto", 1}
        and profile_of_resource(resource) is not None
        and splits(case, int(said)) is None
    ):
        return refuse(
            Reason.INVALID_SPEC,
            f"spec.accelerator.parallelism.tensor is {said}, and {resource} is a slice of a card: ranks can't talk to "
            "each other between slices; leave it out, or take whole cards",
        )
    fitting = [str(size) for size in (1, 2, 4, 8) if splits(case, size) is None]
    return refuse(
        Reason.INVALID_SPEC,
        f"spec.accelerator.parallelism.tensor is {said}: "
        f"{(splits(case, int(said)) if said != 'auto' else None) or 'no size divides the model'}; "
        f"{', '.join(fitting) or 'none'} would do",
    )


def does_not_fit(case: Case, misfits: list[Misfit]) -> Refusal:
    """The candidate that comes closest, its shortfall, and up to three changes that would fit, cheapest first."""
    blocked = [each for each in misfits if each.why]
    if len(blocked) == len(misfits):
        first_of_card = {each.candidate.row.name: each.why for each in reversed(blocked)}
        return refuse(
            Reason.INVALID_SPEC, "; ".join(dict.fromkeys(list(first_of_card.values())[::-1][:MOST_CARDS]))
        )
    nearest = min(
        (each for each in misfits if not each.why),
        key=lambda each: (each.shortfall_bytes, each.candidate.cost),
    )
    mends = remedies(case, misfits)
    message = _asked(case, nearest) + _taken(case, nearest)
    message += (
        "; what would fit, cheapest first: " + "; ".join(mends)
        if mends
        else "; no single change and no accelerator of the catalogue makes it fit"
    )
    return refuse(Reason.DOES_NOT_FIT, message, shortfall_bytes=nearest.shortfall_bytes)


def _asked(case: Case, nearest: Misfit) -> str:
    wish = case.wish
    asked = f"{tokens(wish.floor)} of context"
    if wish.concurrency > 1:
        asked += f" and {wish.concurrency} requests of {tokens(wish.concurrency_tokens(wish.floor))} at once"
    short = f"{gib(nearest.shortfall_bytes)} short"
    return f"{case.spec.model.uri} with {asked} doesn't fit on {nearest.candidate}: {short}"


def _taken(case: Case, nearest: Misfit) -> str:
    """What takes the memory there."""
    if nearest.account is not None:
        held = nearest.account
        rest = held.requested - held.weights - held.available
        return (
            f" (of {gib(held.requested)} the weights take {gib(held.weights)} and activation and the rest "
            f"{gib(rest)}; the KV cache needs {gib(nearest.needed_bytes)})"
        )
    if nearest.note:
        return f" ({nearest.note})"
    limit = memory_limit(case)
    if limit is None:
        return ""
    return f" of the container's limit of {gib(limit)} (spec.podTemplate.resources.limits.memory)"
