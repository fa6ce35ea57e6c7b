"""What the documentation names is there: fields, values of the chart, targets of make, files, conditions."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from docs.pages import ROOT, Page, read_pages
from llmservice_operator.api.conditions import ConditionType

PAGES = read_pages()
SCHEMAS = tuple(
    yaml.safe_load((ROOT / "crds" / name).read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("llmservices.yaml", "scalingpolicies.yaml")
)
TO_COME = re.compile(r"^## Reserved field names$.*?(?=^## )", re.MULTILINE | re.DOTALL)
"""A section that names fields because they are not there yet."""
_TOP_LEVEL = "operator|tests|charts|crds|policies|runtime_image|requirements"


def code_in(page: Page) -> tuple[str, ...]:
    """The inline code of a page, but of what is to come."""
    return Page(path=page.path, text=TO_COME.sub("", page.text)).inline_code


def has_field(schema: Mapping[str, Any], path: list[str]) -> bool:
    """Whether the schema has a field at this path; lists are walked into, maps take any key."""
    if not path:
        return True
    if "items" in schema:
        return has_field(schema["items"], path)
    if "additionalProperties" in schema:
        return has_field(schema["additionalProperties"], path[1:])
    if path[0] in schema.get("properties", {}):
        return has_field(schema["properties"][path[0]], path[1:])
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_fields_that_a_page_names_are_in_a_schema(page: Page) -> None:
    named = {
        match.group()
        for code in code_in(page)
        if (match := re.match(r"(?:spec|status)\.[A-Za-z][A-Za-z0-9.]*", code)) is not None
    }

    unknown = {name for name in named if not any(has_field(schema, name.split(".")) for schema in SCHEMAS)}

    assert unknown == set()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_files_that_a_page_names_are_there(page: Page) -> None:
    named = {code for code in code_in(page) if re.fullmatch(rf"(?:{_TOP_LEVEL})/[\w./-]+", code)}

    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_targets_of_make_that_a_page_names_are_there(page: Page) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {match for code in code_in(page) for match in re.findall(r"^make ([a-z0-9-]+)", code)}

    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_conditions_that_a_page_gives_a_status_are_types_of_ours(page: Page) -> None:
    named = {match for code in code_in(page) for match in re.findall(r"^(\w+)=(?:True|False|Unknown)$", code)}

    assert named - {each.value for each in ConditionType} == set()


def test_values_in_the_table_of_the_operators_page_are_in_the_chart() -> None:
    values = yaml.safe_load((ROOT / "charts" / "llmservice-operator" / "values.yaml").read_text())
    table = re.findall(
        r"^\| ((?:`[\w.]+`(?:, )?)+) \|", PAGES["operator/docs/operating.md"].text, re.MULTILINE
    )
    named = {name for row in table for name in re.findall(r"`([\w.]+)`", row)}

    assert named
    assert {name for name in named if not has_value(values, name.split("."))} == set()


def has_value(values: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
