"""`status` of an LLMService: what the operator says.

It is written whole, by one writer. It holds timestamps, never ages, so that it changes only when something
does.
"""

from datetime import datetime

from pydantic import Field

from llmservice_operator.api.base import StatusModel
from llmservice_operator.api.conditions import Condition
from llmservice_operator.api.status_scaling import ScalingStatus
from llmservice_operator.api.wording import Sentence, Sentences, Words


class KnobsStatus(StatusModel):
    """The engine's settings that memory and speed depend on. Absent: left to the engine's own rules."""

    max_model_len: int = Field(ge=0)
    """Tokens that one request may hold, prompt and answer together (--max-model-len)."""
    gpu_memory_utilization: float | None = None
    """Fraction of the accelerator's memory that the engine may use (--gpu-memory-utilization)."""
    max_num_seqs: int = Field(ge=0)
    """Requests that run at once, at most (--max-num-seqs)."""
    max_num_batched_tokens: int = Field(ge=0)
    """Tokens of one step, at most (--max-num-batched-tokens)."""
    kv_cache_dtype: str = Field(default="auto", max_length=64)
    """Number format of the KV cache (--kv-cache-dtype)."""
    block_size: int | None = None
    """Tokens in a block of the KV cache (--block-size)."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """Accelerators that one replica is spread over (--tensor-parallel-size)."""
    kv_cache_bytes: int | None = None
    """Size of the KV cache on the `cpu` row (VLLM_CPU_KVCACHE_SPACE)."""


class MemoryTermStatus(StatusModel):
    """One line of the plan's memory account, for one accelerator (for the container, on the `cpu` row)."""

    name: str = Field(max_length=63)
    """weights, activation, non_torch, cuda_graphs, kv_cache, margin, ..."""
    size_bytes: int
    """Planned size in bytes."""
    explanation: Sentence = ""
    """The arithmetic, in words and numbers."""


class PlanSpeedStatus(StatusModel):
    """Speed that is expected of one replica while as many requests run as it holds. Waiting before is not in it."""

    input_tokens: int = Field(ge=0)
    """Median length of prompts that this is for."""
    output_tokens: int = Field(ge=0)
    """Median length of answers that this is for."""
    batch: int = Field(ge=0)
    """Requests that run at once."""
    ttft_seconds: float = Field(ge=0)
    """Time to the first token of a median prompt."""
    ttft_p95_seconds: float = Field(ge=0)
    """Time to the first token of a prompt of p95 length."""
    tpot_seconds: float = Field(ge=0)
    """Time per output token."""
    tpot_p95_seconds: float = Field(ge=0)
    """Time per output token of all but 5 of 100 requests."""
    tokens_per_second: float = Field(ge=0)
    """Output tokens per second of the replica."""
    requests_per_second: float = Field(ge=0)
    """Above this rate a queue grows without end."""


class PlanStatus(StatusModel):
    """What runs, and why. Sizes are per accelerator unless said."""

    revision: str = Field(default="", max_length=253)
    """The ControllerRevision that holds this plan and the pod template made from it."""
    model_revision: str = Field(default="", max_length=128)
    """The commit that spec.model.revision resolved to, where the source has revisions."""
    engine_version: str = Field(default="", max_length=64)
    """The engine's version that the plan is made for; empty: not known, the newest known rules are used."""
    accelerator: str = Field(max_length=63)
    """The row of the catalogue: nvidia-h200, cpu, ..."""
    accelerators_per_replica: int = Field(ge=0)
    """Accelerators that one replica takes."""
    resource_name: str = Field(default="", max_length=253)
    """The countable resource that a pod asks for; empty on the `cpu` row."""
    knobs: KnobsStatus
    """The engine's settings."""
    memory: tuple[MemoryTermStatus, ...] = Field(default=(), max_length=16)
    """Where the memory goes."""
    total_bytes: int = Field(ge=0)
    """Memory of one accelerator."""
    requested_bytes: int = Field(ge=0)
    """What the engine may use of it."""
    weights_bytes: int = Field(default=0, ge=0)
    """The whole model's weights, over all ranks."""
    kv_cache_tokens: int = Field(ge=0)
    """Tokens that the KV cache of one replica holds."""
    max_concurrency: float = Field(ge=0)
    """Requests of maxModelLen tokens that fit at once."""
    headroom_bytes: int | None = None
    """KV cache beyond what workload.context.min and workload.concurrency.min need."""
    speed: PlanSpeedStatus | None = None
    """Speed that is expected at the workload."""
    bottleneck: str = Field(default="", max_length=63)
    """What is expected to bound a full replica: Compute, MemoryBandwidth, KVCapacity or Host."""
    missed: Sentences = ()
    """Objectives of spec.slo that the prediction does not keep, and by how much."""
    reasons: Sentences = ()
    """Why the settings are what they are."""
    warnings: Sentences = ()
    """What is allowed and worth knowing."""


class MemoryComparison(StatusModel):
    """One term of memory, as planned and as the engine reported it."""

    name: str = Field(max_length=63)
    """The plan's name of the term."""
    planned_bytes: int | None = None
    """What the plan said."""
    actual_bytes: int | None = None
    """What the engine said."""
    error_percent: float | None = None
    """100 * (planned - actual) / actual: above 0, the plan was careful."""


class StartPhase(StatusModel):
    """One phase of a start."""

    name: str = Field(max_length=63)
    """import, load, compile, profile, capture, warmup."""
    seconds: float = Field(ge=0)
    """How long it took."""


class DeviceStatus(StatusModel):
    """One device as the engine's pod sees it."""

    name: str = Field(default="", max_length=128)
    """The device's own name."""
    memory_bytes: int | None = None
    """Its memory."""


class EngineStatus(StatusModel):
    """What the engine reported when it last became ready."""

    name: str = Field(default="vllm", max_length=63)
    """The engine's name."""
    version: str = Field(default="", max_length=64)
    """The version that it reported."""
    version_known: bool = False
    """Whether its log lines and rules are known by this release."""
    revision: str = Field(default="", max_length=253)
    """The revision that the report is of."""
    reported_at: datetime | None = None
    """When the report was taken."""
    max_model_len: int | None = None
    """Tokens that one request may hold, as the engine settled it."""
    kv_cache_tokens: int | None = None
    """Tokens that the KV cache holds."""
    max_concurrency: float | None = None
    """Requests of full length that fit at once."""
    memory: tuple[MemoryComparison, ...] = Field(default=(), max_length=16)
    """Plan and report, side by side."""
    start: tuple[StartPhase, ...] = Field(default=(), max_length=16)
    """The start by phase."""
    devices: tuple[DeviceStatus, ...] = Field(default=(), max_length=16)
    """The devices of one replica."""


class WeightsProgress(StatusModel):
    """How far the weights are read."""

    total_bytes: int = Field(ge=0)
    """All of them."""
    loaded_bytes: int = Field(ge=0)
    """Read so far."""
    bytes_per_second: float | None = None
    """At this rate."""
    expected_at: datetime | None = None
    """When the rest will be read, at this rate."""


class RevisionStarts(StatusModel):
    """How often an engine was started for one revision, and whether one reported."""

    revision: str = Field(min_length=1, max_length=253)
    """The revision."""
    starts: int = Field(default=0, ge=0)
    """Starts that failed for memory; at two nothing is left to try."""
    proven: bool = False
    """True: an engine of this revision became ready."""
    corrected: bool = False
    """True: the plan of this revision was itself corrected from a failed start."""


class StartStatus(StatusModel):
    """A start that is under way, and the count of starts."""

    pod: str = Field(default="", max_length=253)
    """The pod that is furthest; empty: none starts."""
    step: str = Field(default="", max_length=63)
    """import, load, compile, profile, capture, warmup or serving."""
    since: datetime | None = None
    """When that pod's engine was started."""
    weights: WeightsProgress | None = None
    """Progress of the load."""
    revisions: tuple[RevisionStarts, ...] = Field(
        default=(),
        max_length=6,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["revision"]},
    )
    """Starts by revision, newest last."""


class FailureStatus(StatusModel):
    """How an engine last ended, in its own words."""

    failure_class: str = Field(alias="class", max_length=63)
    """KvCacheTooSmall, OutOfMemory, ModelNotFound, ...: also a reason of conditions."""
    message: Words = ""
    """The engine's own words."""
    stage: str = Field(default="", max_length=63)
    """import, load, profile, warmup, capture, serving or stop."""
    exit_code: int | None = None
    """The engine's exit code."""
    signal: int | None = None
    """The signal that ended it."""
    pod: str = Field(default="", max_length=253)
    """The pod it happened in."""
    revision: str = Field(default="", max_length=253)
    """The revision of that pod."""
    at: datetime | None = None
    """When it happened."""
    restarts: int | None = None
    """Restarts of that pod's engine so far."""
    estimated_max_model_len: int | None = None
    """The length that would fit, by the engine's own estimate."""
    kv_cache_needed_bytes: int | None = None
    """KV cache that one request of full length needs."""
    kv_cache_available_bytes: int | None = None
    """KV cache that there was."""


class LLMServiceStatus(StatusModel):
    """What the operator says of the service."""

    observed_generation: int = Field(default=0, ge=0)
    """metadata.generation that this status was written for."""
    replicas: int = Field(default=0, ge=0)
    """Pods that exist and are not on their way out."""
    ready_replicas: int = Field(default=0, ge=0)
    """Pods that answer requests."""
    desired_replicas: int = Field(default=0, ge=0)
    """Replicas wanted now."""
    selector: str = Field(default="", max_length=512)
    """Label selector of the pods, for the scale subresource."""
    address: str = Field(default="", max_length=512)
    """Base URL of the OpenAI-compatible API inside the cluster."""
    plan: PlanStatus | None = None
    """What runs, and why."""
    engine: EngineStatus | None = None
    """What the engine reported, beside the plan."""
    start: StartStatus | None = None
    """A start that is under way."""
    last_failure: FailureStatus | None = None
    """How an engine last ended before its time."""
    scaling: ScalingStatus | None = None
    """How many replicas the operator wants, and what that rests on. Told with spec.scaling or spec.slo."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """The state in the words of conditions; `kubectl wait --for=condition=Ready` works."""
