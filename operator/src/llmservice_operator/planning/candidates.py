"""Which accelerators, and how many of them, a replica may take: cheapest first.

What is offered comes from the rows that are named, or from the nodes' labels and allocatable amounts: whole cards,
and slices of them under MIG. An offer becomes one candidate for each number of ranks that divides the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.accelerators import AcceleratorRow, find_row
from llmservice_operator.perfmodel.sharding import why_it_does_not_split
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.slices import (
    MEMORY_LABEL,
    PRODUCT_LABEL,
    labelled_memory,
    profile_of_product,
    profile_of_resource,
    sliced,
    visible,
)
from llmservice_operator.planning.types import NodeAccelerators

SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A kind of device: a whole card or a slice, and how many of it one node has at most."""

    row: AcceleratorRow
    resource_name: str
    seen: int = 0
    """Most of one node that is visible."""
    free: int = 0
    """Most of one node that no pod has asked for, as far as is known."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """So many accelerators of one row."""

    row: AcceleratorRow
    tensor_parallel_size: int
    resource_name: str
    seen: bool
    """Whether a node that is visible now has as many."""
    free: bool = True
    """Whether a node has as many that no pod has asked for, as far as is known."""

    @property
    def cost(self) -> float:
        """Relative price of a replica."""
        return self.row.cost_per_hour * self.tensor_parallel_size

    def __str__(self) -> str:
        profile = profile_of_resource(self.resource_name)
        slice_name = f" ({profile})" if profile else ""
        return f"{self.row.name}{slice_name} x {self.tensor_parallel_size}"


def candidates(case: Case) -> list[Candidate]:
    """What may be taken: the row that the service runs on, then visible and free ones, each cheapest first.

    What is free changes by the minute, so it counts only where the service doesn't run yet: no node that empties
    makes another plan of one that runs.
    """
    current, resource = case.inputs.current_accelerator, case.inputs.current_resource
    sizes = _sizes(case)
    found = [each for offer in offers(case) for each in _sized(case, offer, sizes)]

    def rank(each: Candidate) -> tuple[bool, bool, bool, bool, float, int]:
        elsewhere = each.row.name != current
        another = not elsewhere and resource not in {"", each.resource_name}
        taken = elsewhere and not each.free
        return elsewhere, another, not each.seen, taken, each.cost, each.tensor_parallel_size

    return sorted(found, key=rank)


def offers(case: Case) -> list[Offer]:
    """Whole cards and slices of the rows that are named, or else of those that nodes show.

    The CPU row takes part only where it is named: nobody wants to fall back to it unasked.
    """
    spec, nodes, current = case.spec, case.inputs.nodes or (), case.inputs.current_accelerator
    named = [find_row(case.inputs.catalogue, name) for name in spec.accelerator.types]
    rows = [row for row in named if row is not None]
    found: list[Offer] = []
    for row in rows or [each for each in case.inputs.catalogue if not each.is_cpu]:
        if row.is_cpu:
            found.append(Offer(row=row, resource_name=row.resource_name, seen=1, free=1))
            continue
        shown = _shown(row, spec.accelerator.resource_name, nodes)
        whole = spec.accelerator.resource_name or row.resource_name
        # A node may be labelled before its driver offers the card.
        expected = (
            bool(rows)
            or row.name == current
            or (not shown and any(visible(row, each.labels) for each in nodes))
        )
        if expected and whole not in {offer.resource_name for offer in shown}:
            profile = profile_of_resource(whole)
            shown.append(Offer(row=sliced(row, profile) if profile else row, resource_name=whole))
        found += shown
    return found


def _shown(row: AcceleratorRow, wanted: str, nodes: tuple[NodeAccelerators, ...]) -> list[Offer]:
    """What nodes show of a row, one offer for each kind of device; only the wanted resource, where one is."""
    found: dict[tuple[str, str, int], Offer] = {}
    for node in nodes:
        for resource, count, device in _devices(row, wanted, node):
            free = count if node.free is None else min(count, node.free.get(resource, 0))
            product = device.node_labels[0][1][0] if device.node_labels != row.node_labels else ""
            key = (resource, product, device.memory_bytes)
            before = found.get(key, Offer(row=device, resource_name=resource))
            found[key] = replace(before, seen=max(before.seen, count), free=max(before.free, free))
    return list(found.values())


def _devices(
    row: AcceleratorRow, wanted: str, node: NodeAccelerators
) -> Iterator[tuple[str, int, AcceleratorRow]]:
    """(resource, amount, row) of each kind of device of this row that the node has."""
    cut = profile_of_product(node.labels.get(PRODUCT_LABEL, ""))
    if cut is not None and row.matches_node({PRODUCT_LABEL: cut[0]}):
        resource, profile = row.resource_name, cut[1]
        count = node.allocatable.get(resource, 0)
        if count and wanted in {"", resource}:
            known = replace(profile, memory_bytes=labelled_memory(node.labels, MEMORY_LABEL))
            yield resource, count, sliced(row, known, product=node.labels[PRODUCT_LABEL])
        return
    if cut is not None or not row.matches_node(node.labels):
        return
    for resource, count in node.allocatable.items():
        slice_of = profile_of_resource(resource)
        relevant = resource == wanted if wanted else slice_of is not None or resource == row.resource_name
        if not count or not relevant:
            continue
        if slice_of is None:
            yield resource, count, row
        else:
            memory = labelled_memory(node.labels, f"{resource}.memory")
            yield resource, count, sliced(row, replace(slice_of, memory_bytes=memory))


def _sized(case: Case, offer: Offer, sizes: list[int]) -> Iterator[Candidate]:
    """A candidate for each number of ranks that one node may have; what the user says is taken as it is.

    A slice is one rank: ranks can't talk to each other between slices.
    """
    said = case.spec.accelerator.parallelism.tensor != "auto"
    limit = max(offer.row.max_per_node, offer.seen)
    for size in sizes:
        if (offer.row.is_cpu or _is_slice(offer)) and size > 1:
            continue
        if not said and size > limit:
            continue
        yield Candidate(
            row=offer.row,
            tensor_parallel_size=size,
            resource_name=offer.resource_name,
            seen=offer.seen >= size,
            free=offer.free >= size,
        )


def _is_slice(offer: Offer) -> bool:
    product = dict(offer.row.node_labels).get(PRODUCT_LABEL, ("",))[0]
    return profile_of_resource(offer.resource_name) is not None or profile_of_product(product) is not None


def _sizes(case: Case) -> list[int]:
    """Numbers of ranks that the model can be split over: the user's, or all that divide it."""
    said = case.spec.accelerator.parallelism.tensor
    return [size for size in (SIZES if said == "auto" else (int(said),)) if splits(case, size) is None]


def splits(case: Case, size: int) -> str | None:
    """Why the model can't be split over so many ranks; None if it can."""
    return why_it_does_not_split(case.model, case.quantization, size)
