"""The engine's settings as an estimate takes them, and where each is from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmservice_operator.engines.defaults import EntryPoint
from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.drafting import DRAFTS_WITHOUT_WEIGHTS
from llmservice_operator.perfmodel.quantization import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How one engine is spread over accelerators."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False
    """`--enable-expert-parallel`: experts are spread whole."""
    context: int = 1
    """`--decode-context-parallel-size`: ranks that share out a request's tokens."""
    layers: tuple[int, ...] = ()
    """VLLM_PP_LAYER_PARTITION: layers of each pipeline stage; empty: even."""

    @property
    def ranks(self) -> int:
        """Accelerators of one engine."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How tokens are drafted; no method: they aren't."""

    method: str = ""
    tokens: int = 0
    drafting_layers: int = 0
    """Attention layers beside the model's own that keep a cache (multi-token prediction, EAGLE)."""

    @property
    def has_weights(self) -> bool:
        """Whether it brings weights: looking up n-grams or suffixes brings none."""
        return bool(self.method) and self.method not in DRAFTS_WITHOUT_WEIGHTS

    @property
    def predicts(self) -> bool:
        """Whether the checkpoint's own prediction layers draft."""
        return self.method.endswith("mtp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captures:
    """Batch sizes that CUDA graphs are captured for."""

    sizes: tuple[int, ...] = ()
    """Those that a flag names; empty: the engine's own up to `largest`."""
    largest: int = 0
    """0: none are captured."""
    piecewise: bool = True
    full: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSlots:
    """Room for adapters; 0: none."""

    slots: int = 0
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting that memory and speed depend on, and where each is from."""

    version: Version
    entry_point: EntryPoint
    card: AcceleratorRow
    quantization: Quantization
    parallel: Parallel
    speculation: Speculation
    captures: Captures
    lora: LoraSlots
    dtype: str
    kv_cache_dtype: str
    """Resolved: `auto` only where it is the model's dtype."""
    max_model_len: int
    """0: the engine takes the longest that fits (`--max-model-len auto`)."""
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    block_size: int
    prefix_caching: bool
    enforce_eager: bool
    batches_in_flight: int
    v2: bool
    """Whether model runner V2 runs the model."""
    kv_cache_bytes: int | None = None
    """`--kv-cache-memory-bytes`, or VLLM_CPU_KVCACHE_SPACE."""
    blocks_override: int | None = None
    cpu_offload_bytes: int = 0
    multimodal: bool = True
    encoder_profiled: bool = True
    """Whether profiling runs the encoder (not with `--skip-mm-profiling`)."""
    frontend_bytes: int = 0
    """`--mm-ipc-gpu-memory-gb`: taken off the pool for the API server."""
    state_dtype: str = ""
    window_as_full: bool = False
    """`--disable-sliding-window`, `--disable-hybrid-kv-cache-manager`: windows keep the whole context."""
    flashinfer_sampler: bool = True
    graphs_charged: bool | None = None
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS; None: the version's rule."""
    compiles: bool = True
    """Not with TORCH_COMPILE_DISABLE=1."""
    weights_share: float = 1.0
    """By what the shapes' bytes are multiplied, since the checkpoint has clearly more."""
    weights_told: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting → where its value is from."""
    notes: tuple[str, ...] = ()
