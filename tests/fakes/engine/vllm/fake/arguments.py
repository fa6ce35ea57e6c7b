"""vLLM's command line: every flag of the real one by name and kind, refused like argparse refuses."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

_KINDS = {"int": int, "float": float, "text": str}


@dataclass(frozen=True)
class Arguments:
    """The flags that the fake acts on; sizes in bytes, times in seconds."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    api_keys: tuple[str, ...]
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_num_queued_reqs: int | None
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    block_size: int | None
    tensor_parallel_size: int
    dtype: str
    shutdown_timeout: float
    disable_log_stats: bool
    enable_mfu_metrics: bool
    enable_server_load_tracking: bool
    enable_prefix_caching: bool
    non_default: dict[str, object]


def parse(words: Sequence[str]) -> Arguments:
    """Parse; exits with 2 on anything that vLLM's parser does not know, as argparse does."""
    parser = _parser()
    found = parser.parse_args([_normal(word) for word in words])
    values = vars(found)
    model = found.model_tag or found.model or "Qwen/Qwen3-0.6B"
    return Arguments(
        model=model,
        served_names=tuple(found.served_model_name or [model]),
        host=found.host or "0.0.0.0",
        port=8000 if found.port is None else found.port,
        api_keys=tuple(found.api_key or ()),
        max_model_len=None if found.max_model_len == -1 else found.max_model_len,
        max_num_seqs=found.max_num_seqs,
        max_num_batched_tokens=found.max_num_batched_tokens,
        max_num_queued_reqs=found.max_num_queued_reqs,
        gpu_memory_utilization=0.92 if found.gpu_memory_utilization is None else found.gpu_memory_utilization,
        kv_cache_memory_bytes=found.kv_cache_memory_bytes,
        block_size=found.block_size,
        tensor_parallel_size=found.tensor_parallel_size or 1,
        dtype=found.dtype or "auto",
        shutdown_timeout=found.shutdown_timeout or 0,
        disable_log_stats=bool(found.disable_log_stats),
        enable_mfu_metrics=bool(found.enable_mfu_metrics),
        enable_server_load_tracking=bool(found.enable_server_load_tracking),
        enable_prefix_caching=found.enable_prefix_caching is not False,
        non_default={
            name: value for name, value in values.items() if value is not None and name != "api_key"
        },
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="api_server.py", usage="api_server.py [-h] [model_tag] [options]")
    parser.add_argument("model_tag", nargs="?")
    lines = resources.files("vllm.fake").joinpath("flags.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        kind, *names = line.split()
        if kind == "#" or "model_tag" in names:
            continue
        if names == ["--served-model-name"]:
            kind = "list"
        if kind == "switch":
            parser.add_argument(*names, action="store_true", default=None)
        elif kind == "bool":
            parser.add_argument(*names, action=argparse.BooleanOptionalAction)
        elif kind == "list":
            parser.add_argument(*names, nargs="+")
        elif "--max-model-len" in names:
            parser.add_argument(*names, type=_human_int)
        else:
            parser.add_argument(*names, type=_KINDS[kind])
    return parser


def _human_int(text: str) -> int:
    """`8k` is 8,000, `8K` is 8,192, `auto` is -1 (vLLM 0.33 utils/argparse_utils.py)."""
    if text == "auto":
        return -1
    scale = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(text[-1:], 0)
    return int(float(text[:-1]) * scale) if scale else int(text)


def _normal(word: str) -> str:
    """Underscores in a flag's name are dashes; dotted names keep their part before the dot."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-").split(".")[0] + equals + value
