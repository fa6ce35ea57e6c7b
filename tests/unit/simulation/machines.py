"""Engines that the simulation's tests run on: a few, whose tables are made once."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.simulation.loads import Load, make_load
from llmservice_operator.simulation.tables import Tables, build_tables

TESTS = Path(__file__).resolve().parents[2]
LLAMA = "meta-llama--Meta-Llama-3.1-8B"


@cache
def speed(*, kv_cache_tokens: int | None = None, max_num_seqs: int = 64) -> SpeedModel:
    """Llama-3.1-8B on one H200; a small batch, so that its tables are made fast."""
    config = json.loads((TESTS / "data" / "models" / LLAMA / "config.json").read_text())
    row = find_row(load_catalogue(builtin_catalogue_text()), "nvidia-h200")
    assert row is not None
    model = read_architecture(config)
    return SpeedModel(
        SpeedCase(
            model=model,
            quantization=read_quantization(config),
            accelerator=row,
            tensor_parallel_size=1,
            dtype=model.dtype,
            kv_cache_dtype="auto",
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=2048,
            max_model_len=16_384,
            engine_version=(0, 26, 0),
            kv_cache_tokens=kv_cache_tokens,
        )
    )


@cache
def tables(*, kv_cache_tokens: int | None = None) -> Tables:
    """Of that engine."""
    return build_tables(speed(kv_cache_tokens=kv_cache_tokens))


def even_load(rate_per_second: float, seconds: float, *, prompt: int = 1000, answer: int = 100) -> Load:
    """Like requests, evenly spaced."""
    count = round(rate_per_second * seconds)
    arrivals = (np.arange(count) + 0.5) / rate_per_second
    return make_load("even", arrivals, np.full(count, prompt), np.full(count, answer), seconds=seconds)
