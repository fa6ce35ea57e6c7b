"""Durations: the parser reads the same table as the API server."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.api.durations import parse_duration_seconds
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
