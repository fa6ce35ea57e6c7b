"""Plans on accelerators: the choice of card and ranks, and every knob."""

from typing import Any

import pytest

from llmservice_operator.planning.types import ModelFacts, NodeAccelerators
from unit.perfmodel.samples import SMOLLM2, load_config, on, planned

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
LLAMA_70B = "meta-llama--Meta-Llama-3.1-70B"
GPT_OSS = "openai--gpt-oss-20b"
GIB = 1 << 30


def node(product: str, count: int, *, resource: str = "nvidia.com/gpu") -> NodeAccelerators:
    return NodeAccelerators(
        node_name="n", labels={"nvidia.com/gpu.product": product}, allocatable={resource: count}
    )


def test_the_cheapest_that_fits_is_taken() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", "nvidia-l4"))

    assert plan.accelerator.name == "nvidia-l4"


def test_the_fewest_ranks_that_fit_are_taken() -> None:
    plan = planned(LLAMA_70B, on("nvidia-h100-80gb", workload={"context": {"min": 131_072}}))

    assert plan.accelerators_per_replica == plan.knobs.tensor_parallel_size == 4


def test_two_h200_hold_what_takes_four_h100() -> None:
    assert planned(LLAMA_70B, on("nvidia-h200")).accelerators_per_replica == 2


def test_the_size_that_the_user_says_is_kept() -> None:
    spec = {"accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 4}}}

    assert planned(LLAMA_8B, spec).accelerators_per_replica == 4


def test_a_visible_card_comes_before_a_cheaper_one_that_is_not() -> None:
    nodes = (node("NVIDIA-H200", 8),)

    plan = planned(LLAMA_8B, on("nvidia-l4", "nvidia-h200"), nodes=nodes)

    assert plan.accelerator.name == "nvidia-h200"
    assert plan.warnings == ()


def test_a_named_card_that_no_node_has_is_planned_and_said() -> None:
    plan = planned(LLAMA_8B, on("nvidia-l4"), nodes=())

    assert any("no visible node has nvidia-l4" in warning for warning in plan.warnings)


def test_without_types_the_nodes_decide() -> None:
    assert planned(LLAMA_8B, nodes=(node("NVIDIA-L40S", 4),)).accelerator.name == "nvidia-l40s"


def test_a_service_stays_on_its_card_when_a_cheaper_one_turns_up() -> None:
    nodes = (node("NVIDIA-H200", 8), node("NVIDIA-L40S", 8))

    plan = planned(LLAMA_8B, nodes=nodes, current_accelerator="nvidia-h200")

    assert plan.accelerator.name == "nvidia-h200"
    assert plan.reasons[0] == "accelerator: nvidia-h200 x 1, as the service runs on it"


def test_a_service_stays_on_its_card_when_its_nodes_are_gone() -> None:
    plan = planned(LLAMA_8B, nodes=(), current_accelerator="nvidia-h200")

    assert plan.accelerator.name == "nvidia-h200"


def test_a_service_leaves_a_card_that_the_user_no_longer_names() -> None:
    plan = planned(LLAMA_8B, on("nvidia-l40s"), current_accelerator="nvidia-h200")

    assert plan.accelerator.name == "nvidia-l40s"


def test_a_service_leaves_a_card_on_which_it_no_longer_fits() -> None:
    one_rank = {"types": ["nvidia-l4", "nvidia-h200"], "parallelism": {"tensor": 1}}
    long = {"context": {"min": 131_072}}

    plan = planned(LLAMA_8B, {"accelerator": one_rank, "workload": long}, current_accelerator="nvidia-l4")

    assert plan.accelerator.name == "nvidia-h200"


def test_a_mig_slice_has_the_memory_of_its_profile() -> None:
    spec = {"accelerator": {"types": ["nvidia-h100-80gb"], "resourceName": "nvidia.com/mig-3g.40gb"}}

    plan = planned(LLAMA_8B, spec)

    assert (plan.resource_name, plan.total_bytes) == ("nvidia.com/mig-3g.40gb", 38 * GIB)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({}, 131_072),
        ({"context": {"max": 16_384}}, 16_384),
        ({"context": {"max": 1_000_000}}, 131_072),
    ],
)
def test_context_where_memory_is_no_matter(workload: dict[str, Any], expected: int) -> None:
    assert planned(LLAMA_8B, on("nvidia-h200", workload=workload)).knobs.max_model_len == expected


def test_a_context_above_the_models_own_is_capped_in_words() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", workload={"context": {"max": 1_000_000}}))

    assert any("1,000,000 were asked for, the model has 131,072" in reason for reason in plan.reasons)


def test_context_is_reduced_where_memory_is_short_and_it_is_said() -> None:
    plan = planned(LLAMA_8B, on("nvidia-l4", workload={"context": {"min": 8192, "max": 131_072}}))

    assert 8192 <= plan.knobs.max_model_len < 131_072
    assert any("of 131,072 wanted" in reason for reason in plan.reasons)


def test_the_minimum_is_never_given_up() -> None:
    plan = planned(LLAMA_8B, on("nvidia-l4", workload={"context": {"min": 100_000}}))

    assert plan.knobs.max_model_len >= 100_000
    assert plan.accelerators_per_replica > 1


def test_concurrency_at_p95_length_is_held() -> None:
    workload = {
        "context": {"min": 8192, "max": 8192},
        "inputTokens": {"p95": 4000},
        "outputTokens": {"p95": 1000},
        "concurrency": {"min": 100},
    }

    plan = planned(LLAMA_8B, on("nvidia-l4", "nvidia-h200", workload=workload))

    assert plan.kv_cache_tokens >= 100 * 5000
    assert plan.knobs.max_num_seqs >= 100


def test_utilisation_leaves_what_lies_outside_of_the_budget() -> None:
    """gpt-oss-20b on an 80-GB H100 dies at 0.95 with 1,024 sequences in its sampler's warm-up (vLLM 0.19)."""
    pinned = {"engine": {"pin": {"maxNumSeqs": 1024}}, **on("nvidia-h100-80gb")}

    plan = planned(GPT_OSS, pinned, engine_version="0.19.0")

    assert plan.knobs.gpu_memory_utilization is not None
    assert plan.knobs.gpu_memory_utilization < 0.95


@pytest.mark.parametrize(
    ("pin", "attribute", "value"),
    [
        ({"maxModelLen": 4096}, "max_model_len", 4096),
        ({"gpuMemoryUtilization": 0.6}, "gpu_memory_utilization", 0.6),
        ({"maxNumSeqs": 7}, "max_num_seqs", 7),
        ({"maxNumBatchedTokens": 1024}, "max_num_batched_tokens", 1024),
        ({"blockSize": 32}, "block_size", 32),
    ],
)
def test_a_pin_is_kept(pin: dict[str, Any], attribute: str, value: float) -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", engine={"pin": pin}))

    assert getattr(plan.knobs, attribute) == value


def test_a_low_pin_says_what_it_costs() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200", engine={"pin": {"gpuMemoryUtilization": 0.5}}))

    assert any("it costs 62.91 GiB of KV cache" in reason for reason in plan.reasons)


def test_a_state_model_runs_no_more_sequences_than_states() -> None:
    plan = planned("Qwen--Qwen3.5-35B-A3B", on("nvidia-h100-80gb"), engine_version="0.33.0")
    blocks = int(next(term for term in plan.memory if term.name == "kv_cache").explanation.split()[0])

    assert plan.knobs.max_num_seqs <= blocks


@pytest.mark.parametrize(
    "args",
    [
        {"language-model-only": "true"},
        {"limit-mm-per-prompt": '{"image": 0, "video": 0}'},
        {"limit-mm-per-prompt": '{"image": {"count": 0}, "video": {"count": 0}}'},
    ],
)
def test_a_text_only_switch_frees_the_encoder(args: dict[str, str]) -> None:
    whole = planned("Qwen--Qwen3-VL-30B-A3B-Instruct", on("nvidia-h200"))
    text = planned("Qwen--Qwen3-VL-30B-A3B-Instruct", on("nvidia-h200", engine={"args": args}))

    assert text.weights_bytes < whole.weights_bytes
    assert text.kv_cache_tokens > whole.kv_cache_tokens


@pytest.mark.parametrize(
    "args",
    [
        {"enable-lora": "true", "max-loras": "4", "max-lora-rank": "64"},
        {"speculative-config": '{"method": "mtp", "num_speculative_tokens": 2}'},
    ],
)
def test_a_feature_that_takes_memory_is_counted(args: dict[str, str]) -> None:
    plain = planned(LLAMA_8B, on("nvidia-h200"))

    featured = planned(LLAMA_8B, on("nvidia-h200", engine={"args": args}))

    assert featured.kv_cache_tokens < plain.kv_cache_tokens
    assert any(term.name == "extras" for term in featured.memory)


def test_offloaded_weights_move_to_the_host() -> None:
    plain = planned(LLAMA_8B, on("nvidia-h200"))

    offloaded = planned(LLAMA_8B, on("nvidia-h200", engine={"args": {"cpu-offload-gb": "5"}}))

    assert offloaded.host_memory_bytes == plain.host_memory_bytes + 5 * GIB
    assert offloaded.memory[0].size_bytes == plain.memory[0].size_bytes - 5 * GIB


def test_one_rank_needs_no_shared_memory() -> None:
    assert planned(LLAMA_8B, on("nvidia-h200")).shm_bytes == 0


def test_ranks_need_shared_memory_for_their_queues() -> None:
    """184 + 240 x 8 MiB are 2.05 GiB of ring buffers (vLLM 0.33)."""
    spec = {"accelerator": {"types": ["nvidia-h200"], "parallelism": {"tensor": 8}}}

    assert planned(LLAMA_70B, spec).shm_bytes >= 2.05 * GIB


@pytest.mark.parametrize("name", [LLAMA_8B, GPT_OSS, "Qwen--Qwen3-32B-FP8", "deepseek-ai--DeepSeek-V2-Lite"])
def test_the_terms_add_up_to_the_card(name: str) -> None:
    plan = planned(name, on("nvidia-h200"))

    assert abs(sum(term.size_bytes for term in plan.memory) - plan.total_bytes) <= 1


def test_the_checkpoints_own_bytes_are_taken_where_they_are_known() -> None:
    facts = ModelFacts(config=SMOLLM2, weights_bytes=269_060_552)

    assert planned(SMOLLM2, on("nvidia-l4"), model=facts).weights_bytes == 269_060_552


def test_a_checkpoint_that_differs_from_its_config_is_told() -> None:
    facts = ModelFacts(config=SMOLLM2, weights_bytes=500_000_000)

    plan = planned(SMOLLM2, on("nvidia-l4"), model=facts)

    assert any("one of them is wrong" in warning for warning in plan.warnings)


def test_an_unknown_version_is_planned_with_the_newest_rules_and_says_so() -> None:
    plan = planned(LLAMA_8B, on("nvidia-h200"), engine_version="")

    assert any("the rules of vLLM 0.33.0 are used" in warning for warning in plan.warnings)


def test_a_checkpoints_fp8_cache_is_planned_for() -> None:
    config = load_config("nvidia--Llama-3.1-70B-Instruct-FP8")
    plan = planned(config, on("nvidia-h200"))
    bf16 = planned(LLAMA_70B, on("nvidia-h200", engine={"quantization": "fp8"}))

    assert plan.knobs.kv_cache_dtype == "auto"
    assert plan.kv_cache_tokens > 1.9 * bf16.kv_cache_tokens


def test_a_smaller_token_budget_makes_room_where_windows_hold_batches_in_flight() -> None:
    """Each of gemma's window layers keeps 2 x 8,192 tokens in flight beside its window of 1,024 (vLLM 0.26)."""
    plan = planned("google--gemma-4-26B-A4B", on("nvidia-h100-80gb", workload={"context": {"max": 32_768}}))
    generous = planned(
        "google--gemma-4-26B-A4B",
        on(
            "nvidia-h100-80gb",
            workload={"context": {"max": 32_768}},
            engine={"pin": {"maxNumBatchedTokens": 8192}},
        ),
    )

    assert plan.knobs.max_num_batched_tokens < 8192
    assert plan.max_concurrency > 1.3 * generous.max_concurrency
    assert any(f"with 8,192 it would hold {generous.max_concurrency:.2f}" in each for each in plan.reasons)


def test_a_model_without_windows_keeps_the_generous_budget() -> None:
    assert planned(LLAMA_8B, on("nvidia-h100-80gb")).knobs.max_num_batched_tokens == 8192


def test_sequences_are_not_given_up_for_a_somewhat_longer_context() -> None:
    assert planned(LLAMA_8B, on("nvidia-l4")).knobs.max_num_seqs >= 64


def test_sequences_are_given_up_where_nothing_fits_otherwise() -> None:
    floor = {"context": {"min": 32_600, "max": 32_600}}
    one = {"types": ["nvidia-l4"], "parallelism": {"tensor": 1}}

    plan = planned(LLAMA_8B, {"accelerator": one, "workload": floor})

    assert plan.knobs.max_num_seqs < 64


@pytest.mark.parametrize(
    ("name", "value", "charged"),
    [
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0", False),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "1", True),
        ("VLLM_USE_V2_MODEL_RUNNER", "1", False),
    ],
)
def test_a_variable_that_moves_memory_is_planned_for(name: str, value: str, charged: bool) -> None:
    """Runner V1 of 0.26 charges an estimate of the graphs unless it is told not to; V2 charges none."""
    env = [{"name": name, "value": value}]

    plan = planned("Qwen--Qwen3-30B-A3B", on("nvidia-h200", engine={"env": env}))

    (graphs,) = (term.size_bytes for term in plan.memory if term.name == "cuda_graphs")
    assert (graphs > 0) == charged
