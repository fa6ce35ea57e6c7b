"""The CPU row."""

import pytest

from llmservice_operator.planning.types import MemoryCorrection
from unit.perfmodel.samples import SMOLLM2, load_config, on, planned, refused

GIB = 1 << 30
CPU = on("cpu", workload={"context": {"max": 2048}}, engine={"args": {"enforce-eager": "true"}})

ALLOWED = {"name": "TORCH_COMPILE_DISABLE", "value": "0"}


def limited(memory: str) -> dict[str, object]:
    return {**CPU, "podTemplate": {"resources": {"limits": {"memory": memory}}}}


def test_smollm2_gets_the_cache_that_the_engine_reported() -> None:
    plan = planned(SMOLLM2, CPU, engine_version="0.32.0")

    space = plan.env["VLLM_CPU_KVCACHE_SPACE"]
    assert (space, plan.kv_cache_tokens, plan.max_concurrency) == ("1", 23_296, 11.38)


def test_threads_are_not_bound() -> None:
    assert planned(SMOLLM2, CPU).env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_a_binding_of_the_users_is_theirs() -> None:
    env = [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "0-3"}]

    assert "VLLM_CPU_OMP_THREADS_BIND" not in planned(SMOLLM2, {**CPU, "engine": {"env": env}}).env


def test_an_eager_engine_compiles_nothing_while_it_serves() -> None:
    """A sampler's kernel that is compiled beside a full cache got a container of 3 GiB killed."""
    plan = planned(SMOLLM2, CPU)

    assert plan.env["TORCH_COMPILE_DISABLE"] == "1"
    assert "compiler" not in {term.name for term in plan.memory}


@pytest.mark.parametrize("engine", [{}, {"args": {"enforce-eager": "true"}, "env": [ALLOWED]}])
def test_an_engine_that_compiles_has_room_for_it(engine: dict[str, object]) -> None:
    plan = planned(SMOLLM2, {**CPU, "engine": engine})

    assert "TORCH_COMPILE_DISABLE" not in plan.env
    assert "compiler" in {term.name for term in plan.memory}


def test_memory_is_requested_and_limited() -> None:
    plan = planned(SMOLLM2, CPU)

    assert plan.host_memory_limited
    assert plan.host_memory_bytes == 4 * GIB


def test_the_terms_add_up_to_the_containers_memory() -> None:
    plan = planned(SMOLLM2, CPU)

    assert sum(term.size_bytes for term in plan.memory) == plan.total_bytes == plan.host_memory_bytes


def test_float32_unless_the_user_says_so() -> None:
    assert planned(SMOLLM2, CPU).engine_args == (("dtype", "float32"),)


def test_the_users_dtype_halves_the_weights() -> None:
    bf16 = planned(SMOLLM2, {**CPU, "engine": {"args": {"dtype": "bfloat16"}}})

    assert bf16.weights_bytes * 2 == pytest.approx(planned(SMOLLM2, CPU).weights_bytes, rel=1e-5)
    assert bf16.engine_args == ()


def test_no_accelerator_is_asked_for() -> None:
    plan = planned(SMOLLM2, CPU)

    assert (plan.resource_name, plan.accelerators_per_replica) == ("", 0)


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", "6Gi", "16Gi"])
def test_a_given_limit_is_kept(memory: str) -> None:
    plan = planned(SMOLLM2, limited(memory))

    assert plan.host_memory_bytes == int(memory.removesuffix("Gi")) * GIB


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", "6Gi"])
def test_a_given_limit_is_used_to_four_fifths(memory: str) -> None:
    """By what is resident whatever is asked: processes, weights and their copies, the KV cache."""
    plan = planned(SMOLLM2, limited(memory), engine_version="0.32.0")

    always = {"process", "weights", "packed", "kv_cache"}
    used = sum(term.size_bytes for term in plan.memory if term.name in always)
    assert 0.8 * plan.host_memory_bytes <= used <= plan.host_memory_bytes


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", "6Gi"])
def test_a_cache_within_a_limit_is_of_whole_blocks(memory: str) -> None:
    """30 layers x 3 heads x 128 tokens x (64 + 64) x 4 B."""
    plan = planned(SMOLLM2, limited(memory), engine_version="0.32.0")

    assert plan.knobs.kv_cache_bytes is not None
    assert plan.knobs.kv_cache_bytes % 5_898_240 == 0


def test_a_cache_of_no_whole_gib_is_told_in_bytes() -> None:
    plan = planned(SMOLLM2, limited("3Gi"), engine_version="0.32.0")

    assert ("kv-cache-memory-bytes", str(plan.knobs.kv_cache_bytes)) in plan.engine_args
    assert "VLLM_CPU_KVCACHE_SPACE" not in plan.env


def test_an_old_engine_takes_whole_gib_only() -> None:
    plan = planned(SMOLLM2, limited("6Gi"), engine_version="0.19.0")

    assert plan.env["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_a_larger_limit_gives_a_larger_cache() -> None:
    small, large = planned(SMOLLM2, limited("4Gi")), planned(SMOLLM2, limited("6Gi"))

    assert small.kv_cache_tokens < large.kv_cache_tokens


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", "6Gi"])
@pytest.mark.parametrize("failure_class", ["HostOutOfMemory", "OutOfMemory"])
def test_a_start_that_outgrew_its_limit_is_planned_with_less_cache(memory: str, failure_class: str) -> None:
    """And still with what one request of the workload takes."""
    failed = planned(SMOLLM2, limited(memory), engine_version="0.32.0").knobs.kv_cache_bytes
    assert failed is not None
    correction = MemoryCorrection(
        failure_class=failure_class,
        accelerator="cpu",
        planned_cache_bytes=failed,
        message="",
        stage="profile",
    )

    plan = planned(SMOLLM2, limited(memory), engine_version="0.32.0", correction=correction)

    assert plan.knobs.kv_cache_bytes is not None
    assert plan.knobs.kv_cache_bytes <= max(failed - GIB, failed // 2)
    assert (plan.max_concurrency >= 1, plan.knobs.max_model_len) == (True, 2048)


def test_the_margin_is_given_up_before_a_service_is_refused() -> None:
    """Compiled, it holds a quarter of a GiB more: 3 GiB are just enough for one request, less a tenth they are not."""
    plan = planned(SMOLLM2, {**limited("3Gi"), "engine": {}}, engine_version="0.32.0")

    assert plan.max_concurrency == 1.06


def test_the_room_for_the_checkpoints_pages_is_given_up_before_a_service_is_refused() -> None:
    """16 GB of file pages beside 30 GiB of weights."""
    limits = {"podTemplate": {"resources": {"limits": {"memory": "40Gi"}}}}

    plan = planned("meta-llama--Meta-Llama-3.1-8B", {**CPU, **limits}, engine_version="0.32.0")

    assert plan.max_concurrency >= 1


def test_without_a_limit_there_is_room_for_the_checkpoints_pages() -> None:
    """The engine refuses a cache that isn't free beside them: 30 GiB of weights, 15 of pages."""
    plan = planned("meta-llama--Meta-Llama-3.1-8B", CPU, engine_version="0.32.0")

    assert plan.host_memory_bytes > plan.weights_bytes * 1.5 + (plan.knobs.kv_cache_bytes or 0)


def test_a_limit_that_holds_no_cache_is_refused_with_the_shortfall() -> None:
    refusal = refused(SMOLLM2, limited("2Gi"))

    assert refusal.reason == "DoesNotFit"
    assert (
        "of the container's limit of 2.00 GiB (spec.podTemplate.resources.limits.memory)" in refusal.message
    )


def test_what_a_large_limit_leaves_is_not_called_rounding() -> None:
    (margin,) = (term for term in planned(SMOLLM2, limited("64Gi")).memory if term.name == "margin")

    assert margin.size_bytes > 32 << 30
    assert margin.explanation.endswith("what else the limit leaves")


def test_concurrency_widens_the_cache() -> None:
    spec = {**CPU, "workload": {"context": {"max": 2048}, "concurrency": {"min": 64}}}

    plan = planned(SMOLLM2, spec)

    assert plan.max_concurrency >= 64
    assert plan.knobs.max_num_seqs >= 64


def test_a_context_nobody_asked_for_is_bounded() -> None:
    plan = planned(load_config("Qwen--Qwen3-0.6B"), on("cpu"))

    assert plan.knobs.max_model_len == 8192


def test_a_pinned_utilisation_is_told_to_be_unused() -> None:
    plan = planned(SMOLLM2, {**CPU, "engine": {"pin": {"gpuMemoryUtilization": 0.5}}})

    assert plan.knobs.gpu_memory_utilization is None
    assert any("not used on the cpu row" in reason for reason in plan.reasons)
