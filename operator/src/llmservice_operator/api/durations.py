"""Durations as users write them: `90s`, `5m`, `1h30m`, `250ms`.

The API server's own `format: duration` takes `1 week` and `-5s`, so the schema uses this pattern instead. Its
bounds on digits and parts keep every accepted text below the 292 years at which a 64-bit count of nanoseconds
overflows, so that CEL's `duration()` never fails on it.
"""

import re

from llmservice_operator.errors import InvalidInputError

DURATION_PATTERN = "^([0-9]{1,5}(ms|s|m|h)){1,4}$"
"""In RE2, as the API server reads it. Python reads the same by `fullmatch`."""
DURATION_MAX_LENGTH = 28
DURATION_MEND = "write whole numbers with a unit of ms, s, m or h, such as 90s, 5m or 1h30m"

_WHOLE = re.compile(DURATION_PATTERN.strip("^$"))
_PART = re.compile("([0-9]+)(ms|s|m|h)")
_UNIT_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def parse_duration_seconds(text: str, *, field: str = "duration") -> float:
    """Seconds that the text stands for. `field` is named in the error.

    Raises InvalidInputError for what the API server would refuse too.
    """
    if _WHOLE.fullmatch(text) is None:
        raise InvalidInputError(f"{field} is {text[:64]!r}: {DURATION_MEND}")
    parts = _PART.findall(text)
    return sum(int(number) * _UNIT_MILLISECONDS[unit] for number, unit in parts) / 1_000
