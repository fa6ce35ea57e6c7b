"""The supervisor's own page, by its own code, with the memory and steps of a recorded start on H200."""

from collections.abc import Iterator

from llmservice_runtime.config import Config
from llmservice_runtime.engine_http import Load
from llmservice_runtime.exposition import render
from llmservice_runtime.memory_facts import EngineFacts
from llmservice_runtime.startup import WeightsProgress
from llmservice_runtime.state import READY, STARTING, Snapshot
from observability.stage.samples import Sample, read

_GIB = 2**30
WEIGHTS_BYTES = 16_060_522_496
FACTS = EngineFacts(
    version="0.26.0",
    total_bytes=int(139.8 * _GIB),
    requested_bytes=int(128.62 * _GIB),
    free_bytes=int(139.29 * _GIB),
    weights_bytes=int(15.0 * _GIB),
    activation_bytes=int(1.1 * _GIB),
    non_torch_bytes=int(0.22 * _GIB),
    cuda_graph_bytes=int(0.59 * _GIB),
    kv_cache_bytes=int(112.28 * _GIB),
    kv_cache_tokens=919_824,
    max_model_len=33_280,
)
"""`perf8b` of tests/truth/h200/memory.json."""
STEPS = (
    ("import", 0.28),
    ("load", 0.1),
    ("compile", 0.28),
    ("profile", 0.06),
    ("capture", 0.05),
    ("warmup", 0.23),
)
"""Shares of that start's time."""
BUDGET_SECONDS = 600.0


def page(
    *, started_at: float, ready_at: float | None, now: float, expected_seconds: float
) -> Iterator[Sample]:
    """Of one pod at `now`; times in seconds since the Unix epoch."""
    passed = (ready_at or now) - started_at
    steps, before = [], 0.0
    for name, share in STEPS:
        length = share * (passed if ready_at else expected_seconds)
        steps.append((name, max(0.0, min(length, passed - before))))
        before += length
    loaded = 1.0 if ready_at else min(1.0, passed / (0.38 * expected_seconds))
    snapshot = Snapshot(
        phase=READY if ready_at else STARTING,
        facts=FACTS if ready_at else EngineFacts(version="0.26.0"),
        step="serving" if ready_at else "load",
        steps=tuple((name, seconds) for name, seconds in steps if seconds > 0),
        weights=WeightsProgress(WEIGHTS_BYTES, int(loaded * WEIGHTS_BYTES), None, None),
        started_at=started_at,
        ready_at=ready_at,
        healthy=ready_at is not None,
        holding=False,
        hung=None,
        load=Load(),
        lines=400,
        devices=(),
        failure=None,
    )
    config = Config(
        service="chat/llama-3-8b", revision="1", engine_version="0.26.0", start_budget_seconds=BUDGET_SECONDS
    )
    return read(render(config, snapshot, now))
