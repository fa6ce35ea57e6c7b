"""How many bytes of weights a local model directory holds, as the engine's loader would choose them."""

from __future__ import annotations

import json
from pathlib import Path

_PATTERNS = ("*.safetensors", "*.bin", "*.pt")


def weights_bytes(model_path: Path) -> int | None:
    """Bytes of the first kind of weight file present, or None when there is none or it cannot be read.

    With an index only the files that it names count, since checkpoints ship the same weights twice
    (vLLM 0.33 model_executor/model_loader/default_loader.py).
    """
    try:
        for pattern in _PATTERNS:
            files = {path.name: path.stat().st_size for path in model_path.glob(pattern)}
            if files:
                named = _indexed(model_path / "model.safetensors.index.json")
                chosen = [size for name, size in files.items() if named is None or name in named]
                return sum(chosen) or None
    except OSError:
        return None
    return None


def _indexed(index: Path) -> set[str] | None:
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
