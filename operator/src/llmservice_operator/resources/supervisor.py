"""What the supervisor is told, as data: budgets, ports, and what to expect."""

import json
import math
from typing import Any

from llmservice_operator.api.durations import parse_duration_seconds
from llmservice_operator.api.labels import HTTP_PORT, SUPERVISOR_PORT
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.planning.types import Plan
from llmservice_operator.resources.model_source import ModelSource
from llmservice_operator.resources.types import Identity, RenderSettings

SUPERVISOR_VARIABLE = "LLMSERVICE_SUPERVISOR"
REVISION_VARIABLE = "LLMSERVICE_REVISION"

START_CONSTANT_SECONDS = 900
"""All of a start but moving weights: import, compile, profile, capture, warm-up. The longest cold start
measured with no weights to read (vLLM 0.26.0 on an H200, an FP8 model with DeepGEMM) took 330 s; slower hosts
get 2.7 times that."""
TYPICAL_START_SECONDS = 90
"""The same of a usual start, with its kernels compiled before."""
VOLUME_BYTES_PER_SECOND = 100_000_000
"""Weights read from a volume: below the 125 MiB/s that the commonest network disk promises as its base (AWS
gp3)."""
DOWNLOAD_BYTES_PER_SECOND = 50_000_000
"""Weights fetched from a hub: less than half of a 1 Gbit/s link."""

STOP_SECONDS = 30
"""What the engine gets to end after the drain, before the kubelet kills it."""


def start_budget_seconds(weights_bytes: int, *, local: bool) -> int:
    """How long a start may take: a constant, and the weights over slow but honest rates.

    Weights from a hub are written to the cache first and read from there, so both times count.
    """
    seconds = START_CONSTANT_SECONDS + weights_bytes / VOLUME_BYTES_PER_SECOND
    if not local:
        seconds += weights_bytes / DOWNLOAD_BYTES_PER_SECOND
    return math.ceil(seconds)


def expected_start_seconds(weights_bytes: int, *, local: bool) -> float:
    """How long a start usually takes, until one was measured. The budget is for the slowest."""
    loading = start_budget_seconds(weights_bytes, local=local) - START_CONSTANT_SECONDS
    return float(TYPICAL_START_SECONDS + loading)


def drain_timeout_seconds(spec: LLMServiceSpec) -> int:
    """`spec.drain.timeout` in whole seconds, rounded up."""
    return math.ceil(parse_duration_seconds(spec.drain.timeout, field="spec.drain.timeout"))


def termination_grace_period_seconds(spec: LLMServiceSpec) -> int:
    """What the kubelet waits after SIGTERM: the drain, and the engine's own end."""
    return drain_timeout_seconds(spec) + STOP_SECONDS


def supervisor_config(
    identity: Identity, spec: LLMServiceSpec, plan: Plan, settings: RenderSettings, source: ModelSource
) -> str:
    """The JSON of LLMSERVICE_SUPERVISOR, as a pod's `env.value`.

    The revision is not known before the template is, since its name is the template's hash: it comes in by
    the kubelet's own expansion of `$(LLMSERVICE_REVISION)`, which reads the pod's label.
    """
    config: dict[str, Any] = {
        "schema": 1,
        "service": f"{identity.namespace}/{identity.name}",
        "engine": spec.engine.name,
        "engineVersion": plan.engine_version,
        "enginePort": HTTP_PORT,
        "supervisorPort": SUPERVISOR_PORT,
        "startBudgetSeconds": start_budget_seconds(plan.weights_bytes, local=source.local),
        "drainTimeoutSeconds": drain_timeout_seconds(spec),
        "drainMinimumSeconds": settings.drain_minimum_seconds,
        "hangSeconds": settings.hang_seconds,
        "memoryFailureHoldSeconds": settings.memory_failure_hold_seconds,
        "weightsBytes": plan.weights_bytes,
    }
    if source.local:
        config["modelPath"] = source.location
    if plan.resource_name:
        config["expectedDevice"] = {
            "type": plan.accelerator.name,
            "nameContains": list(plan.accelerator.device_name_contains),
            "memoryBytes": plan.accelerator.memory_bytes,
            "count": plan.accelerators_per_replica,
        }
    text = literal(json.dumps(config, separators=(",", ":")))
    return f'{text[:-1]},"revision":"$({REVISION_VARIABLE})"}}'


def literal(text: str) -> str:
    """The text as it must stand in a container's `args` or `env.value` to arrive as it is.

    Kubernetes expands `$(NAME)` there, and reads `$$(` as a plain `$(`.
    """
    return text.replace("$(", "$$(")
