"""Blocks of a terminal's chart."""

import math

from llmservice_operator.cli_chart import blocks


def test_the_largest_is_full_and_nothing_is_a_space() -> None:
    assert blocks([0.0, 4.0, 8.0]) == " ▄█"


def test_what_has_no_value_is_a_space() -> None:
    assert blocks([math.nan, 1.0]) == " █"


def test_a_little_is_seen() -> None:
    assert blocks([0.001], 1.0) == "▁"


def test_beyond_the_bound_is_full() -> None:
    assert blocks([3.0, math.inf], 2.0) == "██"
