"""The base of every type in the API.

Importing a type is kept cheap, as every command waits for it: what validates is built when it first does
(`defer_build`), once for a spec and not for each of its parts on its own too; and fields get their docstrings as
descriptions when a schema is made, not when the type is (pydantic's `use_attribute_docstrings` would parse its source).
"""

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _ApiModel(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        from llmservice_operator.api.docstrings import describe  # noqa: PLC0415 - it reads sources

        schema = handler(core_schema)
        describe(cls, handler.resolve_ref_schema(schema))
        return schema


class SpecModel(_ApiModel):
    """A part of `spec`: frozen, camelCase on the wire, and nothing unknown is taken."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
    )


class StatusModel(_ApiModel):
    """A part of `status`: frozen, camelCase on the wire; fields of a newer release are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        defer_build=True,
    )
