"""The terms of the memory account, each against a figure worked out by hand or printed by an engine."""

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from llmservice_operator.engines.versions import memory_rules
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.device_shape import device_shape
from llmservice_operator.perfmodel.memory import (
    GIB,
    MIB,
    Batch,
    EngineMemoryRules,
    account,
    activation_bytes,
    capture_counts,
    forward_bytes,
    graph_bytes,
    graph_estimate_bytes,
    non_torch_bytes,
    sampler_state_bytes,
)
from llmservice_operator.perfmodel.memory_encoder import encoder_kept_bytes
from llmservice_operator.perfmodel.memory_forward import expert_workspace_bytes, latent_rehearsal_bytes
from llmservice_operator.perfmodel.memory_graphs import split_bytes
from llmservice_operator.perfmodel.memory_sampler import logits_bytes, threshold_buffer_bytes
from llmservice_operator.perfmodel.shapes import Architecture
from unit.perfmodel.samples import generating_models, load_config

LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
QWEN3_30B = "Qwen--Qwen3-30B-A3B"
DEEPSEEK_LITE = "deepseek-ai--DeepSeek-V2-Lite"
GPT_OSS = "openai--gpt-oss-20b"
H200 = device_shape("9.0", 140 * GIB)
V0_26, V0_19, V0_12 = (0, 26, 0), (0, 19, 0), (0, 12, 0)


def model(name: str) -> Architecture:
    return read_architecture(load_config(name))


def batch(**changes: object) -> Batch:
    given_knobs = {
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 16384,
        "tensor_parallel_size": 1,
        "dtype": "bfloat16",
        "device": H200,
    }
    return Batch(**{**given_knobs, **changes})  # type: ignore[arg-type]


def rules(name: str, version: tuple[int, int, int] = V0_26) -> EngineMemoryRules:
    return memory_rules(version, model(name))


def test_a_dense_layer_holds_gate_up_product_attention_and_residuals() -> None:
    """16,384 tokens of Llama-3.1-8B: 6 x 14,336 and 3 x 2 x 4,096 bytes each; cuBLAS 32 MiB, the L2 cache 60."""
    expected = 16384 * (6 * 14336 + 3 * 2 * 4096) + 92 * MIB

    assert forward_bytes(model(LLAMA_8B), batch(), rules(LLAMA_8B)) == expected


def test_eager_mode_times_no_kernels() -> None:
    found = [
        forward_bytes(model(LLAMA_8B), batch(enforce_eager=eager), rules(LLAMA_8B)) for eager in (False, True)
    ]

    assert found[0] - found[1] == 60 * MIB


def test_few_tokens_are_held_up_by_what_compilation_makes_up() -> None:
    """128,256 rows of 4,096 elements, and two outputs of 2,048 tokens: the engine printed 1.01 GiB."""
    found = activation_bytes(
        model(LLAMA_8B), batch(max_num_batched_tokens=2048, max_num_seqs=128), rules(LLAMA_8B)
    )

    assert found == (128256 + 2 * 2048) * 4096 * 2


def test_fp8_makes_up_a_third_output() -> None:
    """Llama-3.1-70B in FP8 at 8,192 tokens: the engine printed 2.27 GiB."""
    name = "nvidia--Llama-3.1-70B-Instruct-FP8"
    knobs = batch(max_num_batched_tokens=8192, max_num_seqs=256, fp8_weights=True)

    found = activation_bytes(model(name), knobs, rules(name))

    assert found == 128256 * 8192 * 2 + 8192 * 8192 * (2 + 2 + 1)


def test_a_layer_of_experts_holds_six_tensors_beside_the_workspaces() -> None:
    """Mixtral-8x7B at 8,192 tokens: 16,384 routed rows of 14,336 and 28,672; the engine printed 1.78 GiB."""
    name = "mistralai--Mixtral-8x7B-v0.1"
    knobs = batch(max_num_batched_tokens=8192, max_num_seqs=256)

    found = activation_bytes(model(name), knobs, rules(name))

    assert found == 16384 * 3 * 14336 * 2 + 6 * 8192 * 4096 * 2 + 92 * MIB


def test_a_gate_keeps_the_whole_input_projection() -> None:
    """Nemotron-3-Nano at 8,192 tokens: Mamba's 10,304 rows and 4,096 outputs live beside the experts that follow.

    Routed rows of 2,688 twice, seven tensors for the shared experts' sake; the engine printed 1.09 GiB.
    """
    name = "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    knobs = batch(max_num_batched_tokens=8192, max_num_seqs=256)

    found = activation_bytes(model(name), knobs, rules(name))

    assert found == 8192 * 2 * (6 * 2 * 2688 + 10304 + 4096 + 7 * 2688) + 92 * MIB


def test_eager_models_with_a_state_hold_five_tensors() -> None:
    """Qwen3.5-27B at 8,192 tokens: three times 17,408 and five times 5,120; the engine printed 1.22 GiB."""
    name = "Qwen--Qwen3.5-27B"
    knobs = batch(max_num_batched_tokens=8192, max_num_seqs=256, enforce_eager=True)

    found = forward_bytes(model(name), knobs, rules(name))

    assert found == 8192 * (3 * 17408 + 5 * 5120) * 2 + 32 * MIB


def test_fp8_writes_one_byte_of_product() -> None:
    plain, fp8 = (
        forward_bytes(model(LLAMA_8B), batch(fp8_weights=each), rules(LLAMA_8B)) for each in (False, True)
    )

    assert plain - fp8 == 16384 * 14336


def test_experts_keep_two_workspaces() -> None:
    """16,384 tokens x 8 experts x 2,048 elements of two bytes, twice: the hidden size is the larger side."""
    assert expert_workspace_bytes(model(QWEN3_30B), batch()) == GIB


def test_ranks_do_not_shrink_workspaces_that_the_hidden_size_rules() -> None:
    """Seen: 3.21 GiB of activation at TP 1 and at TP 2."""
    one, two = (expert_workspace_bytes(model(QWEN3_30B), batch(tensor_parallel_size=each)) for each in (1, 2))

    assert one == two


def test_whole_experts_take_whole_workspaces() -> None:
    mixtral = model("mistralai--Mixtral-8x7B-v0.1")

    cut, whole = (
        expert_workspace_bytes(mixtral, batch(tensor_parallel_size=2, expert_parallel=each))
        for each in (False, True)
    )

    assert whole == 2 * cut


@pytest.mark.parametrize(("capability", "kept"), [("9.0", False), ("10.0", False), ("8.0", True)])
def test_mxfp4_experts_have_workspaces_where_marlin_runs_them(capability: str, *, kept: bool) -> None:
    knobs = batch(expert_format="MXFP4", device=device_shape(capability, 80 * GIB))

    assert (expert_workspace_bytes(model(GPT_OSS), knobs) > 0) is kept


def test_a_latent_context_is_rehearsed() -> None:
    """65,536 rows x 16 heads x (128 + 128) x 2 B."""
    assert latent_rehearsal_bytes(model(DEEPSEEK_LITE), batch()) == 512 * MIB


def test_a_short_context_is_rehearsed_shorter() -> None:
    """8 x 1,024 rows; 16 sequences need no more."""
    found = latent_rehearsal_bytes(model(DEEPSEEK_LITE), batch(max_model_len=1024, max_num_seqs=16))

    assert found == 64 * MIB


def test_no_latent_is_rehearsed_without_one() -> None:
    assert latent_rehearsal_bytes(model(LLAMA_8B), batch()) == 0


@pytest.mark.parametrize(
    ("version", "bytes_a_logit"),
    [((0, 33, 0), 10), (V0_26, 2), (V0_19, 14), (V0_12, 38)],
    ids=["V2 rehearsed", "V2", "V1", "V1 that sorts"],
)
def test_bytes_of_a_logit(version: tuple[int, int, int], bytes_a_logit: int) -> None:
    assert logits_bytes(model(LLAMA_8B), batch(), rules(LLAMA_8B, version)) == 1024 * 128256 * bytes_a_logit


def test_a_row_of_thresholds_for_each_multiprocessor() -> None:
    assert threshold_buffer_bytes(model(QWEN3_30B), batch(), rules(QWEN3_30B)) == 132 * 151936 * 4


def test_no_more_requests_are_sampled_than_there_are_tokens() -> None:
    many, few = (
        logits_bytes(model(QWEN3_30B), batch(max_num_seqs=each, max_num_batched_tokens=512), rules(QWEN3_30B))
        for each in (1024, 512)
    )

    assert many == few


def test_penalty_counts_of_v2() -> None:
    """1,024 x 151,936 counts of 4 bytes and bits: 612 MiB."""
    found = sampler_state_bytes(model("Qwen--Qwen3-8B"), batch(), rules("Qwen--Qwen3-8B"))

    assert round(found / MIB) == 612


def test_penalty_counts_are_charged_from_0_28_on() -> None:
    found = [
        activation_bytes(model(LLAMA_8B), batch(), rules(LLAMA_8B, version))
        for version in ((0, 27, 0), (0, 28, 0))
    ]

    assert found[1] - found[0] == sampler_state_bytes(model(LLAMA_8B), batch(), rules(LLAMA_8B))


def test_an_encoders_dummy_images_stay() -> None:
    """16,384 tokens, each of 4 patches of 16 x 16 x 3 x 2 values and 2,048 x 4 outputs, in two bytes."""
    vision = model("Qwen--Qwen3-VL-30B-A3B-Instruct")
    knobs = batch(multimodal=True, max_num_batched_tokens=16384)

    found = encoder_kept_bytes(vision, knobs, memory_rules(V0_26, vision))

    assert found == 16384 * (4 * 1536 + 4 * 2048) * 2


def test_no_encoder_runs_for_text_alone() -> None:
    vision = model("Qwen--Qwen3-VL-30B-A3B-Instruct")

    assert encoder_kept_bytes(vision, batch(multimodal=False), memory_rules(V0_26, vision)) == 0


@pytest.mark.parametrize(
    ("seqs", "tokens", "counts"),
    [(1024, 16384, (51, 51)), (256, 8192, (51, 35)), (128, 2048, (35, 19))],
)
def test_graphs_that_are_captured(seqs: int, tokens: int, counts: tuple[int, int]) -> None:
    assert capture_counts(batch(max_num_seqs=seqs, max_num_batched_tokens=tokens)) == counts


def test_nothing_is_captured_in_eager_mode() -> None:
    eager = batch(enforce_eager=True)
    held = rules(LLAMA_8B)

    assert (
        capture_counts(eager),
        graph_bytes(model(LLAMA_8B), eager, held),
        graph_estimate_bytes(model(LLAMA_8B), eager, held),
    ) == ((0, 0), 0, 0)


def test_splits_of_the_largest_full_graph() -> None:
    """32 splits x 512 rows x 32 heads x 128 x 4 B."""
    assert split_bytes(model(LLAMA_8B), batch()) == 256 * MIB


def test_v2_charges_what_its_graphs_take() -> None:
    held = rules(LLAMA_8B, (0, 33, 0))

    assert graph_estimate_bytes(model(LLAMA_8B), batch(), held) == graph_bytes(model(LLAMA_8B), batch(), held)


@pytest.mark.parametrize(("capability", "gib"), [("9.0", 2.08), ("8.0", 0.14)])
def test_an_all_reduce_is_fused_on_hopper(capability: str, gib: float) -> None:
    knobs = batch(tensor_parallel_size=2, device=device_shape(capability, 80 * GIB))

    assert non_torch_bytes(knobs, rules(LLAMA_8B, V0_19)) / GIB == pytest.approx(gib, abs=0.001)


NAMES = st.sampled_from(generating_models())
KNOBS = st.builds(
    batch,
    max_num_seqs=st.sampled_from((1, 16, 64, 256, 1024)),
    max_num_batched_tokens=st.sampled_from((1024, 2048, 8192, 16384)),
    tensor_parallel_size=st.sampled_from((1, 2, 4, 8)),
    enforce_eager=st.booleans(),
    fp8_weights=st.booleans(),
)
VERSIONS = st.sampled_from(
    ((0, 8, 0), (0, 12, 0), (0, 19, 0), (0, 22, 0), (0, 26, 0), (0, 28, 0), (0, 33, 0))
)


@given(name=NAMES, knobs=KNOBS, version=VERSIONS)
@examples(max_examples=60, deadline=None)
def test_more_tokens_and_sequences_never_take_less(
    name: str, knobs: Batch, version: tuple[int, int, int]
) -> None:
    held = rules(name, version)
    more = batch(
        max_num_seqs=knobs.max_num_seqs * 2,
        max_num_batched_tokens=knobs.max_num_batched_tokens * 2,
        tensor_parallel_size=knobs.tensor_parallel_size,
        enforce_eager=knobs.enforce_eager,
        fp8_weights=knobs.fp8_weights,
    )

    assert activation_bytes(model(name), knobs, held) <= activation_bytes(model(name), more, held)


@given(name=NAMES, knobs=KNOBS, version=VERSIONS)
@examples(max_examples=60, deadline=None)
def test_more_ranks_never_take_more_of_one(name: str, knobs: Batch, version: tuple[int, int, int]) -> None:
    """V2 gathers the logits among ranks, which one rank needs not: tokens rule here, not sequences."""
    held = rules(name, version)
    ranks = knobs.tensor_parallel_size * 2
    found = [
        forward_bytes(
            model(name),
            batch(max_num_batched_tokens=knobs.max_num_batched_tokens, tensor_parallel_size=each),
            held,
        )
        for each in (knobs.tensor_parallel_size, ranks)
    ]

    assert found[1] <= found[0]


@given(name=NAMES, knobs=KNOBS, version=VERSIONS, utilization=st.floats(0.1, 0.99))
@examples(max_examples=60, deadline=None)
def test_the_terms_add_up(name: str, knobs: Batch, version: tuple[int, int, int], utilization: float) -> None:
    found = account(
        total_bytes=80 * GIB,
        utilization=utilization,
        weights_bytes=10 * GIB,
        model=model(name),
        batch=knobs,
        rules=rules(name, version),
    )
    terms = (
        found.weights,
        found.activation,
        found.non_torch,
        found.graphs_charged,
        found.extras,
        found.margin,
    )

    assert min(terms) >= 0
    assert found.requested - sum(terms) == found.available
