"""`kubectl explain` is the manual, and the pages in the docs are what it says."""

import pytest

from integration.api import explain
from integration.api.kubectl import Kubectl

pytestmark = pytest.mark.light


@pytest.fixture(scope="session")
def made(kubectl: Kubectl, crd: None) -> dict[str, str]:
    """The pages as this API server's schema makes them."""
    del crd  # only that it is there
    return explain.pages(kubectl)


@pytest.mark.parametrize("name", ["explain.txt", "explain-scalingpolicy.txt", "manual.txt"])
def test_the_page_in_the_docs_is_what_kubectl_explains(name: str, made: dict[str, str]) -> None:
    assert (explain.FOLDER / name).read_text(encoding="utf-8") == made[name]


def test_a_field_is_explained_with_its_unit_and_an_example(made: dict[str, str]) -> None:
    page = " ".join(made["manual.txt"].split())

    assert "Tokens that one request may hold. Example: {min: 8192, max: 32768}." in page
