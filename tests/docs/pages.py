"""The documentation as data: its headings, links and fenced blocks, with the page and line of each.

A comment just before a block says what is done with it in tests; a reader doesn't see it:

<!-- not run: WHY -->        a shell block that needs what no test has; its syntax is still checked
<!-- fails: WORDS -->        a shell block that must fail, saying these words
<!-- values -->              YAML that is values of the chart
<!-- another's: WHAT -->     YAML of a system that isn't here, so only read
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = frozenset({"sh", "bash", "console"})
LANGUAGES = SHELLS | {"", "yaml", "json", "python", "promql", "text"}
"""What a fence may name: another name would be a block that nobody looks at."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)")
_MARK = re.compile(r"^\s*<!-- (?P<kind>not run|fails|values|another's)(?:: (?P<words>.+?))? -->\s*$")
_HEADING = re.compile(r"^(?P<level>#{1,6}) (?P<text>.+?)\s*$")
_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]*(?:\([^()]*\)[^()\s]*)*)(?: \"[^\"]*\")?\)"
)
_HTML_LINK = re.compile(r"<(?:img|a)\b[^>]*?(?:src|href)=\"(?P<target>[^\"]+)\"")
_CODE = re.compile(r"`[^`]*`")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    """not run, fails, values or another's; empty: what its language asks for."""
    words: str = ""
    """What the mark says."""

    @property
    def place(self) -> str:
        """Page and line, for messages and names of tests."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading, with the anchor that a link may name."""

    level: int
    text: str
    anchor: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The fenced blocks, in order."""
        return tuple(self._blocks())

    @cached_property
    def headings(self) -> tuple[Heading, ...]:
        """The headings, in order; a repeated one has an anchor with a number, as on GitHub."""
        seen: Counter[str] = Counter()
        found = []
        for line, text in self._prose():
            if (match := _HEADING.match(text)) is not None:
                anchor = anchor_of(match["text"])
                number, seen[anchor] = seen[anchor], seen[anchor] + 1
                found.append(
                    Heading(
                        level=len(match["level"]),
                        text=match["text"],
                        anchor=f"{anchor}-{number}" if number else anchor,
                        line=line,
                    )
                )
        return tuple(found)

    @cached_property
    def links(self) -> tuple[tuple[int, str], ...]:
        """(line, target) of each link and picture."""
        return tuple(
            (line, match["target"])
            for line, text in self._prose()
            for pattern in (_LINK, _HTML_LINK)
            for match in pattern.finditer(_CODE.sub("`code`", text))
        )

    @cached_property
    def inline_code(self) -> tuple[str, ...]:
        """What stands between single backticks, outside of fences."""
        return tuple(code for _, text in self._prose() for code in re.findall(r"`([^`\n]+)`", text))

    def section(self, heading: Heading) -> str:
        """What stands under a heading, up to the next one of its level or above."""
        later = (each for each in self.headings if each.line > heading.line and each.level <= heading.level)
        end = next((each.line - 1 for each in later), None)
        return "\n".join(self.text.splitlines()[heading.line : end])

    def _prose(self) -> Iterator[tuple[int, str]]:
        """(line, text) outside of fences."""
        inside = False
        for line, text in enumerate(self.text.splitlines(), 1):
            if _FENCE.match(text):
                inside = not inside
            elif not inside:
                yield line, text

    def _blocks(self) -> Iterator[Block]:
        lines = self.text.splitlines()
        opened: tuple[int, re.Match[str]] | None = None
        for line, text in enumerate(lines, 1):
            fence = _FENCE.match(text)
            if fence is None:
                continue
            if opened is None:
                opened = line, fence
                continue
            start, opening = opened
            indent = len(opening["indent"])
            mark = _MARK.match(lines[start - 2]) if start > 1 else None
            yield Block(
                page=self.path,
                line=start,
                language=opening["language"],
                text="\n".join(each[indent:] for each in lines[start : line - 1]) + "\n",
                mark=mark["kind"] if mark else "",
                words=(mark["words"] or "") if mark else "",
            )
            opened = None


def anchor_of(text: str) -> str:
    """The anchor that GitHub gives a heading: its words in lower case, joined by hyphens, without punctuation."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def read_page(path: Path) -> Page:
    """The page of a file."""
    return Page(path=path, text=path.read_text())


def read_pages() -> dict[str, Page]:
    """Every page of the project by its path from the root; data of tests and hidden folders aside."""
    paths = (path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*.md")))
    kept = (path for path in paths if "data" not in path.relative_to(ROOT).parts)
    return {str(path.relative_to(ROOT)): read_page(path) for path in (*sorted(ROOT.glob("*.md")), *kept)}


_FOLDERS = ("operator", "charts", "crds", "policies", "runtime_image", "tests")
