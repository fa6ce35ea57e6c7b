"""pydantic's errors in the words of the API's users."""

from collections.abc import Iterable, Mapping
from typing import Any


def told(error: Mapping[str, Any], value: Any) -> str:
    """One of pydantic's errors in one line: the field, as users write it, and what is wrong with it."""
    field = field_of(error["loc"], value)
    return f"{field}: {message_of(error)}" if field else message_of(error)


def field_of(location: Iterable[str | int], value: Any) -> str:
    """The field's path in the value, such as `engine.env[0].name`, without pydantic's names of union members."""
    path = ""
    here = value
    for step in location:
        if isinstance(here, Mapping):
            path += f".{step}" if path else str(step)
            here = here.get(step)
        elif isinstance(here, list | tuple) and isinstance(step, int):
            path += f"[{step}]"
            here = here[step] if step < len(here) else None
    return path


def message_of(error: Mapping[str, Any]) -> str:
    """What is wrong, with the value where pydantic's words leave it out."""
    kind = error["type"]
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "is no field of this object"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    return f"{str(error['input'])[:64]!r}: {error['msg']}"
