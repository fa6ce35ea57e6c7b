"""Configs, starts and plans for the tests of sizing."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.versions import memory_rules, parse_version
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    find_row,
    load_catalogue,
)
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.device_shape import device_shape
from llmservice_operator.perfmodel.kv_cache import CacheLayout, CacheSettings, cache_layout
from llmservice_operator.perfmodel.memory import GIB, Account, Batch, account, format_fields
from llmservice_operator.perfmodel.quantization import Quantization, online_quantization, read_quantization
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import ModelFacts, Plan, PlanInputs, Refusal

DATA = Path(__file__).resolve().parents[2] / "data"

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


def load_config(name: str) -> dict[str, Any]:
    """A model's config.json, with hf_quant_config.json under quantization_config where that is apart."""
    folder = DATA / "models" / name
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    apart = folder / "hf_quant_config.json"
    if apart.is_file():
        config.setdefault("quantization_config", json.loads(apart.read_text()))
    return config


def model_names() -> list[str]:
    """Every model of the test data."""
    return sorted(path.parent.name for path in (DATA / "models").glob("*/config.json"))


def generating_models() -> list[str]:
    """The models whose shapes are known and that generate text."""
    return [name for name in model_names() if name != "BAAI--bge-base-en-v1.5"]


def read_starts(file: str) -> dict[str, dict[str, Any]]:
    """Recorded starts by name."""
    return {each["name"]: each for each in json.loads((DATA / file).read_text())["starts"]}


def quantization_of(start: dict[str, Any]) -> Quantization:
    """The scheme of a start: its checkpoint's, or the engine's own while loading."""
    said = start.get("quantization", "auto")
    found = read_quantization(load_config(start["config"])) if said == "auto" else online_quantization(said)
    assert found is not None
    return found


def start_model(start: dict[str, Any]) -> Architecture:
    """The shapes of a start's model."""
    return read_architecture(load_config(start["config"]))


def start_batch(start: dict[str, Any]) -> Batch:
    """The batch knobs of a start."""
    fp8, block_scaled, expert_format = format_fields(quantization_of(start))
    row = next(each for each in catalogue() if each.name == start["gpu"])
    return Batch(
        max_num_seqs=start["max_num_seqs"],
        max_num_batched_tokens=start["max_num_batched_tokens"],
        tensor_parallel_size=start["tp"],
        dtype=start["dtype"],
        fp8_weights=fp8,
        block_scaled=block_scaled,
        expert_format=expert_format,
        max_model_len=start["max_model_len"],
        device=device_shape(row.compute_capability, row.memory_bytes),
        enforce_eager=start["enforce_eager"],
        multimodal=not start["language_model_only"],
        flashinfer_sampler=start["flashinfer_sampler"],
    )


def start_weights(start: dict[str, Any]) -> int:
    """Predicted bytes of weights of one rank of a start."""
    model = start_model(start)
    version = parse_version(start["engine_version"] or "0.16.0")
    assert version is not None
    row = find_row(catalogue(), start.get("gpu", ""))
    return rank_weight_bytes(
        model,
        quantization_of(start),
        dtype=start.get("dtype", model.dtype),
        tensor_parallel_size=start["tp"],
        with_vision=not start.get("language_model_only", False),
        capability=row.capability if row is not None else None,
        engine_version=version,
    )


def start_account(start: dict[str, Any]) -> Account:
    """Predicted account of one rank of a start."""
    version = parse_version(start["engine_version"])
    assert version is not None
    model = start_model(start)
    return account(
        total_bytes=int(start["memory"]["total_gib"] * GIB),
        utilization=start["utilization"],
        weights_bytes=start_weights(start),
        model=model,
        batch=start_batch(start),
        rules=memory_rules(version, model),
    )


def start_layout(start: dict[str, Any]) -> CacheLayout:
    """Predicted layout of a start's KV cache."""
    return cache_layout(
        start_model(start),
        CacheSettings(
            kv_cache_dtype=start["kv_cache_dtype"],
            model_dtype=start["dtype"],
            tensor_parallel_size=start["tp"],
            block_size=16,
            max_num_batched_tokens=start["max_num_batched_tokens"],
            prefix_caching=start["prefix_caching"],
        ),
    )


@cache
def catalogue() -> tuple[AcceleratorRow, ...]:
    """The built-in rows."""
    return load_catalogue(builtin_catalogue_text())


def inputs_for(
    config: dict[str, Any] | str | None, spec: dict[str, Any] | None = None, **changes: Any
) -> PlanInputs:
    """Inputs of a plan for a config (or a model's name) and the parts of a spec beside its model."""
    found = load_config(config) if isinstance(config, str) else config
    given: dict[str, Any] = {
        "service_name": "svc",
        "spec": LLMServiceSpec.model_validate({"model": {"uri": "hf://org/model"}, **(spec or {})}),
        "model": None if found is None else ModelFacts(config=found, source="test"),
        "catalogue": catalogue(),
        "nodes": None,
        "engine_version": "0.26.0",
    }
    return PlanInputs(**{**given, **changes})


def planned(config: dict[str, Any] | str | None, spec: dict[str, Any] | None = None, **changes: Any) -> Plan:
    """The plan; fails where it is refused."""
    result = make_plan(inputs_for(config, spec, **changes))
    assert isinstance(result, Plan), result
    return result


def refused(
    config: dict[str, Any] | str | None, spec: dict[str, Any] | None = None, **changes: Any
) -> Refusal:
    """The refusal; fails where there is a plan."""
    result = make_plan(inputs_for(config, spec, **changes))
    assert isinstance(result, Refusal), result
    return result


def on(*types: str, **rest: Any) -> dict[str, Any]:
    """A spec for these accelerators."""
    return {"accelerator": {"types": list(types)}, **rest}
