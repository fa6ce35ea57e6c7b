"""The headers of a checkpoint's files over HTTP: a few kilobytes of each, instead of the weights."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llmservice_operator.errors import LLMServiceError
from llmservice_operator.perfmodel.checkpoint import (
    LENGTH_BYTES,
    MAX_FILES,
    Checkpoint,
    CheckpointError,
    Tensor,
    add_up,
    header_length,
    read_header,
)

FIRST_BYTES = 100_000
"""Asked of each file at first, as huggingface_hub does: the header of nearly every dense model's file fits in it."""
AT_ONCE = 8

FetchFirst = Callable[[str, int], Awaitable[bytes]]
"""(file, count) → its first bytes: no more than `count`, fewer where the file ends. Raises LLMServiceError."""


async def read_checkpoint(
    fetch: FetchFirst,
    files: tuple[str, ...],
    sizes: Mapping[str, int | None],
    config: Mapping[str, Any],
    *,
    timeout_seconds: float,
) -> tuple[Checkpoint | None, str]:
    """What the headers of these files list, or why they could not be read: a plan goes on without them.

    `sizes` has the files' sizes in bytes as the hub lists them; `config` is config.json. All of it takes at most
    `timeout_seconds`.
    """
    if not files:
        return None, ""
    if len(files) > MAX_FILES:
        return None, f"there are {len(files)} safetensors files; the headers of {MAX_FILES} at most are read"
    slots = asyncio.Semaphore(AT_ONCE)

    async def tensors(name: str) -> tuple[Tensor, ...]:
        async with slots:
            return await _read_file(fetch, name, sizes.get(name))

    try:
        # A group: when one file is no good, the others are not read to their ends.
        async with asyncio.timeout(timeout_seconds), asyncio.TaskGroup() as group:
            tasks = [group.create_task(tensors(name)) for name in files]
    except TimeoutError:
        return (
            None,
            f"the headers of {len(files)} safetensors files did not come within {timeout_seconds:g} s",
        )
    except ExceptionGroup as errors:
        ours, others = errors.split(LLMServiceError)
        if others is not None:
            raise others from None
        return None, f"the headers of the weights could not be read: {ours.exceptions[0] if ours else errors}"
    return add_up((task.result() for task in tasks), config), ""


async def _read_file(fetch: FetchFirst, name: str, file_bytes: int | None) -> tuple[Tensor, ...]:
    """The tensors of one file. CheckpointError names it."""
    try:
        return read_header(await _header(fetch, name, file_bytes), file_bytes)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error


async def _header(fetch: FetchFirst, name: str, file_bytes: int | None) -> bytes:
    """The file's header: in its first bytes, or in once more of them where it is longer."""
    start = await fetch(name, FIRST_BYTES)
    whole = LENGTH_BYTES + header_length(start, file_bytes)
    if whole > len(start):
        start = await fetch(name, whole)
    if whole > len(start):
        raise CheckpointError(f"it ended after {len(start):,} of the {whole:,} bytes of its header")
    return start[LENGTH_BYTES:whole]
