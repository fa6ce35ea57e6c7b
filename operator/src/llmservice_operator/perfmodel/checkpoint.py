"""What a checkpoint holds, exactly: the tensors that the headers of its safetensors files list. Pure.

A safetensors file begins with 8 bytes, little-endian, that tell the length of a JSON header; the header names each
tensor with its dtype, shape and place (https://github.com/huggingface/safetensors, "Format"). So a few kilobytes of
each file tell every byte of the weights. Not all of them reach an accelerator: prediction layers (MTP) are loaded only
for speculation, a vision tower not under `--language-model-only`, a tied head not twice.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from llmservice_operator.errors import InvalidInputError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 8 << 20
"""Forty thousand experts' tensors in one file need five. The format's own library takes 100 MB (safetensors)."""
MAX_FILES = 1024
MAX_TENSOR_BYTES = 1 << 46
INDEX_NAME = "model.safetensors.index.json"

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip
"""Bits of one element (safetensors/src/tensor.rs)."""

FLOAT_BYTES: Mapping[str, int] = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""What a load casts to the format that the engine computes in."""

MODEL, VISION, MTP, HEAD_COPY, BUFFERS = "model", "vision", "mtp", "head_copy", "buffers"
"""Parts of a checkpoint, by what becomes of them at a load."""

_MTP = re.compile(r"(?:^|\.)mtp(?:_\w+)?\.")
_TOWER = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|audio\w*|image_encoder|image_newline|multi_modal_projector|mm_projector|"
    r"embed_vision|embed_audio|patch_merger|vpm|resampler)(?:\.|$)"
)
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_HEAD = re.compile(r"(?:^|\.)lm_head\.weight$")
_BUFFER = re.compile(r"\.(?:rotary_emb\.inv_freq|masked_bias)$")


class CheckpointError(InvalidInputError):
    """A file is no safetensors file, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a header."""

    name: str
    dtype: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The tensors of all files, added up."""

    files: int
    tensors: int
    sizes: tuple[tuple[str, str, int], ...]
    """(part, number format, bytes), largest first."""

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(size for _, _, size in self.sizes)

    def part(self, name: str) -> int:
        """Bytes of one part."""
        return sum(size for part, _, size in self.sizes if part == name)

    def loaded_bytes(self, *, vision: bool, mtp: bool = False, float_bytes: int | None = None) -> int:
        """Bytes that a load brings onto accelerators.

        As they are stored; with `float_bytes` the elements of 16, 32 and 64 bits in the format that the engine
        computes in. That is right for checkpoints that aren't quantised: scales of others stay as they are.
        """
        parts = {MODEL} | ({VISION} if vision else set()) | ({MTP} if mtp else set())
        return sum(
            size
            if float_bytes is None or dtype not in FLOAT_BYTES
            else size // FLOAT_BYTES[dtype] * float_bytes
            for part, dtype, size in self.sizes
            if part in parts
        )


def header_length(first: bytes, file_bytes: int | None = None) -> int:
    """The length of the header from a file's first 8 bytes. Raises CheckpointError for one that cannot be."""
    if len(first) < LENGTH_BYTES:
        raise CheckpointError(f"it has {len(first)} bytes; a safetensors file begins with 8 of length")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"its header claims {length:,} bytes; at most {MAX_HEADER_BYTES:,} are read")
    if length < 2 or (file_bytes is not None and LENGTH_BYTES + length > file_bytes):
        raise CheckpointError(f"its header claims {length:,} bytes, and the file has {file_bytes or 0:,}")
    return length


def read_header(header: bytes, file_bytes: int | None = None) -> tuple[Tensor, ...]:
    """The tensors that a header lists. Raises CheckpointError where it contradicts itself or the file's size."""
    try:
        listed = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise CheckpointError("its header is no JSON") from error
    if not isinstance(listed, dict):
        raise CheckpointError("its header is no JSON object")
    tensors = tuple(_tensor(name, value) for name, value in listed.items() if name != "__metadata__")
    held = sum(each.size_bytes for each in tensors)
    if file_bytes is not None and LENGTH_BYTES + len(header) + held > file_bytes:
        raise CheckpointError(f"its tensors are {held:,} bytes, and the whole file has {file_bytes:,}")
    return tensors


def _tensor(name: str, value: Any) -> Tensor:
    fields = value if isinstance(value, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    wanted = "a dtype, a shape and two offsets"
    if not isinstance(dtype, str) or not _wholes(shape) or not _wholes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"tensor {name[:80]!r} has not {wanted}")
    size = offsets[1] - offsets[0]
    bits = DTYPE_BITS.get(dtype)
    if not 0 <= size <= MAX_TENSOR_BYTES or len(shape) > 16:
        raise CheckpointError(f"tensor {name[:80]!r} claims {size:,} bytes")
    if bits is not None and math.prod(shape) * bits != size * 8:
        raise CheckpointError(
            f"tensor {name[:80]!r} of shape {shape} in {dtype} does not fill its {size:,} bytes"
        )
    return Tensor(name, dtype[:16], size)


def _wholes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAX_TENSOR_BYTES
        for each in value
    )


def add_up(files: Iterable[Iterable[Tensor]], config: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of these files' tensors. `config` is config.json: it tells how many layers are the model's own."""
    sizes: Counter[tuple[str, str]] = Counter()
    count = tensors = 0
    layers, tied = _layers(config), _tied(config)
    for file in files:
        count += 1
        for tensor in file:
            tensors += 1
            sizes[_part(tensor.name, layers=layers, tied=tied), tensor.dtype] += tensor.size_bytes
    return Checkpoint(
        files=count,
        tensors=tensors,
        sizes=tuple((part, dtype, size) for (part, dtype), size in sizes.most_common()),
    )


def _part(name: str, *, layers: int | None, tied: bool) -> str:
    """What a tensor belongs to, by its name: checkpoints of all makers name these alike."""
    if _TOWER.search(name):
        return VISION
    layer = _LAYER.search(name)
    if _MTP.search(name) or (layer is not None and layers is not None and int(layer[1]) >= layers):
        return MTP
    if tied and _HEAD.search(name):
        return HEAD_COPY
    return BUFFERS if _BUFFER.search(name) else MODEL


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _layers(config: Mapping[str, Any]) -> int | None:
    """Layers of the language model; those of the checkpoint beyond them are prediction layers."""
    value = _text_config(config).get("num_hidden_layers")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _tied(config: Mapping[str, Any]) -> bool:
    text = _text_config(config)
    return text.get("tie_word_embeddings", config.get("tie_word_embeddings")) is True


def weight_files(names: Iterable[str], index: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The files that are loaded: those of the index, else every safetensors file of the top folder.

    `consolidated.*` is the same weights again in another layout; adapters stand in folders (vLLM
    model_executor/model_loader/default_loader.py).
    """
    present = frozenset(names)
    listed = (index or {}).get("weight_map")
    if isinstance(listed, dict) and listed:
        named = {name for name in listed.values() if isinstance(name, str)}
        if named <= present:
            return tuple(sorted(named))
    return tuple(
        sorted(
            name
            for name in present
            if name.endswith(".safetensors") and "/" not in name and not name.startswith("consolidated")
        )
    )


def index_total(index: Mapping[str, Any] | None) -> int | None:
    """`metadata.total_size` of an index, if it is a size."""
    metadata = (index or {}).get("metadata")
    sizes = [metadata.get("total_size") if isinstance(metadata, dict) else None]
    return sizes[0] if _wholes(sizes) and sizes[0] else None
