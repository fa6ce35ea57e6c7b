"""Rules that stand beside a type: each is a validator for Python and a CEL rule of the schema at once."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from llmservice_operator.api.durations import DURATION_MEND, DURATION_PATTERN, parse_duration_seconds
from llmservice_operator.api.problems import told
from llmservice_operator.api.quantities import QUANTITY_MEND, parse_quantity
from llmservice_operator.errors import InvalidInputError

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One CEL rule of the schema. Exactly one of the messages is set; `message` is plain text."""

    rule: str
    message: str = ""
    message_expression: str = ""
    """CEL that yields the message; for messages that hold values."""
    field_path: str = ""
    """The field that the error names, such as `.max`, where it is not the place of the rule itself."""
    optional_old_self: bool = False
    """True: the rule runs on create too, and `oldSelf` is an optional."""

    def as_schema(self) -> dict[str, Any]:
        """The rule as an entry of x-kubernetes-validations."""
        entry: dict[str, Any] = {"rule": self.rule}
        if self.message:
            entry["message"] = self.message
        if self.message_expression:
            entry["messageExpression"] = self.message_expression
        if self.field_path:
            entry["fieldPath"] = self.field_path
        if self.optional_old_self:
            entry["optionalOldSelf"] = True
        return entry


def rules(*each: Rule) -> dict[str, Any]:
    """The rules as a schema's extra keys."""
    return {VALIDATIONS: [rule.as_schema() for rule in each]}


def says(template: str, *values: str) -> str:
    """CEL that puts values, of one type, into a text at its %s or %d.

    The API server estimates what a message may cost. `format` is cheap in its eyes, and joining texts of unknown
    length is not.
    """
    return f"{cel_string(template)}.format([{', '.join(values)}])"


def cel_string(text: str) -> str:
    """The text as a CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class _Checked(Protocol):
    def check(self, value: Any) -> None: ...
    def rules(self) -> tuple[Rule, ...]: ...


class _Marker:
    """Puts a check behind a type's own validation and its rules into the type's schema."""

    def __get_pydantic_core_schema__(
        self: _Checked, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def checked(value: Any) -> Any:
            self.check(value)
            return value

        return core_schema.no_info_after_validator_function(checked, handler(source))

    def __get_pydantic_json_schema__(
        self: _Checked, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        before = json_schema.get(VALIDATIONS, [])
        return {**json_schema, VALIDATIONS: [*before, *(rule.as_schema() for rule in self.rules())]}


@dataclass(frozen=True)
class Matches(_Marker):
    """A text that must match a pattern that RE2 and Python read alike; `mend` says what to write instead."""

    pattern: str
    mend: str

    def check(self, value: str) -> None:
        """Raise ValueError for another text."""
        if re.compile(self.pattern.removeprefix("^").removesuffix("$")).fullmatch(value) is None:
            raise ValueError(f"{value[:64]!r}: {self.mend}")

    def rules(self) -> tuple[Rule, ...]:
        """The same as CEL."""
        return (Rule(rule=f"self.matches({cel_string(self.pattern)})", message=self.mend),)


@dataclass(frozen=True)
class DurationBetween(_Marker):
    """A duration with both bounds in it."""

    minimum: str
    maximum: str

    def check(self, value: str) -> None:
        """Raise ValueError for a text that is no duration or is out of bounds."""
        try:
            seconds = parse_duration_seconds(value)
        except InvalidInputError:
            raise ValueError(f"{value[:64]!r}: {DURATION_MEND}") from None
        if not parse_duration_seconds(self.minimum) <= seconds <= parse_duration_seconds(self.maximum):
            raise ValueError(f"{value!r}: {self._bounds()}")

    def rules(self) -> tuple[Rule, ...]:
        """The same as CEL: the form first, since `duration()` fails on others."""
        form = f"self.matches({cel_string(DURATION_PATTERN)})"
        low, high = (f"duration({cel_string(each)})" for each in (self.minimum, self.maximum))
        return (
            Rule(rule=form, message=DURATION_MEND),
            Rule(
                rule=f"!{form} || (duration(self) >= {low} && duration(self) <= {high})",
                message=self._bounds(),
            ),
        )

    def _bounds(self) -> str:
        return f"must be from {self.minimum} to {self.maximum}"


@dataclass(frozen=True)
class NumberBetween(_Marker):
    """A number with both bounds in it.

    A rule, where `minimum` and `maximum` of a schema would do: those say the bound and no mend, and no other rule of
    the object runs once one of them is broken. For a field that is not an integer the bounds are floats.
    """

    minimum: float
    maximum: float
    mend: str = ""
    """What to write instead, where the bounds don't say it."""

    def check(self, value: float) -> None:
        """Raise ValueError for a number out of bounds."""
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"{value!r}: {self._words()}")

    def rules(self) -> tuple[Rule, ...]:
        """The same as CEL."""
        return (Rule(rule=f"self >= {self.minimum!r} && self <= {self.maximum!r}", message=self._words()),)

    def _words(self) -> str:
        bounds = f"must be from {self.minimum:g} to {self.maximum:g}"
        return f"{bounds}: {self.mend}" if self.mend else bounds


@dataclass(frozen=True)
class QuantityBetween(_Marker):
    """A quantity with both bounds in it."""

    minimum: str
    maximum: str

    def check(self, value: str) -> None:
        """Raise ValueError for a text that is no quantity or is out of bounds."""
        try:
            number = parse_quantity(value)
        except InvalidInputError:
            raise ValueError(f"{value[:64]!r}: {QUANTITY_MEND}") from None
        if not parse_quantity(self.minimum) <= number <= parse_quantity(self.maximum):
            raise ValueError(f"{value!r}: {self._bounds()}")

    def rules(self) -> tuple[Rule, ...]:
        """The same as CEL."""
        within = (
            f"quantity(self).compareTo(quantity({cel_string(self.minimum)})) >= 0"
            f" && quantity(self).compareTo(quantity({cel_string(self.maximum)})) <= 0"
        )
        return (
            Rule(rule="isQuantity(self)", message=QUANTITY_MEND),
            Rule(rule=f"!isQuantity(self) || ({within})", message=self._bounds()),
        )

    def _bounds(self) -> str:
        return f"must be from {self.minimum} to {self.maximum}"


@dataclass(frozen=True)
class Satisfies(_Marker):
    """Any check, written twice: as a Python function that returns a message or None, and as CEL rules."""

    find_fault: Callable[[Any], str | None]
    cel: tuple[Rule, ...]

    def check(self, value: Any) -> None:
        """Raise ValueError with the function's message."""
        if (message := self.find_fault(value)) is not None:
            raise ValueError(message)

    def rules(self) -> tuple[Rule, ...]:
        """The CEL rules as given."""
        return self.cel


@dataclass(frozen=True)
class CoreShape:
    """A free JSON object that has, in Python and in the schema, the closed shape of a model."""

    model: type[BaseModel]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._closed, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        del schema  # that of the free object
        return self.model.__get_pydantic_json_schema__(self.model.__pydantic_core_schema__, handler)

    def _closed(self, value: Mapping[str, Any]) -> dict[str, Any]:
        try:
            checked = self.model.model_validate_json(
                json.dumps(value), strict=True, by_alias=True, by_name=False
            )
        except ValidationError as error:
            raise ValueError("; ".join(told(each, value) for each in error.errors())) from None
        return checked.model_dump(by_alias=True, exclude_unset=True, mode="json")
