"""Quantities, by the examples of the Kubernetes documentation of resource units."""

from decimal import Decimal

import pytest

from llmservice_operator.api.quantities import parse_quantity
from llmservice_operator.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("128974848", "128974848"),
        ("129e6", "129000000"),
        ("129M", "129000000"),
        ("128974848000m", "128974848"),
        ("123Mi", "128974848"),
        ("0.5", "0.5"),
        ("100m", "0.1"),
        ("-4Gi", "-4294967296"),
        (".5Gi", "536870912"),
        ("1Ti", "1099511627776"),
        (16, "16"),
    ],
)
def test_a_quantity_stands_for_its_number(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "50 GB", "1GB", "lots", "1.2.3", "1Gi\n", "0x10", "1ki", "1K"])
def test_what_is_no_quantity_is_refused_with_its_field_and_mend(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^spec\.size is .*write a quantity such as"):
        parse_quantity(text, field="spec.size")
