"""Folds what the lines of all ranks said about memory into one account of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Mapping

from llmservice_runtime.log_parser import GIB, Observation


@dataclass(frozen=True)
class EngineFacts:
    """What the engine said of itself so far; sizes in bytes, per device. None: not said (yet)."""

    version: str | None = None
    total_bytes: int | None = None
    requested_bytes: int | None = None
    free_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    non_torch_bytes: int | None = None
    cuda_graph_bytes: int | None = None
    cuda_graph_estimate_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    checkpoint_bytes: int | None = None
    shard_fraction: float | None = None
    weights_loaded: bool = False


# Ranks print a line each. The fullest rank decides: the most weights, the least KV cache.
_LAST: dict[str, str] = {
    "total": "total_bytes",
    "requested": "requested_bytes",
    "free": "free_bytes",
    "activation": "activation_bytes",
    "non_torch": "non_torch_bytes",
    "cuda_graph": "cuda_graph_bytes",
    "cuda_graph_estimate": "cuda_graph_estimate_bytes",
    "max_concurrency": "max_concurrency",
    "max_model_len": "max_model_len",
    "checkpoint": "checkpoint_bytes",
    "shard_fraction": "shard_fraction",
}
_EXTREME: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "weights": ("weights_bytes", max),
    "kv_cache": ("kv_cache_bytes", min),
    "kv_tokens": ("kv_cache_tokens", min),
}


def fold(facts: EngineFacts, observation: Observation) -> EngineFacts:
    """`facts` with one more line taken in."""
    changes: dict[str, object] = {}
    for name, value in observation.values.items():
        if name == "version":
            changes["version"] = value
        elif name == "load_seconds":
            changes["weights_loaded"] = True
        elif name in _LAST:
            changes[_LAST[name]] = value
        elif name in _EXTREME and not isinstance(value, str):
            target, choose = _EXTREME[name]
            before = getattr(facts, target)
            changes[target] = value if before is None else choose(before, value)
    changes.update(_from_consumed(facts, observation.values))
    if "weights" in observation.values:
        changes["weights_loaded"] = True
    return replace(facts, **changes) if changes else facts  # type: ignore[arg-type]


def _from_consumed(facts: EngineFacts, values: Mapping[str, float | str]) -> dict[str, object]:
    """Since vLLM 0.28 the summary joins weights with non-torch, and the peak with the graph estimate."""
    consumed, peak = values.get("consumed"), values.get("peak_with_graph_estimate")
    changes: dict[str, object] = {}
    if isinstance(consumed, (int, float)) and facts.weights_bytes is not None:
        changes["non_torch_bytes"] = max(0, int(consumed) - facts.weights_bytes)
    if isinstance(peak, (int, float)):
        changes["activation_bytes"] = max(0, int(peak) - (facts.cuda_graph_estimate_bytes or 0))
    return changes


def gib(size_bytes: float) -> str:
    """`size_bytes` as people read it."""
    return f"{size_bytes / GIB:.2f} GiB"
