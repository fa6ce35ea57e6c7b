"""Which accelerators, and how many of them, a replica may take: cheapest first."""

import re
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.accelerators import AcceleratorRow, find_row
from llmservice_operator.perfmodel.shapes import VOCAB_PADDING, Architecture, Shard, ceil_div
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.types import NodeAccelerators

SIZES = (1, 2, 4, 8, 16)
_MIG = re.compile(r"mig-\d+g\.(\d+)gb")
MIG_SHARE = 0.95
"""Of a MIG profile's nominal GiB, what the engine sees (a 1g.10gb slice of an H100 has 9.6)."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """So many accelerators of one row."""

    row: AcceleratorRow
    tensor_parallel_size: int
    resource_name: str
    seen: bool
    """Whether a node that is visible now has as many."""

    @property
    def cost(self) -> float:
        """Relative price of a replica."""
        return self.row.cost_per_hour * self.tensor_parallel_size

    def __str__(self) -> str:
        return f"{self.row.name} x {self.tensor_parallel_size}"


def candidates(case: Case) -> list[Candidate]:
    """What may be taken: the row that the service runs on, then visible ones, each cheapest first.

    The CPU row takes part only where it is named: nobody wants to fall back to it unasked.
    """
    spec, nodes, current = case.spec, case.inputs.nodes, case.inputs.current_accelerator
    named = [
        row for name in spec.accelerator.types if (row := find_row(case.inputs.catalogue, name)) is not None
    ]
    rows = named or [
        row
        for row in case.inputs.catalogue
        if not row.is_cpu
        and (row.name == current or any(row.matches_node(node.labels) for node in nodes or ()))
    ]
    found = []
    for row in rows:
        resource = spec.accelerator.resource_name or row.resource_name
        sized = _sliced(row, resource)
        most_seen = _most_seen(row, resource, nodes)
        limit = 1 if _MIG.search(resource) else max(row.max_per_node, most_seen)
        for size in _sizes(case, limit):
            seen = row.is_cpu or most_seen >= size
            found.append(
                Candidate(
                    row=sized,
                    tensor_parallel_size=1 if row.is_cpu else size,
                    resource_name=resource,
                    seen=seen,
                )
            )
            if row.is_cpu:
                break
    return sorted(
        found,
        key=lambda each: (each.row.name != current, not each.seen, each.cost, each.tensor_parallel_size),
    )


def _sizes(case: Case, limit: int) -> list[int]:
    said = case.spec.accelerator.parallelism.tensor
    if said != "auto":
        return [int(said)] if splits(case, int(said)) is None else []
    return [size for size in SIZES if size <= limit and splits(case, size) is None]


def _sliced(row: AcceleratorRow, resource: str) -> AcceleratorRow:
    """A row with the memory of a MIG profile, where the resource names one."""
    match = _MIG.search(resource)
    if match is None:
        return row
    return replace(row, memory_bytes=min(row.memory_bytes, int(int(match[1]) * MIG_SHARE * (1 << 30))))


def _most_seen(row: AcceleratorRow, resource: str, nodes: tuple[NodeAccelerators, ...] | None) -> int:
    return max(
        (node.allocatable.get(resource, 0) for node in nodes or () if row.matches_node(node.labels)),
        default=0,
    )


def splits(case: Case, size: int) -> str | None:
    """Why the model can't be split over so many ranks (config/model.py, layers/linear.py); None if it can."""
    model: Architecture = case.model
    if model.num_attention_heads % size:
        return f"{model.num_attention_heads} attention heads don't divide by {size}"
    if model.num_kv_heads % size and size % model.num_kv_heads:
        return f"{model.num_kv_heads} KV heads and {size} ranks don't divide each other"
    if ceil_div(model.vocab_size, VOCAB_PADDING) * VOCAB_PADDING % size:
        return f"the vocabulary of {model.vocab_size}, padded to {VOCAB_PADDING}s, doesn't divide by {size}"
    block = case.quantization.block_size
    for weight in model.weights:
        if weight.shard is not Shard.TENSOR:
            continue
        side = weight.columns if weight.module.endswith(("down_proj", "o_proj", "out_proj")) else weight.rows
        if side % size:
            return f"{weight.module} has {side} features, which don't divide by {size}"
        if block and case.quantization.format_of(weight) is not None and (side // size) % block:
            return f"{weight.module} has {side} features; a share of 1/{size} isn't whole blocks of {block}"
    return None
