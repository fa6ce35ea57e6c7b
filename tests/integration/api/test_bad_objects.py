"""Each bad object is refused by the API server, with the field, the value, the limit and the mend in its words."""

import os
import re

import pytest

from integration.api.bad_objects import BadObject, read_bad_objects

pytestmark = pytest.mark.light

BAD = read_bad_objects()
NOT_OF_OLDER = (
    (re.compile(r'(?<=: Invalid value: )(?:"(?:[^"\\]|\\.)*"|-?[\d.]+): '), ""),
    (re.compile(r"(?<=: Duplicate value: ).*"), ""),
    (re.compile(r"(?<=: Too long: ).*"), ""),
)
"""Older API servers show a value's type, or nothing, where newer ones show the value; and tell lengths otherwise."""


def words_of_server(words: str) -> str:
    """A pattern of the words, as the API server at hand says them."""
    if not os.environ.get("DEVCLUSTER_KUBERNETES"):
        return re.escape(words)
    for newer, older in NOT_OF_OLDER:
        words = newer.sub(older, words)
    field, invalid, mend = words.partition(": Invalid value: ")
    return re.escape(field) + invalid + (".*" if invalid else "") + re.escape(mend)


@pytest.mark.parametrize("name", BAD)
def test_the_api_server_refuses_it_in_these_words(name: str, refusals: dict[str, str]) -> None:
    bad: BadObject = BAD[name]

    assert name in refusals, "it was accepted"
    assert bad.server, "the file does not say which words"
    for words in bad.server:
        assert re.search(words_of_server(words), refusals[name])
