"""The bad objects as data: each file in bad/ is one object, with what must be said about it in its first lines.

# server: words that the API server's refusal must hold (one line each, all of them must be there)
# offline: words that the check without an API server must hold
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "bad"


@dataclass(frozen=True, kw_only=True)
class BadObject:
    """One file: what is in it, and what must be said about it."""

    path: Path
    manifest: dict[str, Any]
    server: tuple[str, ...]
    offline: tuple[str, ...]


def read_bad_objects() -> dict[str, BadObject]:
    """Every file of bad/, by its name without the suffix."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _read(path: Path) -> BadObject:
    text = path.read_text(encoding="utf-8")
    return BadObject(
        path=path,
        manifest=yaml.safe_load(text),
        server=_words(text, "server"),
        offline=_words(text, "offline"),
    )


def _words(text: str, about: str) -> tuple[str, ...]:
    head = f"# {about}: "
    return tuple(line.removeprefix(head) for line in text.splitlines() if line.startswith(head))
