"""Counts of a step's work, from shapes."""

import pytest

from llmservice_operator.perfmodel.work import AttentionWork
from unit.perfmodel.speed_samples import work


def attention(window: int = 0) -> AttentionWork:
    return AttentionWork(
        layers=1, window=window, prefill_flops_per_pair=1.0, decode_flops_per_pair=1.0, bytes_per_token=1.0
    )


def test_a_dense_models_products_are_its_layers_without_embeddings() -> None:
    """Llama-3.1-8B: 32 x (2 x 4096^2 + 2 x 1024 x 4096 + 3 x 14336 x 4096) elements."""
    found = work().dense

    assert found.wide_elements == 32 * (2 * 4096**2 + 2 * 1024 * 4096 + 3 * 14_336 * 4096)


def test_the_head_is_counted_once_where_it_is_tied_to_the_embedding() -> None:
    """Qwen3-0.6B: 151,936 x 1,024 in 2 B."""
    assert work("Qwen--Qwen3-0.6B").head.bytes_read == 151_936 * 1024 * 2


def test_eight_bit_weights_are_multiplied_at_their_own_rate() -> None:
    found = work("Qwen--Qwen3-32B-FP8").dense

    assert found.narrow_elements > 100 * found.wide_elements


def test_four_bit_experts_are_widened_first() -> None:
    found = work("openai--gpt-oss-20b").experts

    assert (found.narrow_elements, found.bytes_read < 0.6 * found.wide_elements) == (0.0, True)


@pytest.mark.parametrize(("tokens", "share"), [(1, 8 / 128), (16, 1 - (1 - 8 / 128) ** 16), (2048, 1.0)])
def test_a_batch_reaches_the_expected_share_of_experts(tokens: int, share: float) -> None:
    assert work("Qwen--Qwen3-30B-A3B").expected_experts(tokens) == pytest.approx(share)


def test_a_causal_chunk_sees_what_is_before_it() -> None:
    """Three tokens after ten: 11 + 12 + 13."""
    assert attention().visible_pairs(3, 10) == 36


@pytest.mark.parametrize(
    ("tokens", "cached", "pairs"), [(3, 10, 12), (6, 0, 1 + 2 + 3 + 4 + 4 + 4), (4, 2, 3 + 4 + 4 + 4)]
)
def test_a_window_bounds_what_a_chunk_sees(tokens: int, cached: int, pairs: int) -> None:
    assert attention(window=4).visible_pairs(tokens, cached) == pairs


def test_windows_and_full_layers_are_apart() -> None:
    """gpt-oss-20b: every other of 24 layers sees 128 tokens."""
    assert [(each.layers, each.window) for each in work("openai--gpt-oss-20b").attention] == [
        (12, 128),
        (12, 0),
    ]


def test_a_latent_is_read_once_for_all_heads_and_on_every_rank() -> None:
    """DeepSeek-V2-Lite: (512 + 64) x 2 B a token and layer."""
    found = work("deepseek-ai--DeepSeek-V2-Lite", tensor_parallel_size=4).attention

    assert [each.bytes_per_token for each in found] == [1152]


def test_linear_attention_reads_its_states_whatever_the_context() -> None:
    model = work("Qwen--Qwen3.5-27B")

    assert (model.attention[0].layers, model.state_bytes > 100e6) == (16, True)


def test_each_block_sums_over_ranks_once_and_the_embedding_too() -> None:
    """32 layers of attention and feed-forward."""
    assert work(tensor_parallel_size=2).all_reduces == 65


def test_one_rank_sums_nothing() -> None:
    assert work().all_reduces == 0


def test_shares_of_ranks_add_up() -> None:
    assert 2 * work(tensor_parallel_size=2).dense.bytes_read == pytest.approx(work().dense.bytes_read)
