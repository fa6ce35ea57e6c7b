"""Secrets kept out of everything that the supervisor itself says. The engine's own log passes unchanged."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

MASK = "***"
_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|credential)s?$", re.IGNORECASE)
_MIN_SECRET_LENGTH = 6  # a shorter value would blank ordinary words


def secret_values(command: Sequence[str], environment: Mapping[str, str]) -> frozenset[str]:
    """Values of flags and variables whose name says that they are secret (`--api-key`, `HF_TOKEN` …)."""
    values = {value for name, value in environment.items() if _SECRET_NAME.search(name)}
    for index, word in enumerate(command):
        name, equals, value = word.partition("=")
        if not name.startswith("--") or not _SECRET_NAME.search(name):
            continue
        if equals:
            values.add(value)
            continue
        for follower in command[index + 1 :]:  # --api-key takes several values
            if follower.startswith("-"):
                break
            values.add(follower)
    return frozenset(value for value in values if len(value) >= _MIN_SECRET_LENGTH)


def redact(text: str, secrets: frozenset[str]) -> str:
    """`text` with every secret replaced by `***`, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
