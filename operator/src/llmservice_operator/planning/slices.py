"""Slices of a card under MIG: what a node offers of them, and what a slice has of its card.

Under the mixed strategy a slice is a resource of its own (`nvidia.com/mig-3g.40gb`) beside the card's product label;
under the single strategy all of a node's cards are cut alike, the resource is `nvidia.com/gpu` and the product's
label ends in `-MIG-3g.40gb`. GPU feature discovery tells a slice's memory in MiB
(NVIDIA/k8s-device-plugin docs/gpu-feature-discovery/README.md).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.memory import GIB, MIB

_RESOURCE = re.compile(r"[^/]+/mig-([1-9]\d?)g\.([1-9]\d{0,3})gb(?:\..+)?")
_PRODUCT = re.compile(r"(.+)-MIG-([1-9]\d?)g\.([1-9]\d{0,3})gb(?:\..+)?")
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"

MEMORY_PARTS, COMPUTE_PARTS = 8, 7
"""A card is cut into eight parts of memory and seven of compute (MIG user guide, supported profiles)."""
NOMINAL_SHARE = 0.95
"""Of a profile's nominal GiB, what the engine sees at most: 39.25 of a 3g.40gb, 9.5 of a 1g.10gb of an A100."""
SMALL_SHARE, LARGE_SHARE = 0.915, 0.98
"""Of its eighths of the card, what a slice of less than half a card has (16.0 GiB of a 1g.18gb on an H200,
`nvidia-smi mig -lgip`), and what a larger one has."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A MIG profile: `3g.40gb`."""

    compute_parts: int
    nominal_gib: int
    memory_bytes: int | None = None
    """As a node's labels tell it; None: from the profile's name."""

    def __str__(self) -> str:
        return f"{self.compute_parts}g.{self.nominal_gib}gb"


def profile_of_resource(resource_name: str) -> Profile | None:
    """The profile that a resource's name tells; None for whole cards."""
    match = _RESOURCE.fullmatch(resource_name)
    return Profile(compute_parts=int(match[1]), nominal_gib=int(match[2])) if match else None


def profile_of_product(product: str) -> tuple[str, Profile] | None:
    """(the card's own product, the profile) of a product label under the single strategy; None for whole cards."""
    match = _PRODUCT.fullmatch(product)
    return (match[1], Profile(compute_parts=int(match[2]), nominal_gib=int(match[3]))) if match else None


def labelled_memory(labels: Mapping[str, str], key: str) -> int | None:
    """Bytes that a label tells in MiB; None where it isn't there or is no number."""
    text = labels.get(key, "")
    return int(text) * MIB if text.isdecimal() and int(text) > 0 else None


def visible(row: AcceleratorRow, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has this card, whole or in slices."""
    cut = profile_of_product(labels.get(PRODUCT_LABEL, ""))
    return row.matches_node({PRODUCT_LABEL: cut[0]}) if cut else row.matches_node(labels)


def sliced(row: AcceleratorRow, profile: Profile, *, product: str = "") -> AcceleratorRow:
    """The row of one slice: its memory, and its shares of bandwidth, compute and price.

    `product`: the label by which nodes of the single strategy are found; empty: the card's own labels.
    """
    parts = max(1, min(MEMORY_PARTS, round(profile.nominal_gib * GIB * MEMORY_PARTS / row.memory_bytes)))
    memory_share = parts / MEMORY_PARTS
    compute_share = min(1.0, profile.compute_parts / COMPUTE_PARTS)
    fp8 = row.fp8_flops_per_second
    return replace(
        row,
        memory_bytes=min(row.memory_bytes, profile.memory_bytes or _memory_bytes(row, profile, parts)),
        memory_bandwidth_bytes_per_second=row.memory_bandwidth_bytes_per_second * memory_share,
        bf16_flops_per_second=row.bf16_flops_per_second * compute_share,
        fp8_flops_per_second=None if fp8 is None else fp8 * compute_share,
        cost_per_hour=row.cost_per_hour * max(memory_share, compute_share),
        max_per_node=1,
        node_labels=((PRODUCT_LABEL, (product,)),) if product else row.node_labels,
    )


def _memory_bytes(row: AcceleratorRow, profile: Profile, parts: int) -> int:
    """Memory of a slice by its name alone: the smaller of two readings."""
    share = LARGE_SHARE if parts >= MEMORY_PARTS // 2 else SMALL_SHARE
    by_name = profile.nominal_gib * NOMINAL_SHARE * GIB
    by_card = row.memory_bytes * parts / MEMORY_PARTS * share
    return int(min(by_name, by_card))
