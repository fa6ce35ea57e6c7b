"""The API server reads durations as the operator does: the same table is tested against both."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.api.kubectl import Kubectl

pytestmark = pytest.mark.light

TABLE_PATH = Path(__file__).parents[2] / "unit" / "api" / "durations.yaml"
TABLE: list[dict[str, Any]] = yaml.safe_load(TABLE_PATH.read_text(encoding="utf-8"))

WORDS = {"form": "write whole numbers with a unit", "bounds": "must be from 5s to 1h"}


@pytest.fixture(scope="session")
def answers(kubectl: Kubectl, crd: None) -> dict[int, str]:
    """What the API server says of each row of the table, by its number; empty: accepted. One call for all."""
    del crd  # only that it is there
    items = [
        {
            "apiVersion": "llmservice.dev/v1alpha1",
            "kind": "LLMService",
            "metadata": {"name": f"row-{number}", "namespace": "default"},
            "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B"}, "drain": {"timeout": row["text"]}},
        }
        for number, row in enumerate(TABLE)
    ]
    lists = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    result = kubectl("apply", "--dry-run=server", "-f", "-", stdin=lists)
    said = dict.fromkeys(range(len(TABLE)), "")
    for line in result.stderr.splitlines():
        for number in said:
            if f'"row-{number}"' in line:
                said[number] = line
    return said


@pytest.mark.parametrize("number", range(len(TABLE)), ids=lambda number: repr(TABLE[number]["text"]))
def test_the_api_server_reads_it_as_the_operator_does(number: int, answers: dict[int, str]) -> None:
    expected = TABLE[number]["server"]

    assert WORDS.get(expected, "") in answers[number]
    assert (answers[number] == "") == (expected == "ok")
