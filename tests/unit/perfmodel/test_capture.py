"""Sizes that vLLM 0.26.0 printed as captured: 1, 2, 4, 8, 16, ... 248, 256, 272, ... 512."""

import pytest

from llmservice_operator.perfmodel.capture import Capture, capture_rule, captured_sizes
from llmservice_operator.perfmodel.quantization import UNQUANTIZED, read_quantization

MXFP4 = read_quantization({"quantization_config": {"quant_method": "mxfp4"}})


def capture(max_num_seqs: int = 256) -> Capture:
    rule = capture_rule(UNQUANTIZED, engine_version=(0, 26, 0), compute_capability="9.0")
    largest = rule.largest_tokens(max_num_seqs=max_num_seqs, max_num_batched_tokens=8192)
    return Capture(largest_tokens=largest, max_num_seqs=max_num_seqs)


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


def test_where_nothing_is_captured_no_batch_is_held() -> None:
    assert not Capture(largest_tokens=0, max_num_seqs=256).holds(1)


@pytest.mark.parametrize(("version", "largest"), [((0, 26, 0), 512), ((0, 33, 0), 1024)])
def test_the_newest_data_center_cards_capture_more_from_0_33_on(
    version: tuple[int, int, int], largest: int
) -> None:
    rule = capture_rule(UNQUANTIZED, engine_version=version, compute_capability="10.0")

    assert rule.largest_tokens(max_num_seqs=1024, max_num_batched_tokens=8192) == largest


def test_native_mxfp4_captures_more_whatever_the_number_of_sequences() -> None:
    """gpt-oss-20b with 256 sequences on an H200: 22 ms for 1,024 tokens, 60 ms for 2,048."""
    rule = capture_rule(MXFP4, engine_version=(0, 26, 0), compute_capability="9.0")

    assert rule.largest_tokens(max_num_seqs=256, max_num_batched_tokens=2048) == 1024


@pytest.mark.parametrize(("largest", "count"), [(128, 19), (256, 35), (512, 51), (1024, 83)])
def test_so_many_sizes_are_captured(largest: int, count: int) -> None:
    """The counts that vLLM shows while it captures."""
    assert len(captured_sizes(largest, max_num_seqs=largest)) == count
