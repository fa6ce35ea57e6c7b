"""Slices of cards under MIG, by resource, by label and by name."""

from dataclasses import replace
from typing import Any

import pytest

from llmservice_operator.planning.slices import Profile, profile_of_product, profile_of_resource, sliced
from llmservice_operator.planning.types import NodeAccelerators
from unit.perfmodel.samples import SMOLLM2, catalogue, on, planned, refused

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
GIB = 1 << 30
MIXED = NodeAccelerators(
    node_name="mixed",
    labels={
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig-3g.40gb.memory": "40192",
    },
    allocatable={"nvidia.com/gpu": 0, "nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 1},
)
SINGLE = NodeAccelerators(
    node_name="single",
    labels={
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.memory": "40192",
    },
    allocatable={"nvidia.com/gpu": 2},
)
"""Labels as GPU feature discovery writes them under its two strategies; 40,192 MiB of an A100's 3g.40gb."""


def row(name: str) -> Any:
    return next(each for each in catalogue() if each.name == name)


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-3g.40gb", "3g.40gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb"),
        ("nvidia.com/gpu", "None"),
        ("nvidia.com/mig-big", "None"),
        ("nvidia.com/mig-0g.0gb", "None"),
        ("nvidia.com/mig-1g.0gb", "None"),
    ],
)
def test_a_profile_is_read_from_the_resources_name(resource: str, profile: str) -> None:
    assert str(profile_of_resource(resource)) == profile


def test_a_product_of_the_single_strategy_is_a_card_and_a_profile() -> None:
    found = profile_of_product("A100-SXM4-40GB-MIG-1g.5gb")

    assert found is not None
    assert (found[0], str(found[1])) == ("A100-SXM4-40GB", "1g.5gb")


@pytest.mark.parametrize(
    ("card", "parts", "nominal", "reported_gib"),
    [
        ("nvidia-a100-80gb", 3, 40, 39.25),
        ("nvidia-a100-80gb", 1, 10, 9.5),
        ("nvidia-a100-40gb", 1, 5, 4.75),
        ("nvidia-h200", 1, 18, 16.0),
    ],
)
def test_memory_by_name_is_at_most_what_the_driver_reports(
    card: str, parts: int, nominal: int, reported_gib: float
) -> None:
    """`nvidia-smi mig -lgip` on these cards."""
    found = sliced(row(card), Profile(compute_parts=parts, nominal_gib=nominal)).memory_bytes / GIB

    assert 0.94 * reported_gib <= found <= reported_gib


def test_a_slice_has_its_share_of_bandwidth_compute_and_price() -> None:
    card = row("nvidia-a100-80gb")

    part = sliced(card, Profile(compute_parts=3, nominal_gib=40))

    assert part.memory_bandwidth_bytes_per_second == card.memory_bandwidth_bytes_per_second / 2
    assert part.bf16_flops_per_second == pytest.approx(card.bf16_flops_per_second * 3 / 7)
    assert part.cost_per_hour == card.cost_per_hour / 2


def test_slices_of_the_mixed_strategy_are_found_by_their_resource() -> None:
    plan = planned(LLAMA_8B, nodes=(MIXED,))

    assert (plan.resource_name, plan.accelerators_per_replica) == ("nvidia.com/mig-3g.40gb", 1)
    assert plan.total_bytes == 40192 << 20


def test_the_cheapest_slice_that_fits_is_taken() -> None:
    assert planned(SMOLLM2, nodes=(MIXED,)).resource_name == "nvidia.com/mig-1g.10gb"


def test_slices_of_the_single_strategy_are_found_by_their_product() -> None:
    plan = planned(LLAMA_8B, nodes=(SINGLE,))

    assert (plan.resource_name, plan.total_bytes) == ("nvidia.com/gpu", 40192 << 20)
    assert plan.accelerator.node_labels == (
        ("nvidia.com/gpu.product", ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb",)),
    )


def test_a_named_card_that_nodes_show_in_slices_only_is_taken_as_a_slice() -> None:
    assert planned(LLAMA_8B, on("nvidia-a100-80gb"), nodes=(MIXED,)).resource_name == "nvidia.com/mig-3g.40gb"


def test_slices_are_not_joined() -> None:
    spec = {
        "accelerator": {
            "types": ["nvidia-a100-80gb"],
            "resourceName": "nvidia.com/mig-3g.40gb",
            "parallelism": {"tensor": 2},
        }
    }

    refusal = refused(LLAMA_8B, spec)

    assert (refusal.reason, "is a slice of a card" in refusal.message) == ("InvalidSpec", True)


def test_a_model_too_large_for_a_slice_goes_to_whole_cards_of_another_node() -> None:
    whole = replace(MIXED, node_name="whole", allocatable={"nvidia.com/gpu": 8})

    plan = planned("meta-llama--Meta-Llama-3.1-70B", nodes=(MIXED, whole))

    assert plan.resource_name == "nvidia.com/gpu"


def test_a_whole_card_beside_slices_is_chosen_by_price() -> None:
    l40s = NodeAccelerators(
        node_name="l40s", labels={"nvidia.com/gpu.product": "NVIDIA-L40S"}, allocatable={"nvidia.com/gpu": 1}
    )

    plan = planned(LLAMA_8B, nodes=(MIXED, l40s))

    assert plan.accelerator.name == "nvidia-l40s"


def test_free_cards_come_before_cheaper_ones_that_are_taken() -> None:
    taken = NodeAccelerators(
        node_name="l4",
        labels={"nvidia.com/gpu.product": "NVIDIA-L4"},
        allocatable={"nvidia.com/gpu": 8},
        free={"nvidia.com/gpu": 0},
    )
    free = NodeAccelerators(
        node_name="h200",
        labels={"nvidia.com/gpu.product": "NVIDIA-H200"},
        allocatable={"nvidia.com/gpu": 8},
        free={"nvidia.com/gpu": 1},
    )

    assert planned(LLAMA_8B, nodes=(taken, free)).accelerator.name == "nvidia-h200"


def test_what_is_free_moves_nothing_that_runs() -> None:
    nodes = tuple(
        NodeAccelerators(
            node_name="h200",
            labels={"nvidia.com/gpu.product": "NVIDIA-H200"},
            allocatable={"nvidia.com/gpu": 8},
            free={"nvidia.com/gpu": count},
        )
        for count in (0, 8)
    )

    plans = [
        planned("meta-llama--Meta-Llama-3.1-70B", nodes=(each,), current_accelerator="nvidia-h200")
        for each in nodes
    ]

    assert plans[0] == plans[1]


def test_a_node_that_is_labelled_before_its_driver_is_ready_is_waited_for() -> None:
    bare = replace(SINGLE, labels={"nvidia.com/gpu.product": "NVIDIA-L40S"}, allocatable={"cpu": 8})

    plan = planned(LLAMA_8B, nodes=(bare,))

    assert plan.accelerator.name == "nvidia-l40s"
    assert any("no visible node has nvidia-l40s" in each for each in plan.warnings)


def test_a_service_stays_on_slices_of_its_profile_when_cheaper_ones_turn_up() -> None:
    stay = {"current_accelerator": "nvidia-a100-80gb", "current_resource": "nvidia.com/mig-3g.40gb"}

    assert planned(SMOLLM2, nodes=(MIXED,), **stay).resource_name == "nvidia.com/mig-3g.40gb"
