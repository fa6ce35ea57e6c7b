"""A status is written when something happened, and seldom when numbers only move."""

import json
from typing import Any

import pytest

from llmservice_operator.api.conditions import Condition, timestamp
from llmservice_operator.api.status import (
    KnobsStatus,
    LLMServiceStatus,
    MemoryTermStatus,
    PlanStatus,
)
from llmservice_operator.controller.statuswrite import MAX_STATUS_BYTES, status_json, write_wait_seconds

Object = dict[str, Any]


def status(
    *,
    message: str = "",
    reason: str = "LoadingWeights",
    loaded: int | None = 1,
    kv: int = 1000,
    **fields: Any,
) -> Object:
    weights = {} if loaded is None else {"weights": {"totalBytes": 100, "loadedBytes": loaded}}
    return {
        "observedGeneration": 1,
        "start": {"pod": "chat-1", "step": "load", **weights},
        "engine": {"revision": "chat-1", "version": "0.32.0", "kvCacheTokens": kv, "reportedAt": "now"},
        "conditions": [{"type": "Progressing", "status": "True", "reason": reason, "message": message}],
        **fields,
    }


def test_equal_status_is_never_written() -> None:
    assert write_wait_seconds(status(), status(), None) is None


@pytest.mark.parametrize(
    "new",
    [
        status(reason="EngineStarting"),
        status(readyReplicas=1),
        status(observedGeneration=2),
        status(start={"pod": "chat-2", "step": "load", "weights": {"totalBytes": 100, "loadedBytes": 1}}),
        status(engine={"revision": "chat-2", "version": "0.32.0"}),
    ],
    ids=["reason", "ready replicas", "generation", "another pod", "another report"],
)
def test_change_of_state_is_written_at_once(new: Object) -> None:
    assert write_wait_seconds(status(), new, 0.1) == 0.0


def test_progress_of_a_load_is_written_each_ten_seconds() -> None:
    old, new = status(message="1 of 100"), status(message="2 of 100", loaded=2)

    assert write_wait_seconds(old, new, 4.0) == 6.0
    assert write_wait_seconds(old, new, 11.0) == 0.0


def test_first_progress_after_a_restart_is_written_at_once() -> None:
    assert write_wait_seconds(status(), status(loaded=2), None) == 0.0


def test_number_that_moved_by_a_fifth_or_less_is_not_written() -> None:
    assert write_wait_seconds(status(kv=1000), status(kv=1200), 3600.0) is None


def test_number_that_moved_by_more_is_written_once_a_minute() -> None:
    old, new = status(kv=1000), status(kv=1201)

    assert write_wait_seconds(old, new, 50.0) == 10.0
    assert write_wait_seconds(old, new, 61.0) == 0.0


def test_time_of_the_same_report_is_no_news() -> None:
    old = status()
    new = status(engine={**old["engine"], "reportedAt": "later"})

    assert write_wait_seconds(old, new, 3600.0) is None


def test_longest_status_stays_below_sixteen_kibibytes() -> None:
    words = "x" * 512
    knobs = KnobsStatus(max_model_len=1, max_num_seqs=1, max_num_batched_tokens=1)
    plan = PlanStatus(
        accelerator="cpu",
        accelerators_per_replica=0,
        knobs=knobs,
        memory=tuple(MemoryTermStatus(name=f"term{n}", size_bytes=1, explanation=words) for n in range(16)),
        total_bytes=1,
        requested_bytes=1,
        kv_cache_tokens=1,
        max_concurrency=1.0,
        reasons=(words,) * 24,
        warnings=(words,) * 16,
    )
    conditions = tuple(
        Condition(
            type=f"T{n}", status="True", reason="R", message="x" * 1024, last_transition_time=timestamp(0)
        )
        for n in range(7)
    )
    body = status_json(LLMServiceStatus(plan=plan, conditions=conditions))

    assert len(json.dumps(body, separators=(",", ":")).encode()) <= MAX_STATUS_BYTES
    assert body["plan"]["memory"][0]["explanation"] != ""
