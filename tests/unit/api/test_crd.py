"""The generated CustomResourceDefinition: structural, bounded, described, and the same each time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.api.crd import DEFINITIONS, render
from llmservice_operator.api.structural import structural_schema

CRD = DEFINITIONS["llmservices"]()
SCHEMAS: dict[str, dict[str, Any]] = {
    plural: make()["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for plural, make in DEFINITIONS.items()
}
COMMITTED = Path(__file__).parents[3] / "crds"


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema under spec and status, with its path."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


NODES = {
    path: node
    for part in ("spec", "status")
    for path, node in nodes(SCHEMAS["llmservices"]["properties"][part], part)
} | dict(nodes(SCHEMAS["scalingpolicies"]["properties"]["spec"], "scalingpolicies.spec"))


def test_two_processes_print_the_same_bytes() -> None:
    command = [sys.executable, "-m", "llmservice_operator.api.crd", "llmservices"]
    outputs = {subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)}

    assert outputs == {render("llmservices").encode()}


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_the_committed_file_is_the_generated_one(plural: str) -> None:
    assert (COMMITTED / f"{plural}.yaml").read_text(encoding="utf-8") == render(plural)


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_yaml_says_the_same_as_the_types(plural: str) -> None:
    assert yaml.safe_load(render(plural)) == DEFINITIONS[plural]()


@pytest.mark.parametrize("forbidden", ["$ref", "anyOf", "oneOf", "allOf", "title", "$defs", "const"])
def test_the_schema_is_structural(forbidden: str) -> None:
    assert [path for path, node in NODES.items() if forbidden in node] == []


def test_every_node_has_a_type_or_is_a_number_or_text() -> None:
    untyped = [
        path
        for path, node in NODES.items()
        if "type" not in node and not node.get("x-kubernetes-int-or-string")
    ]
    assert untyped == []


def test_nothing_unknown_is_kept_anywhere() -> None:
    assert [path for path, node in NODES.items() if node.get("x-kubernetes-preserve-unknown-fields")] == []


def test_every_property_is_described() -> None:
    undescribed = [
        path for path, node in NODES.items() if path[-1] not in "]}" and not node.get("description")
    ]
    assert undescribed == []


def test_every_text_of_the_spec_has_a_longest_length() -> None:
    unbounded = [
        path
        for path, node in NODES.items()
        if path.startswith("spec")
        and node.get("type") == "string"
        and not node.keys() & {"maxLength", "enum"}
    ]
    assert unbounded == []


def test_every_list_and_map_has_a_largest_size() -> None:
    lists = [path for path, node in NODES.items() if node.get("type") == "array" and "maxItems" not in node]
    maps = [
        path for path, node in NODES.items() if "additionalProperties" in node and "maxProperties" not in node
    ]
    assert (lists, maps) == ([], [])


def test_conditions_merge_by_type() -> None:
    conditions = NODES["status.conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("path", ["spec.engine.env", "spec.podTemplate.volumes"])
def test_named_lists_merge_by_name(path: str) -> None:
    assert NODES[path]["x-kubernetes-list-map-keys"] == ["name"]


def test_every_rule_has_exactly_one_message() -> None:
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 50
    assert [rule for rule in rules if ("message" in rule) == ("messageExpression" in rule)] == []


def test_the_scale_subresource_reads_and_writes_replicas() -> None:
    assert CRD["spec"]["versions"][0]["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


@pytest.mark.parametrize(
    "path", [column["jsonPath"] for column in CRD["spec"]["versions"][0]["additionalPrinterColumns"]]
)
def test_every_printer_column_shows_a_field_that_there_is(path: str) -> None:
    known = {".metadata.creationTimestamp"}
    plain = path.split("[?", maxsplit=1)[0]
    assert plain in known or plain.removeprefix(".") in NODES


def test_a_union_that_the_api_server_cannot_have_is_an_error() -> None:
    union = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}
    with pytest.raises(ValueError, match="no unions"):
        structural_schema(union)
