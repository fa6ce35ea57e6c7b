"""What is refused, by which reason and in which words."""

from dataclasses import replace
from typing import Any

import pytest

from llmservice_operator.planning.types import MemoryCorrection, NodeAccelerators
from unit.perfmodel.samples import SMOLLM2, catalogue, load_config, on, planned, refused

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
LLAMA_70B = "meta-llama--Meta-Llama-3.1-70B"
H200 = on("nvidia-h200")


@pytest.mark.parametrize(
    ("config", "spec", "reason", "words"),
    [
        (SMOLLM2, on("nvidia-h2000"), "UnknownAccelerator", "'nvidia-h2000', which is no row of the catalogue"),
        (SMOLLM2, {}, "AcceleratorRequired", "spec.accelerator.types is empty"),
        (None, H200, "ModelConfigUnavailable", "put it into a ConfigMap"),
        ({**SMOLLM2, "hidden_size": 0}, H200, "InvalidModelConfig", "hidden_size is 0"),
        ({**SMOLLM2, "architectures": ["BertModel"]}, H200, "UnsupportedModel", "embedding"),
        ({**SMOLLM2, "laurel_rank": 64}, H200, "UnsupportedModel", "laurel_rank"),
        (SMOLLM2, on("nvidia-l4", workload={"context": {"min": 9000}}), "InvalidSpec", "is 9000, above the 8192"),
        (SMOLLM2, on("nvidia-l4", engine={"pin": {"maxModelLen": 9000}}), "InvalidSpec", "maxModelLen is 9000"),
        (SMOLLM2, on("nvidia-l4", engine={"quantization": "awq"}), "InvalidSpec", "has no quantization_config"),
        (SMOLLM2, on("nvidia-l4", engine={"kvCacheDtype": "int3"}), "InvalidSpec", "kvCacheDtype is 'int3'"),
        (SMOLLM2, on("nvidia-l4", engine={"args": {"dtype": "int3"}}), "InvalidSpec", "args.dtype is 'int3'"),
        (
            SMOLLM2,
            {"accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 2}}},
            "InvalidSpec",
            "9 attention heads don't divide by 2",
        ),
        (
            "Qwen--Qwen3-30B-A3B-FP8",
            {"accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 8}}},
            "InvalidSpec",
            "isn't whole blocks of 128",
        ),
        (
            "openai--gpt-oss-20b",
            on("nvidia-h100-80gb", engine={"pin": {"gpuMemoryUtilization": 0.95, "maxNumSeqs": 1024}}),
            "InvalidSpec",
            "spec.engine.pin.gpuMemoryUtilization is 0.95",
        ),
    ],
)  # fmt: skip
def test_reason_and_words(config: Any, spec: dict[str, Any], reason: str, words: str) -> None:
    refusal = refused(config, spec, engine_version="0.19.0")

    assert (refusal.reason, words in refusal.message) == (reason, True), refusal.message


@pytest.mark.parametrize(
    ("config", "spec", "changes"),
    [(None, H200, {}), (SMOLLM2, {}, {"nodes": ()})],
)
def test_what_may_still_come_is_not_certain(
    config: Any, spec: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert not refused(config, spec, **changes).certain


def test_nodes_without_accelerators_are_no_misfit() -> None:
    nodes = (NodeAccelerators(node_name="n", labels={}, allocatable={"cpu": 2}),)

    assert refused(SMOLLM2, nodes=nodes).reason == "NoAcceleratorSeen"


def test_a_misfit_tells_the_shortfall() -> None:
    spec = {"accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}}

    refusal = refused(LLAMA_70B, spec)

    assert refusal.reason == "DoesNotFit"
    assert refusal.shortfall_bytes is not None
    assert f"{refusal.shortfall_bytes / (1 << 30):.2f} GiB short" in refusal.message


def mended(message: str, field: str) -> str:
    """The value that a refusal offers for a field."""
    after = message.partition(f"{field} of ")[2]
    return after.split(";")[0]


def test_the_context_that_is_offered_fits() -> None:
    spec = {"accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}}
    refusal = refused(LLAMA_8B, {**spec, "workload": {"context": {"min": 65_536}}})

    offered = int(mended(refusal.message, "spec.workload.context.min"))

    assert (
        planned(LLAMA_8B, {**spec, "workload": {"context": {"min": offered}}}).knobs.max_model_len >= offered
    )


def test_the_cache_format_that_is_offered_fits() -> None:
    spec = {"accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}}
    workload = {"context": {"min": 40_000}}
    refusal = refused(LLAMA_8B, {**spec, "workload": workload})

    offered = mended(refusal.message, "spec.engine.kvCacheDtype")

    assert planned(LLAMA_8B, {**spec, "workload": workload, "engine": {"kvCacheDtype": offered}})


def test_the_accelerator_that_is_offered_fits() -> None:
    workload = {"context": {"min": 65_536}}
    spec = {"accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}, "workload": workload}
    refusal = refused(LLAMA_8B, spec)

    offered = mended(refusal.message, "spec.accelerator.types").partition("]")[0].removeprefix("[")

    assert planned(LLAMA_8B, on(offered, workload=workload)).accelerator.name == offered


def test_weights_that_are_quantised_while_loading_must_fit_before() -> None:
    """14.8e9 parameters in 16 bits exceed an L4's 22 GiB, though half of that would fit."""
    spec = {
        "accelerator": {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}},
        "engine": {"quantization": "fp8"},
    }
    config = {**load_config("Qwen--Qwen2.5-32B-Instruct"), "num_hidden_layers": 28}

    refusal = refused(config, spec)

    assert "loaded in 16 bits before they are quantised" in refusal.message


def test_a_mistyped_accelerator_finds_its_neighbour() -> None:
    assert "did you mean nvidia-h200" in refused(SMOLLM2, on("nvidia-h2000")).message


def test_the_cpu_row_is_one_rank() -> None:
    refusal = refused(SMOLLM2, {"accelerator": {"types": ["cpu"], "parallelism": {"tensor": 3}}})

    assert (refusal.reason, "the cpu row has one rank" in refusal.message) == ("InvalidSpec", True)


def test_a_card_that_lacks_a_format_is_refused_by_name() -> None:
    old = replace(catalogue()[4], name="nvidia-t4", compute_capability="7.5")

    refusal = refused(SMOLLM2, on("nvidia-t4"), catalogue=(old,))

    assert "can't compute in bfloat16; set spec.engine.args.dtype to half" in refusal.message


def test_the_engines_own_length_is_obeyed() -> None:
    correction = MemoryCorrection(
        failure_class="KvCacheTooSmall", estimated_max_model_len=5000, stage="profile"
    )

    plan = planned(LLAMA_8B, on("nvidia-l4", workload={"context": {"max": 8192}}), correction=correction)

    assert plan.knobs.max_model_len <= 5000


@pytest.mark.parametrize("available", [None, 0, int(-1.07 * (1 << 30))])
def test_without_a_figure_the_most_frugal_batch_is_taken(available: int | None) -> None:
    """Where the weights alone exceed the budget, vLLM tells of no length and of less than nothing for the cache."""
    correction = MemoryCorrection(
        failure_class="KvCacheTooSmall", kv_cache_available_bytes=available, stage="profile"
    )

    plan = planned(LLAMA_8B, on("nvidia-h200"), correction=correction)

    assert (plan.knobs.max_num_batched_tokens, plan.knobs.max_num_seqs) == (2048, 16)


def test_weights_above_the_budget_are_refused_by_the_plans_own_account() -> None:
    """Of this start vLLM 0.26.0 on an H200 said: 131.45 GiB of weights, -1.07 GiB for the cache."""
    correction = MemoryCorrection(
        failure_class="KvCacheTooSmall",
        kv_cache_available_bytes=int(-1.07 * (1 << 30)),
        stage="profile",
        message="ValueError: No available memory for the cache blocks.",
    )
    spec = {"accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 1}}}

    refusal = refused(LLAMA_70B, spec, correction=correction)

    assert refusal.reason == "DoesNotFit"
    assert "of 132.81 GiB the weights take 131.45 GiB" in refusal.message
    assert "spec.accelerator.parallelism.tensor of 2" in refusal.message


def test_a_length_below_the_minimum_is_refused() -> None:
    correction = MemoryCorrection(
        failure_class="KvCacheTooSmall", estimated_max_model_len=5000, stage="profile"
    )

    refusal = refused(LLAMA_8B, on("nvidia-l4", workload={"context": {"min": 8192}}), correction=correction)

    assert refusal.reason == "DoesNotFit"
    assert "5,000 tokens" in refusal.message


@pytest.mark.parametrize("stage", ["warmup", "capture", "serving"])
def test_a_late_shortage_lowers_utilisation_and_batch(stage: str) -> None:
    before = planned(LLAMA_8B, on("nvidia-h100-80gb"))

    after = planned(
        LLAMA_8B,
        on("nvidia-h100-80gb"),
        correction=MemoryCorrection(failure_class="OutOfMemory", stage=stage),
    )

    assert (after.knobs.gpu_memory_utilization or 0) < (before.knobs.gpu_memory_utilization or 0)
    assert after.knobs.max_num_seqs < before.knobs.max_num_seqs


def test_a_card_that_is_not_empty_is_used_as_far_as_it_is_free() -> None:
    words = "Free memory on device cuda:0 (60.00/80.00 GiB) on startup is less than desired GPU memory utilization"
    correction = MemoryCorrection(failure_class="DeviceNotEmpty", stage="load", message=words)

    plan = planned(LLAMA_8B, on("nvidia-h100-80gb"), correction=correction)

    assert (plan.knobs.gpu_memory_utilization or 1) <= 0.75


def test_more_cache_than_a_start_had_is_not_promised() -> None:
    correction = MemoryCorrection(
        failure_class="KvCacheTooSmall", kv_cache_available_bytes=1 << 30, stage="profile"
    )

    plan = planned(LLAMA_8B, on("nvidia-h200", workload={"context": {"min": 2048}}), correction=correction)

    assert plan.knobs.max_model_len <= (1 << 30) // 131_072


def test_a_hub_config_is_named_in_the_refusal() -> None:
    refusal = refused({**load_config(LLAMA_8B), "vocab_size": None}, H200)

    assert "(test)" in refusal.message


ONE_L4 = {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}


def offered(message: str) -> list[str]:
    """The changes that a refusal offers, in order."""
    return message.partition("what would fit, cheapest first: ")[2].split("; ")


def test_length_comes_before_bits_and_bits_before_money() -> None:
    refusal = refused(LLAMA_8B, {"accelerator": ONE_L4, "workload": {"context": {"min": 40_000}}})

    shorter, narrower, paid = offered(refusal.message)
    assert shorter.startswith("spec.workload.context.min of ")
    assert narrower == "spec.engine.kvCacheDtype of fp8"
    assert paid.startswith("spec.accelerator.")


def test_what_costs_is_told_by_price() -> None:
    """Two L4 at 0.75 an hour cost less than an L40S at 1.9."""
    rows = tuple(row for row in catalogue() if row.name in {"nvidia-l4", "nvidia-l40s"})
    spec = {"accelerator": ONE_L4, "workload": {"context": {"min": 80_000}}}

    refusal = refused(LLAMA_8B, spec, catalogue=rows)

    (ranks, card) = (each for each in offered(refusal.message) if each.startswith("spec.accelerator."))
    assert ranks.startswith("spec.accelerator.parallelism.tensor of ")
    assert card.startswith("spec.accelerator.types of [")


def test_a_card_that_a_node_has_is_offered_before_a_cheaper_one() -> None:
    nodes = tuple(
        NodeAccelerators(
            node_name=product,
            labels={"nvidia.com/gpu.product": product},
            allocatable={"nvidia.com/gpu": 1},
        )
        for product in ("NVIDIA-L4", "NVIDIA-H200")
    )
    spec = {"accelerator": ONE_L4, "workload": {"context": {"min": 131_072}}}

    refusal = refused(LLAMA_8B, spec, nodes=nodes)

    assert any(
        "spec.accelerator.types of [nvidia-h200], 1 a replica" in each for each in offered(refusal.message)
    )


def test_the_concurrency_that_is_offered_fits_and_no_more_does() -> None:
    workload: dict[str, Any] = {
        "context": {"min": 2048, "max": 2048},
        "inputTokens": {"p95": 1800},
        "outputTokens": {"p95": 240},
        "concurrency": {"min": 200},
    }
    spec = {"accelerator": ONE_L4, "workload": workload}
    most = int(mended(refused(LLAMA_8B, spec).message, "spec.workload.concurrency.min"))

    workload["concurrency"] = {"min": most}
    assert planned(LLAMA_8B, spec).knobs.max_num_seqs >= most
    workload["concurrency"] = {"min": most + 1}
    assert refused(LLAMA_8B, spec).reason == "DoesNotFit"


def test_weights_in_fewer_bits_are_offered_where_nothing_cheaper_helps() -> None:
    """405e9 parameters in 16 bits exceed eight cards of 80 GB, and of every card of the catalogue but AMD's."""
    rows = tuple(row for row in catalogue() if row.name == "nvidia-h100-80gb")

    refusal = refused("meta-llama--Llama-3.1-405B-Instruct", on("nvidia-h100-80gb"), catalogue=rows)

    assert offered(refusal.message)[-1] == "a checkpoint with weights in FP8"


def test_the_limit_that_is_offered_fits() -> None:
    def limited(memory: str) -> dict[str, Any]:
        return {
            **on("cpu", workload={"context": {"max": 2048}}),
            "podTemplate": {"resources": {"limits": {"memory": memory}}},
        }

    refusal = refused(SMOLLM2, limited("2Gi"))

    assert planned(SMOLLM2, limited(mended(refusal.message, "spec.podTemplate.resources.limits.memory")))


def test_nothing_is_offered_that_does_not_fit() -> None:
    rows = tuple(row for row in catalogue() if row.name == "nvidia-l4")

    refusal = refused("meta-llama--Llama-3.1-405B-Instruct", on("nvidia-l4"), catalogue=rows)

    assert "no single change and no accelerator of the catalogue makes it fit" in refusal.message


def test_a_larger_card_is_offered_before_many_small_ones() -> None:
    """Eight cards of 24 GB cost less than one of 48, and nobody asked for eight."""
    spec = {"accelerator": ONE_L4, "workload": {"context": {"min": 65_536}}}

    (card,) = (each for each in offered(refused(LLAMA_8B, spec).message) if "accelerator.types" in each)

    name = card.partition("[")[2].partition("]")[0]
    sizes = {row.name: row.memory_bytes for row in catalogue()}
    assert sizes[name] > sizes["nvidia-l4"]


def test_each_card_that_cannot_run_is_told_once() -> None:
    pin = {"gpuMemoryUtilization": 0.99, "maxNumSeqs": 1024}
    spec = on("nvidia-h100-80gb", "nvidia-h100-nvl", engine={"pin": pin})

    refusal = refused("openai--gpt-oss-20b", spec, engine_version="0.19.0")

    assert refusal.message.count("nvidia-h100-80gb outside") == 1
    assert refusal.message.count("nvidia-h100-nvl outside") == 1


def test_more_pinned_sequences_than_blocks_of_states_are_refused() -> None:
    """As the estimate of the same flags says: capturing graphs would refuse them."""
    spec = {
        "accelerator": {"types": ["nvidia-a30"], "parallelism": {"tensor": 4}},
        "engine": {"pin": {"maxNumSeqs": 1024}},
        "workload": {"context": {"max": 32_768}},
    }

    refusal = refused("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", spec)

    assert "spec.engine.pin.maxNumSeqs is 1,024" in refusal.message
    assert "blocks of states" in refusal.message
