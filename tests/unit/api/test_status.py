"""The status type: wordy parts are cut, other releases' fields do not hurt, and what is written is read again."""

from datetime import UTC, datetime
from typing import Any

from llmservice_operator.api.status import FailureStatus, LLMServiceStatus, PlanStatus
from llmservice_operator.api.status_scaling import DecisionStatus, SignalStatus

PLAN: dict[str, Any] = {
    "accelerator": "nvidia-h200",
    "acceleratorsPerReplica": 1,
    "knobs": {
        "maxModelLen": 32768,
        "gpuMemoryUtilization": 0.92,
        "maxNumSeqs": 256,
        "maxNumBatchedTokens": 8192,
    },
    "memory": [{"name": "weights", "sizeBytes": 16_381_470_720, "explanation": "8.19e9 parameters x 2 B"}],
    "totalBytes": 150_110_000_000,
    "requestedBytes": 138_101_200_000,
    "kvCacheTokens": 812_000,
    "maxConcurrency": 24.8,
}


def test_what_is_written_is_read_again() -> None:
    status = LLMServiceStatus.model_validate({"observedGeneration": 3, "replicas": 2, "plan": PLAN})

    written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["plan"].items() >= {"accelerator": "nvidia-h200", "kvCacheTokens": 812_000}.items()
    assert LLMServiceStatus.model_validate(written) == status


def test_a_wordy_reason_is_cut_and_shows_it() -> None:
    plan = PlanStatus.model_validate({**PLAN, "reasons": ["w" * 1_000]})

    assert len(plan.reasons[0]) == 400
    assert plan.reasons[0].endswith("…")


def test_too_many_reasons_are_cut() -> None:
    plan = PlanStatus.model_validate({**PLAN, "reasons": [str(number) for number in range(100)]})

    assert plan.reasons == tuple(str(number) for number in range(24))


def test_a_failure_is_called_class_in_the_cluster() -> None:
    failure = FailureStatus(
        failure_class="OutOfMemory", message="m" * 5_000, at=datetime(2026, 1, 2, tzinfo=UTC)
    )

    written = failure.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["class"] == "OutOfMemory"
    assert written["at"] == "2026-01-02T00:00:00Z"
    assert len(written["message"]) == 1_024


def test_fields_of_a_newer_release_are_left_out() -> None:
    status = LLMServiceStatus.model_validate({"replicas": 1, "bottleneck": {"kind": "MemoryBandwidth"}})

    assert "bottleneck" not in status.model_dump(by_alias=True)


def test_measured_values_keep_four_digits() -> None:
    signal = SignalStatus(name="ttft_p95_seconds", state="ok", value=0.18347219)

    assert signal.value == 0.1835


def test_a_decision_is_from_and_to_in_the_cluster() -> None:
    decision = DecisionStatus(
        at=datetime(2026, 1, 2, tzinfo=UTC), from_replicas=2, to_replicas=3, steps={"load": 2.34567}
    )

    written = decision.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written.items() >= {"from": 2, "to": 3, "steps": {"load": 2.346}}.items()
    assert DecisionStatus.model_validate(written) == decision
