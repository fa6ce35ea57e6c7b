"""A bar of memory: as wide as asked for, in proportion, and nothing lost."""

import pytest

from llmservice_operator.planning.bar import Segment, bar, legend

GIB = 1 << 30


def segment(letter: str, size_gib: float) -> Segment:
    return Segment(name=f"term {letter}", letter=letter, size_bytes=int(size_gib * GIB))


@pytest.mark.parametrize("width", [40, 41, 79, 100, 200])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (0.001, 139, 0.7), (5,), (1, 2, 3, 4, 5, 6, 7)])
def test_the_bar_is_as_wide_as_asked_for(width: int, sizes: tuple[float, ...]) -> None:
    assert len(bar([segment(chr(65 + i), size) for i, size in enumerate(sizes)], width=width)) == width


def test_lengths_are_in_proportion() -> None:
    drawn = bar([segment("A", 10), segment("B", 30)], width=42)

    assert drawn == "[" + "A" * 11 + "B" * 29 + "]"


def test_the_smallest_segment_is_seen() -> None:
    assert "A" in bar([segment("A", 0.0001), segment("B", 1000)], width=40)


def test_what_is_nothing_is_left_out() -> None:
    segments = [segment("A", 0), segment("B", 1)]

    assert "A" not in bar(segments, width=40)
    assert list(legend(segments)) == ["B term B      1.00 GiB 100.0%"]


def test_nothing_at_all_is_an_empty_bar() -> None:
    assert bar([], width=40) == "[" + " " * 38 + "]"
