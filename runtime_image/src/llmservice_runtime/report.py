"""The JSON of /report and of the termination message. Pure."""

from __future__ import annotations

import json
from typing import Any

from llmservice_runtime import __version__
from llmservice_runtime.classifier import Failure
from llmservice_runtime.config import Config
from llmservice_runtime.engine_http import Load
from llmservice_runtime.log_parser import version_known
from llmservice_runtime.state import Snapshot

SCHEMA = 1
MAX_TERMINATION_BYTES = 4096  # the kubelet cuts a longer message (Kubernetes API, terminationMessagePath)
_CUT = " …"


def build_report(config: Config, snapshot: Snapshot) -> dict[str, Any]:
    """The whole of /report; times in seconds, sizes in bytes, null for what is not known."""
    facts = snapshot.facts
    return {
        "schema": SCHEMA,
        "service": config.service,
        "revision": config.revision,
        "supervisorVersion": __version__,
        "engine": {
            "name": config.engine,
            "version": facts.version,
            "versionKnown": version_known(facts.version),
        },
        "phase": snapshot.phase,
        "startedAt": round(snapshot.started_at, 3),
        "readyAt": None if snapshot.ready_at is None else round(snapshot.ready_at, 3),
        "startup": {
            "step": snapshot.step,
            "steps": [{"name": name, "seconds": round(seconds, 3)} for name, seconds in snapshot.steps],
            "weights": {
                "totalBytes": snapshot.weights.total_bytes,
                "loadedBytes": snapshot.weights.loaded_bytes,
                "bytesPerSecond": _rounded(snapshot.weights.bytes_per_second),
                "secondsLeft": _rounded(snapshot.weights.seconds_left),
            },
        },
        "memory": {
            "totalBytes": facts.total_bytes,
            "requestedBytes": facts.requested_bytes,
            "freeBytes": facts.free_bytes,
            "weightsBytes": facts.weights_bytes,
            "activationBytes": facts.activation_bytes,
            "nonTorchBytes": facts.non_torch_bytes,
            "cudaGraphBytes": facts.cuda_graph_bytes,
            "cudaGraphEstimateBytes": facts.cuda_graph_estimate_bytes,
            "kvCacheBytes": facts.kv_cache_bytes,
            "kvCacheTokens": facts.kv_cache_tokens,
            "maxConcurrency": facts.max_concurrency,
            "maxModelLen": facts.max_model_len,
        },
        "devices": [{"name": device.name, "memoryBytes": device.memory_bytes} for device in snapshot.devices],
        "requests": _requests(snapshot.load),
        "failure": None if snapshot.failure is None else failure_fields(snapshot.failure),
    }


def _requests(load: Load) -> dict[str, Any]:
    """Whole numbers. What the API server has accepted and the core has not told of yet counts as running."""
    if load.in_flight is None or load.waiting is None:
        return {"running": None, "waiting": None}
    return {"running": round(load.in_flight - load.waiting), "waiting": round(load.waiting)}


def failure_fields(failure: Failure) -> dict[str, Any]:
    return {
        "class": failure.failure_class,
        "message": failure.message,
        "stage": failure.stage,
        "exitCode": failure.exit_code,
        "signal": failure.signal,
        "estimatedMaxModelLen": failure.estimated_max_model_len,
        "kvCacheNeededBytes": failure.kv_cache_needed_bytes,
        "kvCacheAvailableBytes": failure.kv_cache_available_bytes,
    }


def termination_message(service: str, revision: str, failure: Failure) -> bytes:
    """One JSON object of at most 4,096 bytes; the message is cut at its end to fit."""
    fields = {"schema": SCHEMA, "service": service, "revision": revision, **failure_fields(failure)}
    encoded = _encode(fields)
    message = failure.message
    while len(encoded) > MAX_TERMINATION_BYTES and message:
        over = len(encoded) - MAX_TERMINATION_BYTES
        # a character takes at most 4 bytes, an escape up to 6: cutting a sixth of the excess cannot cut too
        # much
        message = message[: max(0, len(message) - max(1, over // 6))]
        encoded = _encode({**fields, "message": message + _CUT})
    return encoded


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
