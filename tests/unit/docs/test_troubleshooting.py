"""The page on troubleshooting has an entry for each reason of a condition, and for nothing else."""

import re

import pytest

from docs.pages import ROOT, Heading, read_page
from llmservice_operator.api.conditions import ConditionType, Reason

PAGE = read_page(ROOT / "operator" / "docs" / "troubleshooting.md")
ENTRIES = [heading for heading in PAGE.headings if heading.level == 3]


def test_every_reason_has_an_entry() -> None:
    missing = {reason.value for reason in Reason} - {entry.text for entry in ENTRIES}

    assert missing == set()


def test_every_entry_is_of_a_reason() -> None:
    left_over = {entry.text for entry in ENTRIES} - {reason.value for reason in Reason}

    assert left_over == set()


def test_no_reason_is_told_twice() -> None:
    assert len(ENTRIES) == len({entry.text for entry in ENTRIES})


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.text)
def test_an_entry_says_what_it_means_where_to_look_and_what_to_do(entry: Heading) -> None:
    told = re.findall(r"^- (\w+): \S", PAGE.section(entry), re.MULTILINE)

    assert told == ["Means", "Look", "Do"]


def test_every_type_of_condition_is_in_the_table() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE.text, re.MULTILINE)

    assert told == [each.value for each in ConditionType]
