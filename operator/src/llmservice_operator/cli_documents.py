"""Reading of what people give to the commands: bounded, and with one line of words for whatever cannot be used."""

import json
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import yaml

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    load_catalogue,
    with_users_rows,
)

CONFIG_KEY, QUANT_KEY, CATALOGUE_KEY = "config.json", "hf_quant_config.json", "accelerators.yaml"
LARGEST_FILE_BYTES = 16 << 20
LARGEST_CONFIG_CHARACTERS = 4 << 20
"""Of one config.json, as the hub client has it: read, it takes some thirty times as much."""
LARGEST_DOCUMENT_VALUES = 250_000
"""Values of a file with all its aliases unfolded: a few lines of nested ones unfold to billions."""

_TIMESTAMP, _MERGE = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """As the API server reads YAML: no dates, no key twice. In C where that is built."""

    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's own way to hold them
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value[:64]!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_text(file: str | Path) -> str:
    """The text of a file, or of stdin for `-`. InvalidInputError says why it cannot be read."""
    name = "stdin" if str(file) == "-" else str(file)
    try:
        if name == "stdin":
            data = _bounded(sys.stdin.buffer, name, 0)
        else:
            with Path(file).open("rb") as opened:
                data = _bounded(opened, name, os.fstat(opened.fileno()).st_size)
    except OSError as error:
        raise InvalidInputError(f"{name} can't be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{name} is no UTF-8 text: byte {data[error.start]:#04x} at position {error.start}; save it as UTF-8"
        ) from error


def _bounded(opened: IO[bytes], name: str, size_bytes: int) -> bytes:
    """All of it. A device or pipe tells no size: so much is read and no more."""
    if size_bytes <= LARGEST_FILE_BYTES:
        data = opened.read(LARGEST_FILE_BYTES + 1)
        if len(data) <= LARGEST_FILE_BYTES:
            return data
    has = f"{size_bytes:,} bytes" if size_bytes > LARGEST_FILE_BYTES else "more bytes"
    raise InvalidInputError(
        f"{name} has {has}; at most {LARGEST_FILE_BYTES:,} are read: is it the right file?"
    )


def yaml_objects(text: str, what: str) -> list[Mapping[str, Any]]:
    """The objects of all documents of a YAML or JSON text, those in a `kind: List` too."""
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} is no YAML: {_yaml_words(error)}") from error
    _count_values(documents, what)
    return list(_flattened(documents, what))


def _yaml_words(error: Exception) -> str:
    """One line: what is wrong, and where."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return " ".join(str(problem or error).split())[:300] + where


def _count_values(documents: list[Any], what: str) -> None:
    """Refuse what its aliases unfold to too much, or to no end, before anything walks through it."""
    count, stack = 0, [iter(documents)]
    while stack:
        for value in stack[-1]:
            count += 1
            if count > LARGEST_DOCUMENT_VALUES:
                raise InvalidInputError(
                    f"{what} has more than {LARGEST_DOCUMENT_VALUES:,} values with its aliases (*name) unfolded; "
                    "write it without aliases"
                )
            if isinstance(value, Mapping):
                stack.append(iter(value.values()))
                break
            if isinstance(value, list | tuple | set):
                stack.append(iter(value))
                break
        else:
            stack.pop()


def _flattened(documents: Iterable[Any], what: str) -> Iterator[Mapping[str, Any]]:
    for each in documents:
        if isinstance(each, Mapping) and each.get("kind") == "List":
            items = each.get("items")
            if not isinstance(items, list | None):
                raise InvalidInputError(f"{what}: items of the List is {_named(items)}; a list is expected")
            yield from _flattened(items or (), what)
        elif isinstance(each, Mapping):
            yield each
        elif each is not None:
            raise InvalidInputError(f"a document of {what} is {_named(each)}; an object is expected")


def member(obj: Mapping[str, Any], key: str, what: str) -> Mapping[Any, Any]:
    """An object inside of an object; empty where it is not there."""
    value = obj.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{what}: {key} is {_named(value)}; an object is expected")
    return value


def json_object(text: Any, what: str) -> dict[str, Any]:
    """The JSON object of a text."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} is {_named(text)}; JSON as a text is expected")
    if len(text) > LARGEST_CONFIG_CHARACTERS:
        raise InvalidInputError(
            f"{what} has {len(text):,} characters; at most {LARGEST_CONFIG_CHARACTERS:,} are read: "
            "is it the right file?"
        )
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{what} is no JSON: {error}") from error
    except ValueError as error:  # the interpreter's own bound
        raise InvalidInputError(
            f"{what} has a number of thousands of digits; is it the right file?"
        ) from error
    except RecursionError as error:
        raise InvalidInputError(f"{what} is no JSON that can be read: it is nested too deeply") from error
    if not isinstance(values, dict):
        raise InvalidInputError(f"{what} is a {_named(values)}; an object is expected")
    return values


def _named(value: object) -> str:
    return type(value).__name__


def read_catalogue(path: Path | None) -> tuple[AcceleratorRow, ...]:
    """The built-in rows with those of a file (plain, or a ConfigMap that has them under accelerators.yaml)."""
    builtin = load_catalogue(builtin_catalogue_text())
    if path is None:
        return builtin
    text = read_text(path)
    for each in yaml_objects(text, str(path)):
        if each.get("kind") == "ConfigMap":
            text = str(member(each, "data", str(path)).get(CATALOGUE_KEY, ""))
    return with_users_rows(builtin, text)


def config_texts(path: Path) -> tuple[dict[str, str], str]:
    """The texts of a config.json, or of the folder that has one, with hf_quant_config.json; and the file's name.

    Raises InvalidInputError.
    """
    folder, file = (path, path / CONFIG_KEY) if path.is_dir() else (path.parent, path)
    texts = {CONFIG_KEY: read_text(file)}
    if (folder / QUANT_KEY).is_file():
        texts[QUANT_KEY] = read_text(folder / QUANT_KEY)
    return texts, str(file)


def read_config(texts: Mapping[Any, Any], *, source: str) -> dict[str, Any]:
    """config.json with hf_quant_config.json, where that is apart, as `quantization_config`."""
    if CONFIG_KEY not in texts:
        has = ", ".join(sorted(map(str, texts))) or "none"
        raise InvalidInputError(f"{source} has no key {CONFIG_KEY}; it has {has[:300]}")
    config = json_object(texts[CONFIG_KEY], f"{source}: {CONFIG_KEY}")
    if QUANT_KEY in texts and "quantization_config" not in config:
        config["quantization_config"] = json_object(texts[QUANT_KEY], f"{source}: {QUANT_KEY}")
    return config


def print_while_read(write: Callable[[], None]) -> None:
    """Print to the end, or until whoever reads has seen enough (`| head`)."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more when it ends; what is left must not go into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
