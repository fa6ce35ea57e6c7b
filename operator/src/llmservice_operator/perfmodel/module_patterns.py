"""Which modules a checkpoint's ignore list names: plain names, wildcards and `re:` patterns.

Lists are other people's text. Python's own `re` can need years for a pattern of ten characters on a module's name,
and whoever matches it here waits for it; the engine that pydantic brings needs time proportional to the name only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

LARGEST_PATTERNS_CHARACTERS = 256 << 10
"""Of all patterns of a list together; lists with a thousand wildcards have a fifth of it."""
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
_WILDCARD = re.compile(r"(\*|\?|\[!?[^\]]+\])")


class PatternError(ValueError):
    """A list that cannot be matched. The text says why, and what would do."""


def bare_name(module: str) -> str:
    """A checkpoint's module name without the wrapper's prefixes."""
    for prefix in _PREFIXES:
        if module.startswith(prefix):
            return module[len(prefix) :]
    return module


class ModulePatterns:
    """An ignore list, made ready once. Raises PatternError."""

    def __init__(self, entries: Sequence[str]) -> None:
        names, patterns = set(), []
        for entry in entries:
            bare = bare_name(entry)
            if entry.startswith("re:"):
                patterns.append(entry[3:])
            elif "*" in bare:
                patterns.append(rf"^model\.{_wild(bare)}(?:\..*)?$")
            else:
                names.add(bare)
        self._names = frozenset(names)
        self._patterns = _ready(tuple(dict.fromkeys(patterns)))

    def matches(self, module: str) -> bool:
        """Whether the list names this module, one above it, or consecutive parts of its name."""
        parts = module.split(".")
        spans = (
            ".".join(parts[first:last])
            for first in range(len(parts))
            for last in range(first + 1, len(parts) + 1)
        )
        return any(span in self._names for span in spans) or any(
            pattern.isinstance_python(f"model.{module}") for pattern in self._patterns
        )


def _wild(name: str) -> str:
    """The pattern of a wildcard as the shell has it."""
    return "".join(
        {"*": ".*", "?": "."}.get(part)
        or (part.replace("[!", "[^") if _WILDCARD.fullmatch(part) else re.escape(part))
        for part in _WILDCARD.split(name)
    )


def _ready(patterns: Sequence[str]) -> tuple[SchemaValidator, ...]:
    """All of them as one; one by one where they do not go together (two groups of one name)."""
    size = sum(map(len, patterns))
    if size > LARGEST_PATTERNS_CHARACTERS:
        raise PatternError(
            f"{len(patterns):,} patterns of {size:,} characters; at most {LARGEST_PATTERNS_CHARACTERS:,} "
            "characters are matched: write plain names, or fewer patterns"
        )
    if not patterns:
        return ()
    from pydantic_core import SchemaError  # noqa: PLC0415 - most lists have plain names only, and it takes 50 ms

    try:
        return (_validator("|".join(f"(?:{each})" for each in patterns)),)
    except SchemaError:
        return tuple(_alone(each) for each in patterns)


def _alone(pattern: str) -> SchemaValidator:
    from pydantic_core import SchemaError  # noqa: PLC0415

    try:
        return _validator(pattern)
    except SchemaError as error:
        raise PatternError(
            f"the pattern {pattern[:80]!r}, which is wrong, too large, or has look-around or back-references; "
            "put a config.json with a simpler one in a ConfigMap and name it in spec.model.configMap"
        ) from error


def _validator(pattern: str) -> SchemaValidator:
    from pydantic_core import SchemaValidator, core_schema  # noqa: PLC0415

    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
