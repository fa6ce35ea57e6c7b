"""What a plan is made from and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.calibration import NOTHING_KNOWN, Calibration
from llmservice_operator.perfmodel.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class NodeAccelerators:
    """What one node offers: its allocatable amounts by resource name, and its labels."""

    node_name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    """Countable resources by name, such as `nvidia.com/gpu`; `cpu` in cores and `memory` in bytes too."""
    free: Mapping[str, int] | None = None
    """Of `allocatable` what no pod that is known of asks for; None: not known, all of it counts as free."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known of the checkpoint before it is loaded."""

    config: Mapping[str, Any]
    """The model's config.json, with hf_quant_config.json under `quantization_config` where that is apart."""
    weights_bytes: int | None = None
    """Bytes of the checkpoint's safetensors, where they are known: of their headers, else of their index or sizes."""
    checkpoint: Checkpoint | None = None
    """The tensors that the headers list, where they could be read."""
    weights_problem: str = ""
    """What stands against `weights_bytes`, for the plan's warnings."""
    source: str = ""
    """Where the config came from, for the explanation: `ConfigMap ns/name`, `hub org/name@commit`, a path."""
    revision: str | None = None
    """The commit that the named revision resolved to, where the source has revisions."""


@dataclass(frozen=True, kw_only=True)
class MemoryCorrection:
    """What the engine said when its start failed for memory; the next plan obeys it once."""

    estimated_max_model_len: int | None = None
    kv_cache_available_bytes: int | None = None
    failure_class: str = ""
    stage: str = ""
    message: str = ""
    accelerator: str = ""
    """The row that the failed plan was for, and how many of its cards; figures bind plans for the same only."""
    accelerators: int = 0
    device_total_bytes: int | None = None
    """Memory of a card, as the failed start found it."""
    device_others_bytes: int | None = None
    """What other processes held of it."""
    weights_bytes: int | None = None
    """Weights of one rank, once they were loaded."""
    weights_at_least_bytes: int | None = None
    """What a load had come to, with the piece that no room was left for."""
    missing_bytes: int | None = None
    """By how much the allocation that failed was too large."""
    planned_cache_bytes: int | None = None
    """The KV cache that the failed plan gave, on the CPU row."""


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """Everything a plan depends on. `nodes` is None where the operator may not see nodes (namespaced mode)."""

    service_name: str
    spec: LLMServiceSpec
    model: ModelFacts | None
    catalogue: tuple[AcceleratorRow, ...]
    nodes: tuple[NodeAccelerators, ...] | None
    engine_version: str
    """The version as told by `engine.version` or the image's tag; empty: unknown, the newest known rules apply."""
    correction: MemoryCorrection | None = None
    current_accelerator: str = ""
    """The row that the service runs on, where it does. It is kept as long as it may be used and fits: a cheaper one
    that has become visible is no reason to move."""
    current_resource: str = ""
    """The resource that its pods ask for: whole cards, or slices of one profile."""
    calibration: Calibration = NOTHING_KNOWN
    """What earlier starts have measured, by situation."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The engine's settings that memory and speed depend on. None: not passed, the engine's own default rules."""

    max_model_len: int
    gpu_memory_utilization: float | None
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_dtype: str
    block_size: int | None
    tensor_parallel_size: int
    kv_cache_bytes: int | None = None
    """CPU engine only: the KV cache's size, passed as VLLM_CPU_KVCACHE_SPACE or --kv-cache-memory-bytes."""


@dataclass(frozen=True, kw_only=True)
class MemoryTerm:
    """One line of the memory account of one accelerator (or of the container, on the CPU row)."""

    name: str
    """`weights`, `activation`, `non_torch`, `cuda_graphs`, `kv_cache`, `margin`, ..."""
    size_bytes: int
    explanation: str
    """The arithmetic in words and numbers, with its source."""


@dataclass(frozen=True, kw_only=True)
class SpeedFlags:
    """What the user's words change of an engine's speed beside its knobs."""

    quantization: str = ""
    """By which the engine quantises weights while it loads them; empty: they are as the checkpoint has them."""
    dtype: str = ""
    """Of what isn't quantised; empty: the model's own."""
    enforce_eager: bool = False
    """Steps run without CUDA graphs."""


@dataclass(frozen=True, kw_only=True)
class PlannedSpeed:
    """Speed that is expected of one replica at the workload, while as many requests run as it holds."""

    input_tokens: int
    """Median length of prompts that this is for."""
    input_p95_tokens: int
    output_tokens: int
    assumed: bool
    """Whether the lengths are assumed, since the workload says none."""
    batch: int
    """Requests that run at once."""
    ttft_seconds: float
    """Of a median prompt, from when it is let in."""
    ttft_p95_seconds: float
    tpot_seconds: float
    """Mean over a request."""
    tpot_p95_seconds: float
    itl_seconds: float
    """Of a step without a prompt."""
    tokens_per_second: float
    """Output tokens of the replica."""
    requests_per_second: float
    """Above this rate a queue grows without end."""
    prefill_regime: str
    """`compute-bound`, `memory-bound` or `overhead-bound`."""
    decode_regime: str
    bottleneck: str
    """`Compute`, `MemoryBandwidth`, `KVCapacity` or `Host`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What runs, and why. Sizes are per accelerator unless said."""

    accelerator: AcceleratorRow
    accelerators_per_replica: int
    resource_name: str
    """The countable resource to ask for; empty on the CPU row."""
    knobs: Knobs
    memory: tuple[MemoryTerm, ...]
    total_bytes: int
    requested_bytes: int
    kv_cache_tokens: int
    max_concurrency: float
    """Requests of max_model_len tokens that fit at once."""
    weights_bytes: int
    """Of the whole model, all ranks."""
    host_memory_bytes: int
    """Memory to request for the container; on the CPU row also its limit."""
    host_memory_limited: bool
    host_cpu_cores: int
    shm_bytes: int
    engine_version: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the plan itself needs (VLLM_CPU_KVCACHE_SPACE, ...)."""
    engine_args: tuple[tuple[str, str], ...] = ()
    """Further flags the plan itself needs, as in spec.engine.args: (flag, value); `true` is a bare switch."""
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    speed: PlannedSpeed | None = None
    """None: a plan of an earlier release."""
    headroom_bytes: int | None = None
    """KV cache beyond what context.min and concurrency.min need."""
    missed: tuple[str, ...] = ()
    """Objectives of spec.slo that the prediction doesn't keep, each with by how much and why; warnings too."""
    calibration_key: str = ""
    """The situation that a report on this plan is a measurement of; empty: none is kept."""
    calibrated: tuple[tuple[str, int], ...] = ()
    """By how many bytes terms were changed for what earlier starts measured; `other` is in `non_torch`."""
    speed_flags: SpeedFlags = SpeedFlags()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why there is no plan. `reason` is the condition's reason; `certain` tells "cannot" from "cannot know yet"."""

    reason: str
    message: str
    certain: bool
    """True: Planned=False and Stalled=True. False: Planned=Unknown, it is tried again."""
    shortfall_bytes: int | None = None
