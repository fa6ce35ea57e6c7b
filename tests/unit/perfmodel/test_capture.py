"""Sizes that vLLM 0.26.0 printed as captured: 1, 2, 4, 8, 16, ... 248, 256, 272, ... 512."""

import pytest

from llmservice_operator.perfmodel.capture import Capture, capture_sizes


def capture(max_num_seqs: int = 256, **changes: object) -> Capture:
    knobs = {"max_num_batched_tokens": 8192, "compute_capability": "9.0", "enforce_eager": False}
    return capture_sizes(max_num_seqs=max_num_seqs, **{**knobs, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "size"), [(1, 1), (3, 4), (5, 8), (9, 16), (242, 248), (249, 256), (257, 272), (512, 512)]
)
def test_a_batch_is_padded_to_the_next_size(tokens: int, size: int) -> None:
    assert capture().padded(tokens) == size


def test_a_batch_above_the_largest_size_is_not_padded() -> None:
    assert capture().padded(513) == 513


def test_few_sequences_capture_twice_their_number() -> None:
    assert capture(max_num_seqs=64).largest_tokens == 128


def test_the_number_of_sequences_is_a_size_of_its_own() -> None:
    assert capture(max_num_seqs=100).padded(99) == 100


def test_eager_execution_captures_nothing() -> None:
    assert not capture(enforce_eager=True).holds(1)


def test_the_newest_data_center_cards_capture_more() -> None:
    assert capture(max_num_seqs=1024, compute_capability="10.0").largest_tokens == 1024


def test_native_mxfp4_captures_more_whatever_the_number_of_sequences() -> None:
    """gpt-oss-20b with 256 sequences on an H200: 22 ms for 1,024 tokens, 60 ms for 2,048."""
    assert capture(native_mxfp4=True).largest_tokens == 1024
