"""The parts of the status that are not conditions: plan, engine, start, last failure. Pure."""

from datetime import UTC, datetime

from llmservice_operator.api.conditions import timestamp
from llmservice_operator.api.status import (
    DeviceStatus,
    EngineStatus,
    FailureStatus,
    KnobsStatus,
    MemoryTermStatus,
    PlanSpeedStatus,
    PlanStatus,
    RevisionStarts,
    StartPhase,
    StartStatus,
    WeightsProgress,
)
from llmservice_operator.api.wording import WORDS_MAX_LENGTH
from llmservice_operator.clients.engine import EngineReport
from llmservice_operator.controller.accuracy import comparisons
from llmservice_operator.controller.podstate import PodState
from llmservice_operator.controller.proving import failed_start
from llmservice_operator.planning.types import Plan, PlannedSpeed
from llmservice_operator.resources.revision import Revision

EXPLANATION_MAX_LENGTH = 512
MAX_REASONS = 24
MAX_WARNINGS = 16
MAX_TERMS = 16
MAX_DEVICES = 16


_SPEED_FIGURES = (
    "ttft_seconds",
    "ttft_p95_seconds",
    "tpot_seconds",
    "tpot_p95_seconds",
    "tokens_per_second",
    "requests_per_second",
)


def plan_status(revision: Revision) -> PlanStatus:
    """The plan of this revision, as the status shows it."""
    plan = revision.plan
    knobs = plan.knobs
    return PlanStatus(
        revision=revision.name,
        model_revision=revision.model_revision or "",
        engine_version=plan.engine_version,
        accelerator=plan.accelerator.name,
        accelerators_per_replica=plan.accelerators_per_replica,
        resource_name=plan.resource_name,
        knobs=KnobsStatus(
            max_model_len=knobs.max_model_len,
            gpu_memory_utilization=knobs.gpu_memory_utilization,
            max_num_seqs=knobs.max_num_seqs,
            max_num_batched_tokens=knobs.max_num_batched_tokens,
            kv_cache_dtype=knobs.kv_cache_dtype,
            block_size=knobs.block_size,
            tensor_parallel_size=knobs.tensor_parallel_size,
            kv_cache_bytes=knobs.kv_cache_bytes,
        ),
        memory=tuple(
            MemoryTermStatus(
                name=term.name,
                size_bytes=term.size_bytes,
                explanation=_cut(term.explanation, EXPLANATION_MAX_LENGTH),
            )
            for term in plan.memory[:MAX_TERMS]
        ),
        total_bytes=plan.total_bytes,
        requested_bytes=plan.requested_bytes,
        weights_bytes=plan.weights_bytes,
        kv_cache_tokens=plan.kv_cache_tokens,
        max_concurrency=round(plan.max_concurrency, 2),
        headroom_bytes=plan.headroom_bytes,
        speed=_plan_speed(plan.speed),
        bottleneck=plan.speed.bottleneck if plan.speed is not None else "",
        missed=plan.missed,
        reasons=tuple(_cut(each, EXPLANATION_MAX_LENGTH) for each in plan.reasons[:MAX_REASONS]),
        warnings=tuple(_cut(each, EXPLANATION_MAX_LENGTH) for each in plan.warnings[:MAX_WARNINGS]),
    )


def _plan_speed(speed: PlannedSpeed | None) -> PlanSpeedStatus | None:
    """The prediction with four digits: more would only make the status change."""
    if speed is None:
        return None
    return PlanSpeedStatus(
        input_tokens=speed.input_tokens,
        output_tokens=speed.output_tokens,
        batch=speed.batch,
        **{name: float(f"{getattr(speed, name):.4g}") for name in _SPEED_FIGURES},
    )


def engine_status(report: EngineReport, plan: Plan, now: float) -> EngineStatus:
    """What a ready engine reported, beside its plan."""
    said = report.memory
    return EngineStatus(
        version=report.engine_version,
        version_known=report.version_known,
        revision=report.revision,
        reported_at=timestamp(now),
        max_model_len=_whole(said.get("maxModelLen")),
        kv_cache_tokens=_whole(said.get("kvCacheTokens")),
        max_concurrency=said.get("maxConcurrency"),
        memory=comparisons(said, plan),
        start=tuple(
            StartPhase(name=name, seconds=round(seconds, 1))
            for name, seconds in report.step_seconds[:MAX_TERMS]
        ),
        devices=tuple(
            DeviceStatus(name=device.name, memory_bytes=device.memory_bytes)
            for device in report.devices[:MAX_DEVICES]
        ),
    )


def start_status(pod: PodState | None, records: tuple[RevisionStarts, ...], now: float) -> StartStatus | None:
    """The start that is under way in this pod, and the count of starts."""
    if pod is None:
        return StartStatus(revisions=records) if records else None
    report = pod.report
    started_at = report.started_at if report is not None else None
    return StartStatus(
        pod=pod.name,
        step=report.step if report is not None else "",
        since=None if started_at is None else timestamp(started_at),
        weights=_weights(report, now),
        revisions=records,
    )


def failure_status(pod: PodState, before: FailureStatus | None, now: float) -> FailureStatus | None:
    """How the engine of this pod last ended. The time of one failure stays the one first seen."""
    failure = pod.trouble.failure if pod.trouble is not None else None
    if failure is None or pod.trouble is None:
        return None
    restarts = failed_start(pod)
    same = before is not None and (before.pod, before.restarts) == (pod.name, restarts)
    at = timestamp(now if pod.trouble.failed_at is None else pod.trouble.failed_at)
    return FailureStatus(
        failure_class=failure.failure_class,
        message=_cut(failure.message, WORDS_MAX_LENGTH),
        stage=failure.stage,
        exit_code=failure.exit_code,
        signal=failure.signal,
        pod=pod.name,
        revision=pod.revision,
        at=before.at if same and before is not None and before.at is not None else at,
        restarts=restarts,
        estimated_max_model_len=failure.estimated_max_model_len,
        kv_cache_needed_bytes=failure.kv_cache_needed_bytes,
        kv_cache_available_bytes=failure.kv_cache_available_bytes,
    )


def _weights(report: EngineReport | None, now: float) -> WeightsProgress | None:
    if report is None or report.step != "load" or not report.load.total_bytes:
        return None
    load = report.load
    left = load.seconds_left
    return WeightsProgress(
        total_bytes=load.total_bytes or 0,
        loaded_bytes=load.loaded_bytes or 0,
        bytes_per_second=load.bytes_per_second,
        expected_at=None if left is None else datetime.fromtimestamp(int(now + left), tz=UTC),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
