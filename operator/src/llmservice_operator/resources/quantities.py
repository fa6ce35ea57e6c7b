"""Kubernetes quantities: `2`, `500m`, `16Gi`, `1e3`."""

import re
from decimal import Decimal

from llmservice_operator.errors import InvalidInputError

MEBIBYTE = 1024**2

_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)


def parse_quantity(text: str | float, *, field: str = "quantity") -> Decimal:
    """The value of a quantity in its base unit (cores, bytes, pieces). Raises InvalidInputError."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise InvalidInputError(f"{field} is {str(text)[:64]!r}: write a quantity such as 2, 500m or 16Gi")
    number, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(number).scaleb(int(exponent))
    return Decimal(number) * _SUFFIX[suffix or ""]


def format_memory(size_bytes: int) -> str:
    """The memory quantity for a number of bytes, rounded up to a whole MiB, in the API server's canonical
    form.
    """
    mebibytes = -(-size_bytes // MEBIBYTE)
    if mebibytes and mebibytes % 1024 == 0:
        return f"{mebibytes // 1024}Gi"
    return f"{mebibytes}Mi"
