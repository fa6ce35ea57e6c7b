"""Kubernetes quantities: `500m`, `16Gi`, `1.5T`, `1e9`."""

import re
from decimal import Decimal

from llmservice_operator.errors import InvalidInputError

QUANTITY_MAX_LENGTH = 32
QUANTITY_MEND = "write a quantity such as 500m, 4 or 16Gi"

_WHOLE = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?"
)
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse_quantity(text: str | int, *, field: str = "quantity") -> Decimal:
    """The number that a quantity stands for. Raises InvalidInputError, with `field` named, for what is none."""
    match = _WHOLE.fullmatch(str(text))
    if match is None:
        raise InvalidInputError(f"{field} is {str(text)[:64]!r}: {QUANTITY_MEND}")
    sign, number, suffix = match.groups()
    value = Decimal(number) * (_factor(suffix) if suffix else 1)
    return -value if sign == "-" else value


def _factor(suffix: str) -> Decimal:
    return _SUFFIXES[suffix] if suffix in _SUFFIXES else Decimal(10) ** int(suffix[1:])
