"""Checkpoints in local folders: their headers, read from the files' first bytes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmservice_operator.perfmodel.checkpoint import (
    INDEX_NAME,
    LENGTH_BYTES,
    MAX_FILES,
    Checkpoint,
    CheckpointError,
    Tensor,
    add_up,
    header_length,
    read_header,
    weight_files,
)

MAX_INDEX_BYTES = 16 << 20


def read_folder(folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint in this folder; None where it has no safetensors files.

    Raises CheckpointError that names the file, for one that cannot be read or is none.
    """
    names = sorted(path.name for path in folder.glob("*.safetensors"))[: MAX_FILES + 1]
    chosen = weight_files(names, _index(folder / INDEX_NAME))
    if not chosen:
        return None
    if len(chosen) > MAX_FILES:
        raise CheckpointError(f"{folder} has more than {MAX_FILES} safetensors files")
    return add_up(_headers(folder, chosen), config)


def _headers(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[Tensor, ...]]:
    for name in names:
        path = folder / name
        try:
            size = path.stat().st_size
            with path.open("rb") as opened:
                length = header_length(opened.read(LENGTH_BYTES), size)
                yield read_header(opened.read(length), size)
        except OSError as error:
            raise CheckpointError(f"{path} can't be read: {error.strerror or error}") from error
        except CheckpointError as error:
            raise CheckpointError(f"{path} is no safetensors file: {error}") from error


def _index(path: Path) -> Mapping[str, Any] | None:
    """The index, if it is one: without it every file of the folder counts."""
    try:
        if path.stat().st_size > MAX_INDEX_BYTES:
            return None
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
