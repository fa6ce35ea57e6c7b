"""Docstrings of fields as descriptions in a type's JSON schema.

Pydantic can do so itself (`use_attribute_docstrings`), and then parses the source of every type whenever it is
imported, which every start of every command would wait for. Only the schema needs them.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import BaseModel


def describe(kind: type[BaseModel], schema: dict[str, Any]) -> None:
    """Give each property of a type's JSON schema its field's docstring, where it has no description of its own."""
    properties = schema.get("properties", {})
    for name, text in _attribute_docstrings(kind).items():
        field = kind.model_fields[name]
        for key in (field.serialization_alias or field.alias, name):
            if key in properties:
                properties[key].setdefault("description", text)


def _attribute_docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """Docstrings of all fields, inherited ones too."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith(__package__ or ""):
            module = inspect.getmodule(each)
            found |= _docstrings_of_module(module).get(each.__qualname__, {}) if module else {}
    return {name: text for name, text in found.items() if name in kind.model_fields}


@cache
def _docstrings_of_module(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class → field → docstring, of a module's own classes."""
    classes = [each for each in ast.parse(inspect.getsource(module)).body if isinstance(each, ast.ClassDef)]
    return {each.name: dict(_documented_fields(each)) for each in classes}


def _documented_fields(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield statement.target.id, inspect.cleandoc(following.value.value)
