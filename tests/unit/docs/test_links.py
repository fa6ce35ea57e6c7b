"""Links of the documentation: files and headings are there, addresses are well formed."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import ROOT, Page, anchor_of, read_page, read_pages

PAGES = read_pages()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_every_link_leads_somewhere(page: Page) -> None:
    broken = [
        f"line {line}: {target} ({problem})"
        for line, target in page.links
        if (problem := problem_of(target, page)) is not None
    ]

    assert broken == []


def problem_of(target: str, page: Page) -> str | None:
    """What is wrong with a link, or None."""
    if "://" in target:
        return problem_of_address(target)
    name, _, anchor = target.partition("#")
    path = (page.path.parent / unquote(name)).resolve() if name else page.path
    if not path.exists():
        return "no such file"
    if not path.is_relative_to(ROOT):
        return "outside of the repository"
    if anchor and anchor not in anchors(path):
        return "no such heading"
    return None


def anchors(path: Path) -> set[str]:
    return {heading.anchor for heading in read_page(path).headings}


def problem_of_address(target: str) -> str | None:
    """An address is not fetched: a test that needs the network tells nothing of this project."""
    parts = urlsplit(target)
    if parts.scheme != "https":
        return "not https"
    if "." not in (parts.hostname or ""):
        return "no host"
    return None


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("The catalogue", "the-catalogue"),
        ("Ask before you buy: the plan, offline", "ask-before-you-buy-the-plan-offline"),
        ("`decide(inputs, state, now)`", "decideinputs-state-now"),
        ("What `kubectl get` says — and why", "what-kubectl-get-says--and-why"),
    ],
)
def test_a_heading_has_the_anchor_that_github_gives_it(heading: str, anchor: str) -> None:
    assert anchor_of(heading) == anchor


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    folder = ROOT / "operator" / "docs"
    index = read_page(folder / "README.md")
    named = {
        (folder / target.partition("#")[0]).resolve() for _, target in index.links if "://" not in target
    }

    missing = [
        path.name for path in sorted(folder.glob("*.md")) if path.resolve() not in named | {index.path}
    ]

    assert missing == []
