"""Typed reading of a model's config.json: every refusal names the field, its value and what was expected."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

LARGEST_DIMENSION = 1 << 31
"""No shape of a real model reaches this; more is a broken config."""


MAX_LAYERS = 1024
"""Of a model or a tower; more is a broken config."""
LONGEST_LIST = 4096
"""Entries of a list with one figure for each layer."""


class ConfigError(ValueError):
    """A config.json that can't be read, or has a shape this model doesn't know."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        shown = repr(value[:100] if isinstance(value, str | list) else value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"config.json: {field} is {shown}; {expected}")


class ConfigReader:
    """One JSON object of a config, with the path that leads to it."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self.values = values
        self.path = path

    def name(self, key: str) -> str:
        """The key with its path, as messages show it."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is there and not null."""
        return any(self.values.get(key) is not None for key in keys)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """The first of the keys that is there, as a whole number of at least `minimum`."""
        for key in keys:
            value = self.values.get(key)
            if (
                isinstance(value, list)
                and 0 < len(value) <= LONGEST_LIST
                and value.count(value[0]) == len(value)
            ):
                value = value[0]  # the same for each layer
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                if isinstance(value, float) and value.is_integer():
                    value = int(value)
                else:
                    raise ConfigError(self.name(key), value, "a whole number is expected")
            if not minimum <= value < LARGEST_DIMENSION:
                raise ConfigError(self.name(key), value, f"at least {minimum} and below 2^31 is expected")
            return value
        if default is None:
            names = " or ".join(self.name(key) for key in keys)
            raise ConfigError(names, None, "the field is needed for sizing")
        return default

    def number(self, key: str, default: float) -> float:
        """A finite number."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(self.name(key), value, "a finite number is expected")
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(self.name(key), value, "true or false is expected")
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """The first of the keys that is there, as a string."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, str):
                raise ConfigError(self.name(key), value, "a string is expected")
            return value
        return default

    def sequence(self, key: str) -> Sequence[Any]:
        """A list; empty if it isn't there."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise ConfigError(self.name(key), value, "a list is expected")
        return value

    def nested(self, key: str) -> "ConfigReader | None":
        """An object below this one; None if it isn't there."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ConfigError(self.name(key), value, "an object is expected")
        return ConfigReader(value, self.name(key))

    def error(self, key: str, expected: str) -> ConfigError:
        """A refusal of this field's value."""
        return ConfigError(self.name(key), self.values.get(key), expected)
