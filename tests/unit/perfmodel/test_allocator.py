"""What PyTorch gives for a tensor, worked out by hand from its allocator's rules."""

import pytest

from llmservice_operator.perfmodel.allocator import MIB, given_bytes

BEFORE, AFTER = (0, 19, 0), (0, 26, 0)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (1, 512),
        (513, 1024),
        (9 * MIB + 1, 9 * MIB + 512),  # cut out of a segment of 20 MiB
        (64 * MIB, 64 * MIB),
        (int(129.5 * MIB), 130 * MIB),  # half a MiB of its segment isn't cut off
        (259 * MIB, 260 * MIB),
        (int(24.5 * MIB), int(24.5 * MIB)),  # one and a half are
    ],
)
def test_a_tensor_takes_what_is_left_of_its_segment(asked: int, given: int) -> None:
    assert given_bytes(asked, engine_version=BEFORE) == given


def test_from_0_22_on_nothing_is_cut_off_a_large_tensor() -> None:
    assert given_bytes(int(24.5 * MIB), engine_version=AFTER) == 26 * MIB


def test_a_7b_model_whose_matrices_are_no_whole_segments() -> None:
    """Qwen2-7B: 28 layers of 31.5 MiB (qkv), 259 (gate and up) and 129.5 (down): 2 MiB more a layer."""
    layer = [int(31.5 * MIB), int(24.5 * MIB), 259 * MIB, int(129.5 * MIB)]

    more = sum(given_bytes(each, engine_version=BEFORE) for each in layer) - sum(layer)

    assert more == 2 * MIB
