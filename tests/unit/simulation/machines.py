"""Engines that the simulation's tests run on: a few, whose tables are made once."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, find_row, load_catalogue
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.arrivals import Lengths, Request, poisson_load
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.simulation.kernel import advance
from llmservice_operator.simulation.loads import Load, make_load
from llmservice_operator.simulation.records import Fleet, new_fleet, new_requests
from llmservice_operator.simulation.router import LEAST_LOADED
from llmservice_operator.simulation.tables import Tables, build_tables

TESTS = Path(__file__).resolve().parents[2]
LLAMA = "meta-llama--Meta-Llama-3.1-8B"
LENGTHS = Lengths(input_p50=800, output_p50=120, input_p95=4000, output_p95=500)


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


def fleet_of(load: list[Request], machine: Tables, *, slots: int = 1) -> Fleet:
    """Engines that take requests, and these to come."""
    half = float(machine[0]["half_request_seconds"])
    requests = new_requests(
        np.array([each.arrival_seconds + half for each in load]),
        np.array([each.input_tokens for each in load]),
        np.array([each.output_tokens for each in load]),
    )
    fleet = new_fleet(requests, slots=slots)
    fleet.engines["takes"] = fleet.engines["runs"] = 1
    return fleet


def serve(
    fleet: Fleet,
    machine: Tables,
    *,
    begin: float = 0.0,
    until: float = 1e9,
    routing: int = LEAST_LOADED,
    first: int = 0,
) -> int:
    """Let time pass; the first request that isn't sent yet, as `first` is."""
    return advance(
        machine,
        fleet.requests,
        fleet.engines,
        fleet.pages,
        fleet.endings,
        fleet.router,
        routing,
        begin,
        until,
        first,
    )


def load_of(rate: float, seconds: float = 40.0, seed: int = 3) -> list[Request]:
    """So many requests a second, of lengths that spread."""
    return poisson_load(
        rate_per_second=rate, window_seconds=seconds, lengths=LENGTHS, longest=16_000, seed=seed
    )
