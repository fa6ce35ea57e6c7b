"""What the model directory says, and what follows for memory: the figures that vLLM's CPU build prints for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vllm.fake.arguments import Arguments
from vllm.fake.parameters import Parameters

GIB = 1024**3
_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
_DEFAULT_KV_BYTES_PER_TOKEN = 46_080  # SmolLM2-135M: 30 layers, 3 heads of 64, K and V, 4 bytes
_DEFAULT_WEIGHTS_BYTES = 269_060_552  # SmolLM2-135M's model.safetensors


class ModelError(Exception):
    """The model cannot be used; the text is vLLM's."""


@dataclass(frozen=True)
class Model:
    """Sizes in bytes, lengths in tokens."""

    max_position: int
    weights_bytes: int
    kv_bytes_per_token: int
    block_size: int
    kv_cache_bytes: int
    kv_cache_tokens: int
    max_model_len: int


def resolve(arguments: Arguments, parameters: Parameters, kvcache_space_gib: int | None) -> Model:
    """Sizes as the real engine would find them.

    KV cache: `--kv-cache-memory-bytes`, else `VLLM_CPU_KVCACHE_SPACE` on the CPU, else what the fraction of
    memory leaves; whole blocks of 128 tokens on the CPU and 16 on CUDA (vLLM 0.32 platforms/cpu.py,
    v1/core/kv_cache_utils.py).

    Raises:
        ModelError: for a directory without a config.json.

    """
    config = _config(arguments.model)
    max_position = int(str(config.get("max_position_embeddings", 8192))) if config else 8192
    per_token = parameters.kv_bytes_per_token or _kv_bytes_per_token(config, arguments.dtype)
    weights = parameters.weights_bytes or _weights_bytes(arguments.model)
    block = arguments.block_size or (128 if parameters.device == "cpu" else 16)
    kv_bytes = _kv_bytes(arguments, parameters, kvcache_space_gib, weights)
    tokens = max(0, kv_bytes // (per_token * block)) * block
    if parameters.kv_cache_tokens is not None:
        tokens, kv_bytes = parameters.kv_cache_tokens, parameters.kv_cache_tokens * per_token
    length = arguments.max_model_len or parameters.max_model_len or max_position
    return Model(max_position, weights, per_token, block, kv_bytes, tokens, length)


def _config(model: str) -> dict[str, object] | None:
    path = Path(model)
    if not path.is_absolute():
        return None  # a name on the hub: the defaults stand for it
    try:
        loaded = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"Invalid repository ID or local directory specified: '{model}'.\nPlease verify the following requirements:"
            "\n1. Provide a valid Hugging Face repository ID.\n2. Specify a local directory that contains a recognized "
            "configuration file."
        ) from None
    except ValueError:
        raise ModelError(
            f"It looks like the config file at '{path / 'config.json'}' is not a valid JSON file."
        ) from None
    return loaded if isinstance(loaded, dict) else None


def _kv_bytes_per_token(config: dict[str, object] | None, dtype: str) -> int:
    if not config or "num_hidden_layers" not in config:
        return _DEFAULT_KV_BYTES_PER_TOKEN
    heads = int(str(config.get("num_attention_heads", 1)))
    kv_heads = int(str(config.get("num_key_value_heads", heads)))
    head_dim = int(str(config.get("head_dim") or int(str(config.get("hidden_size", heads))) // heads))
    name = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16") if dtype == "auto" else dtype
    return int(str(config["num_hidden_layers"])) * kv_heads * head_dim * 2 * _DTYPE_BYTES.get(name, 2)


def _weights_bytes(model: str) -> int:
    path = Path(model)
    sizes = [file.stat().st_size for file in path.glob("*.safetensors")] if path.is_absolute() else []
    return sum(sizes) or _DEFAULT_WEIGHTS_BYTES


def _kv_bytes(arguments: Arguments, parameters: Parameters, space_gib: int | None, weights: int) -> int:
    if arguments.kv_cache_memory_bytes is not None:
        return arguments.kv_cache_memory_bytes
    if parameters.device == "cpu" and space_gib is not None:
        return space_gib * GIB
    requested = int(parameters.total_bytes * arguments.gpu_memory_utilization)
    return requested - weights - parameters.activation_bytes - parameters.non_torch_bytes
