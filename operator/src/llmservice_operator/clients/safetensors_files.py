"""Checkpoints in local folders: their headers, read from the files' first bytes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    index_total,
    read_header,
    weight_files,
)

MAX_INDEX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """What a folder tells of its weights."""

    weights_bytes: int | None = None
    checkpoint: Checkpoint | None = None
    problem: str = ""
    """Why the headers tell nothing, where there are files."""


def read_weights(folder: Path, config: Mapping[str, Any]) -> FolderWeights:
    """The weights by the headers of the folder's files, else by its index. A file that is no good is told."""
    try:
        checkpoint, problem = read_folder(folder, config), ""
    except CheckpointError as error:
        checkpoint, problem = None, str(error)
    if checkpoint is not None:
        return FolderWeights(weights_bytes=checkpoint.total_bytes, checkpoint=checkpoint)
    return FolderWeights(weights_bytes=index_total(_index(folder / INDEX_NAME)), problem=problem)


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
