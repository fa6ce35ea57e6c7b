"""Each bad object is refused by the API server, with the field, the value, the limit and the mend in its words."""

import pytest

from integration.api.bad_objects import BadObject, read_bad_objects

pytestmark = pytest.mark.light

BAD = read_bad_objects()


@pytest.mark.parametrize("name", BAD)
def test_the_api_server_refuses_it_in_these_words(name: str, refusals: dict[str, str]) -> None:
    bad: BadObject = BAD[name]

    assert name in refusals, "it was accepted"
    assert bad.server, "the file does not say which words"
    for words in bad.server:
        assert words in refusals[name]
