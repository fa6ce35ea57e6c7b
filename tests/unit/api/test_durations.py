"""Durations: the parser reads the same table as the API server, and what it prints it reads again."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmservice_operator.api.durations import format_duration, parse_duration_seconds
from llmservice_operator.errors import InvalidInputError

TABLE: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "durations.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row["server"] != "form"], ids=lambda row: row["text"]
)
def test_a_duration_stands_for_its_seconds(row: dict[str, Any]) -> None:
    assert parse_duration_seconds(row["text"]) == row["seconds"]


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row["server"] == "form"], ids=lambda row: repr(row["text"])
)
def test_what_is_no_duration_is_refused_with_its_field_and_mend(row: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^spec\.drain\.timeout is .*write whole numbers with a unit"
    ):
        parse_duration_seconds(row["text"], field="spec.drain.timeout")


@given(st.integers(min_value=0, max_value=99_999 * 3_600_000))
def test_what_is_printed_is_read_again(milliseconds: int) -> None:
    assert parse_duration_seconds(format_duration(milliseconds / 1_000)) == milliseconds / 1_000


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (90, "1m30s"), (0.25, "250ms"), (3600, "1h")])
def test_the_shortest_text_is_printed(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_negative_number_of_seconds_is_no_duration() -> None:
    with pytest.raises(InvalidInputError, match="never negative"):
        format_duration(-1)
