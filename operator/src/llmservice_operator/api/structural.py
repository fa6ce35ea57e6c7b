"""A type's JSON schema as a structural one, which is all that a CustomResourceDefinition takes.

It has no references and no unions: `X | None` becomes an optional `X`, a reference becomes what it refers to, and
objects that have defaults inside get a default themselves.
"""

from typing import Any

from llmservice_operator.api.markers import VALIDATIONS

Schema = dict[str, Any]

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
