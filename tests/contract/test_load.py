"""The load generator, and the claim that the fake engine and the simulator's are one: the soak rests on both."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import numpy as np
import pytest

from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import make_load
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.score import latencies
from load.generator import DONE, DROPPED, LATE, REFUSED, Request, Result, Target, check, replay
from ports import free_port
from soak.law import StepLaw, tables

from .conftest import API_KEY, SERVED
from .test_fake_faults import fake

BUDGET, SEQUENCES, CONTEXT, POOL = 512, 8, 2048, 20_000
LAW = StepLaw(
    step_seconds=0.002,
    step_least_token_seconds=0.015,
    step_seconds_per_token=0.0001,
    step_seconds_per_sequence=0.0005,
    step_seconds_per_context_token=1e-6,
    step_seconds_per_attended_token=1e-7,
)


def play(
    port: int, requests: list[Request], *, limit: int = 100, timeout_seconds: float = 30.0
) -> list[Result]:
    """What came of them, in the order of their sending."""
    results: list[Result] = []
    target = Target("127.0.0.1", port, SERVED, API_KEY)
    asyncio.run(replay([target], requests, results.append, limit=limit, timeout_seconds=timeout_seconds))
    return sorted(results, key=lambda each: each.index)


def test_an_address_out_of_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match=r"192\.0\.33\.8"):
        check(Target("192.0.33.8", 80, SERVED))


def test_each_end_is_told(tmp_path: Path) -> None:
    request = Request(0.0, 0, 1, 4)
    with fake(tmp_path, FAKE_ENGINE_TTFT_SECONDS="0.3") as engine:
        done, dropped = play(engine.port, [request, request], limit=1)
        (late,) = play(engine.port, [request], timeout_seconds=0.1)
        (refused,) = play(free_port(), [request])

    assert (done.ended, dropped.ended, late.ended, refused.ended) == (DONE, DROPPED, LATE, REFUSED)
    assert done.first_seconds == pytest.approx(0.3, abs=0.1)


def test_fake_and_simulated_engine_are_one(tmp_path: Path) -> None:
    """Six seconds above the engine's capacity: queues, shared steps and chunks, request by request."""
    chance = np.random.default_rng(3)
    arrivals = np.sort(chance.uniform(0.0, 6.0, 60))
    prompts, answers = chance.integers(50, 1500, 60), chance.integers(2, 40, 60)
    environment = LAW.environment(read_bytes_per_step=1e9)
    environment |= {"FAKE_ENGINE_KV_CACHE_TOKENS": str(POOL)}
    flags = (f"--max-num-batched-tokens={BUDGET}", f"--max-num-seqs={SEQUENCES}")
    with fake(tmp_path, *flags, **environment) as engine:
        requests = [
            Request(float(at), 0, int(prompt), int(answer))
            for at, prompt, answer in zip(arrivals, prompts, answers, strict=True)
        ]
        real = play(engine.port, requests)

    load = make_load("same", arrivals, prompts, answers, seconds=6.0)
    engine_tables = tables(
        LAW,
        token_budget=BUDGET,
        max_num_seqs=SEQUENCES,
        max_model_len=CONTEXT,
        pool_tokens=POOL,
        traffic_seconds_per_step=0.0,
    )
    run = simulate(engine_tables, load, Static(1), FleetSettings(max_replicas=1))
    ttft, _ = latencies(run)

    apart = [
        abs(each.first_seconds - told) for each, told in zip(real, ttft, strict=True) if each.first_seconds
    ]
    assert [each.ended for each in real] == [DONE] * 60
    assert max(ttft) > 2.0  # there was a queue
    assert statistics.median(apart) < 0.03
