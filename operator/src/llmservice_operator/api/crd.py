"""The CustomResourceDefinition, made from the API's types: `python -m llmservice_operator.api.crd` prints it.

A structural schema has no references and no unions, so the types' JSON schema is written out: `X | None` becomes an
optional `X`, a reference becomes what it refers to, and objects that have defaults inside get a default themselves.
"""

import sys
from typing import Any

import yaml

from llmservice_operator.api.labels import GROUP, KIND, PLURAL, VERSION
from llmservice_operator.api.markers import VALIDATIONS, Rule, cel_string, says
from llmservice_operator.api.names import NAME_MAX_LENGTH, NAME_MEND, NAME_PATTERN
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.status import LLMServiceStatus

Schema = dict[str, Any]

DESCRIPTION = (
    "LLMService serves one large language model: it is sized from first principles, run by an engine, held at its "
    "number of replicas, and explained in its status. The smallest useful one is spec.model.uri alone."
)

PRINTER_COLUMNS: tuple[tuple[str, str, str, str, int], ...] = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether requests are answered.", 0),
    ("Status", "string", '.status.conditions[?(@.type=="Ready")].reason', "What is going on.", 0),
    ("Replicas", "integer", ".status.replicas", "Pods that exist.", 0),
    ("Accelerator", "string", ".status.plan.accelerator", "What it runs on.", 0),
    ("Context", "integer", ".status.plan.knobs.maxModelLen", "Tokens that one request may hold.", 0),
    ("KV Tokens", "integer", ".status.plan.kvCacheTokens", "Tokens that the KV cache of a replica holds.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
    ("Address", "string", ".status.address", "Base URL inside the cluster.", 1),
    (
        "Message",
        "string",
        '.status.conditions[?(@.type=="Ready")].message',
        "What is going on, in a sentence.",
        1,
    ),
)
"""Name, type, JSON path, description, priority (0: always shown; 1: with -o wide)."""

_KEPT = (
    "type",
    "format",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    VALIDATIONS,
)


_FORMATS = {"integer": "int64", "number": "double"}


def custom_resource_definition() -> Schema:
    """The whole CustomResourceDefinition as JSON. The same for the same sources."""
    columns = [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
        | ({"description": description} if description else {})
        for name, kind, path, description, priority in PRINTER_COLUMNS
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _root_schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["llmsvc"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _root_schema() -> Schema:
    name_rule = Rule(
        rule=(
            f"size(self.metadata.name) <= {NAME_MAX_LENGTH} && self.metadata.name.matches({cel_string(NAME_PATTERN)})"
        ),
        message_expression=says(f"%s: it {NAME_MEND}", "self.metadata.name"),
        field_path=".metadata.name",
    )
    return {
        "type": "object",
        "description": DESCRIPTION,
        # Where spec is absent, reading the scale subresource fails; a default of {} would lack spec.model.
        "required": ["spec"],
        VALIDATIONS: [name_rule.as_schema()],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": structural_schema(LLMServiceSpec.model_json_schema(by_alias=True)),
            "status": structural_schema(LLMServiceStatus.model_json_schema(by_alias=True)),
        },
    }


def structural_schema(schema: Schema) -> Schema:
    """A type's JSON schema as a structural one: no $ref, no anyOf, no titles.

    Raises ValueError for a union that no structural schema can say.
    """
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Schema, definitions: Schema) -> Schema:
    schema = _resolved(schema, definitions)
    result: Schema = {}
    if "description" in schema:
        result["description"] = " ".join(schema["description"].split())
    result |= {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    if (kind := result.get("type")) in _FORMATS:
        result["format"] = _FORMATS[kind]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = _structural(schema[key], definitions)
    if "properties" in schema:
        required = schema.get("required", ())
        result["properties"] = {
            name: _property(each, definitions, required=name in required)
            for name, each in schema["properties"].items()
        }
    return result


def _property(schema: Schema, definitions: Schema, *, required: bool) -> Schema:
    result = _structural(schema, definitions)
    default = schema.get("default")
    if default not in (None, "", [], {}):
        result["default"] = default
    elif not required and not _is_nullable(schema) and _has_defaults(result):
        result["default"] = {}
    return result


def _has_defaults(schema: Schema) -> bool:
    return any("default" in each for each in schema.get("properties", {}).values())


def _is_nullable(schema: Schema) -> bool:
    return any(each.get("type") == "null" for each in schema.get("anyOf", ()))


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """The schema without its outermost reference or union; its own words win over those referred to."""
    own = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "allOf")}
    if "$ref" in schema:
        return _merged(_resolved(definitions[schema["$ref"].rsplit("/", maxsplit=1)[-1]], definitions), own)
    if "anyOf" in schema:
        if schema.get("x-kubernetes-int-or-string"):
            return own
        choices = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(choices) != 1:
            raise ValueError(f"a structural schema has no unions: {schema}")
        return _merged(_resolved(choices[0], definitions), own)
    return own


def _merged(inner: Schema, outer: Schema) -> Schema:
    validations = [*inner.get(VALIDATIONS, ()), *outer.get(VALIDATIONS, ())]
    return {**inner, **outer, **({VALIDATIONS: validations} if validations else {})}


def render() -> str:
    """The CustomResourceDefinition as YAML."""
    head = (
        "# Made by `python -m llmservice_operator.api.crd` from the types of the API; not edited by hand.\n"
    )
    return head + yaml.safe_dump(custom_resource_definition(), sort_keys=False, allow_unicode=True, width=118)


if __name__ == "__main__":
    sys.stdout.write(render())
