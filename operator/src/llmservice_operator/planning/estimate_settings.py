"""The engine's settings as it resolves them: what flags and environment say, else its own defaults."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmservice_operator.engines.defaults import (
    EntryPoint,
    batch_defaults,
    batches_in_flight,
    largest_capture,
    runs_on_v0,
    utilization,
)
from llmservice_operator.engines.versions import (
    Version,
    caches_prefixes_of_hybrids,
    gpu_block_size,
    runs_on_v2,
)
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.formats import auto_dtype
from llmservice_operator.perfmodel.kv_cache import CPU_BLOCK_SIZE, element_bytes
from llmservice_operator.perfmodel.quantization import Quantization, online_quantization
from llmservice_operator.perfmodel.shapes import Architecture

DRAFTS_WITHOUT_WEIGHTS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods of speculation that load nothing (config/speculative.py)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting that memory and speed depend on, and where each is from."""

    version: Version
    entry_point: EntryPoint
    card: AcceleratorRow
    quantization: Quantization
    dtype: str
    kv_cache_dtype: str
    """Resolved: `auto` only where it is the model's dtype."""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel: bool
    max_model_len: int
    """0: the engine takes the longest that fits (`--max-model-len auto`)."""
    max_num_seqs: int
    max_num_batched_tokens: int
    utilization: float
    block_size: int
    prefix_caching: bool
    enforce_eager: bool
    captures: tuple[int, ...] = ()
    """Batch sizes of CUDA graphs that a flag names; empty: the engine's own up to `largest_capture`."""
    largest_capture: int = 0
    batches_in_flight: int = 2
    kv_cache_bytes: int | None = None
    """`--kv-cache-memory-bytes`, or VLLM_CPU_KVCACHE_SPACE."""
    blocks_override: int | None = None
    cpu_offload_bytes: int = 0
    multimodal: bool = True
    max_loras: int = 0
    max_lora_rank: int = 0
    speculative_method: str = ""
    speculative_tokens: int = 0
    drafting_layers: int = 0
    """Attention layers beside the model's own that keep a cache (multi-token prediction, EAGLE)."""
    context_parallel_size: int = 1
    """`--decode-context-parallel-size`: ranks that share out a request's tokens."""
    layer_partition: tuple[int, ...] = ()
    """VLLM_PP_LAYER_PARTITION: layers of each pipeline stage."""
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
    v2: bool = False
    weights_share: float = 1.0
    """By what the shapes' bytes are multiplied, since the checkpoint has clearly more."""
    weights_told: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Setting → where its value is from."""
    notes: tuple[str, ...] = ()

    @property
    def draft_weights(self) -> bool:
        """Whether speculation brings weights: looking up n-grams or suffixes brings none."""
        return bool(self.speculative_tokens) and self.speculative_method not in DRAFTS_WITHOUT_WEIGHTS

    @property
    def ranks(self) -> int:
        """Accelerators of one engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


@dataclass(frozen=True, kw_only=True)
class Resolver:
    """Flags and environment, and what they are read against."""

    flags: Mapping[str, Any]
    env: Mapping[str, str]
    version: Version
    entry_point: EntryPoint
    card: AcceleratorRow
    model: Architecture
    quantization: Quantization

    def resolve(self) -> Settings:
        """All settings. Raises InvalidInputError for a value that contradicts another."""
        flags, notes = self.flags, list[str]()
        sources: dict[str, str] = {}
        tensor = flags.get("tensor_parallel_size", 1)
        pipeline = flags.get("pipeline_parallel_size", 1)
        length = self._max_model_len(sources, notes)
        tokens, seqs = self._batch(length or self.model.max_model_len, tensor * pipeline, sources, notes)
        quantization = self._quantization(notes)
        speculative_tokens, method = self._speculation()
        eager = self._eager()
        captures = self._captures(tokens)
        v2 = self._v2()
        lora = flags.get("enable_lora", False)
        return Settings(
            version=self.version,
            entry_point=self.entry_point,
            card=self.card,
            quantization=quantization,
            dtype=self._dtype(sources),
            kv_cache_dtype=self._kv_cache_dtype(quantization, sources),
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            data_parallel_size=flags.get("data_parallel_size", 1),
            expert_parallel=flags.get("enable_expert_parallel", False),
            max_model_len=length,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            utilization=self._utilization(sources),
            block_size=self._block_size(sources),
            prefix_caching=self._prefix_caching(sources),
            enforce_eager=eager,
            captures=() if eager else captures,
            largest_capture=0 if eager else self._largest_capture(captures, seqs, tokens, speculative_tokens),
            batches_in_flight=batches_in_flight(
                self.version,
                asynchronous=flags.get("async_scheduling", True) and not self.card.is_cpu,
                pipeline_parallel_size=pipeline,
                v2=v2,
            ),
            kv_cache_bytes=self._kv_cache_bytes(),
            blocks_override=flags.get("num_gpu_blocks_override"),
            cpu_offload_bytes=int(flags.get("cpu_offload_gb", 0) * (1 << 30)),
            multimodal=self._multimodal(),
            max_loras=flags.get("max_loras", 1) if lora else 0,
            max_lora_rank=flags.get("max_lora_rank", 16) if lora else 0,
            speculative_method=method,
            speculative_tokens=speculative_tokens,
            drafting_layers=self._drafting_layers(method),
            context_parallel_size=flags.get("decode_context_parallel_size", 1),
            layer_partition=self._layer_partition(),
            encoder_profiled=not flags.get("skip_mm_profiling", False),
            frontend_bytes=int(flags.get("mm_ipc_gpu_memory_gb", 0) * (1 << 30)),
            state_dtype=self._state_dtype(),
            window_as_full=flags.get("disable_sliding_window", False)
            or flags.get("disable_hybrid_kv_cache_manager", False),
            flashinfer_sampler=self.env.get("VLLM_USE_FLASHINFER_SAMPLER", "1") != "0",
            graphs_charged=self._graphs_charged(),
            v2=v2,
            sources=sources,
            notes=tuple(notes),
        )

    def _max_model_len(self, sources: dict[str, str], notes: list[str]) -> int:
        given = self.flags.get("max_model_len")
        longest = self.model.max_model_len
        if given is None:
            sources["max_model_len"] = "config.json"
            return longest
        if given < 0:
            sources["max_model_len"] = "auto: the longest that fits"
            return 0
        sources["max_model_len"] = "--set"
        if given > longest and self.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
            notes.append(
                f"max_model_len is {given:,}, above the {longest:,} that config.json allows: the engine refuses it "
                "unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
            )
        return int(given)

    def _batch(self, length: int, ranks: int, sources: dict[str, str], notes: list[str]) -> tuple[int, int]:
        """Batch knobs. Defaults follow `_set_default_max_num_seqs_and_batched_tokens_args`."""
        tier = batch_defaults(self.version, self.card, self.entry_point, ranks=ranks)
        double = 2 if self.flags.get("performance_mode") == "throughput" else 1
        tokens, seqs = self.flags.get("max_num_batched_tokens"), self.flags.get("max_num_seqs")
        caller = "vllm serve" if self.entry_point == "server" else "the class LLM"
        told = f"vLLM's default for {tier.tier}, {caller}"
        sources["max_num_batched_tokens"] = "--set" if tokens else told
        sources["max_num_seqs"] = "--set" if seqs else told
        given_seqs = seqs
        seqs = seqs or tier.seqs * double
        if tokens is None:
            tokens = tier.tokens * double
            if runs_on_v0(self.version, self.card):
                tokens, seqs = (2048 if length > 32768 else max(length, 2048)), given_seqs or 256
            elif self.flags.get("enable_chunked_prefill") is False:
                tokens = max(length, tokens)
            tokens = min(seqs * length, tokens)
        if given_seqs is None:
            seqs = min(seqs, tokens)
        if tokens < seqs:
            notes.append(
                f"max_num_batched_tokens ({tokens}) is below max_num_seqs ({seqs}): the engine refuses that"
            )
        return tokens, seqs

    def _quantization(self, notes: list[str]) -> Quantization:
        said = self.flags.get("quantization")
        if said is None or said == "auto":
            return self.quantization
        if self.quantization.method:
            if said.split("-")[0].split("_")[0] not in self.quantization.method:
                notes.append(
                    f"quantization is {said}, the checkpoint's is {self.quantization.method}: "
                    "the checkpoint's counts"
                )
            return self.quantization
        online = online_quantization(said)
        if online is None:
            raise InvalidInputError(
                f"--set quantization={said}: config.json has no quantization_config, so the checkpoint isn't "
                "quantised; leave it out, or use fp8, which quantises while loading"
            )
        return online

    def _dtype(self, sources: dict[str, str]) -> str:
        said = self.flags.get("dtype", "auto")
        if said != "auto":
            sources["dtype"] = "--set"
            return str(said)
        if self.card.is_cpu:
            sources["dtype"] = "config.json"
            return self.model.dtype
        dtype = auto_dtype(self.card, self.model.dtype, self.version)
        same = dtype == self.model.dtype
        sources["dtype"] = (
            "config.json" if same else f"what auto makes of the checkpoint's {self.model.dtype} here"
        )
        return dtype

    def _kv_cache_dtype(self, quantization: Quantization, sources: dict[str, str]) -> str:
        said = str(self.flags.get("kv_cache_dtype", "auto"))
        try:
            element_bytes(said, "bfloat16")
        except KeyError:
            raise InvalidInputError(
                f"--set kv_cache_dtype={said}: its size isn't known; auto, bfloat16, float16, fp8, fp8_e4m3, "
                "fp8_e5m2, int8_per_token_head, fp8_per_token_head or nvfp4 is expected"
            ) from None
        if said != "auto":
            sources["kv_cache_dtype"] = "--set"
            return said
        sources["kv_cache_dtype"] = (
            "what the checkpoint asks for" if quantization.kv_cache_dtype else "the model's dtype"
        )
        return quantization.kv_cache_dtype or "auto"

    def _utilization(self, sources: dict[str, str]) -> float:
        given = self.flags.get("gpu_memory_utilization")
        told = ".".join(str(part) for part in self.version)
        sources["gpu_memory_utilization"] = "--set" if given is not None else f"vLLM {told}'s default"
        return float(given if given is not None else utilization(self.version))

    def _block_size(self, sources: dict[str, str]) -> int:
        given = self.flags.get("block_size")
        sources["block_size"] = "--set" if given else "vLLM's default for the attention backend"
        if given:
            return int(given)
        if self.card.is_cpu:
            return CPU_BLOCK_SIZE
        return gpu_block_size(self.version, self.model, self.card.compute_capability)

    def _prefix_caching(self, sources: dict[str, str]) -> bool:
        given = self.flags.get("enable_prefix_caching")
        sources["enable_prefix_caching"] = "--set" if given is not None else "vLLM's default"
        if given is not None:
            return bool(given)
        return caches_prefixes_of_hybrids(self.version) or not self.model.has_state

    def _eager(self) -> bool:
        level = str(self.flags.get("optimization_level", "")).removeprefix("O")
        mode = self.flags.get("compilation_config", {}).get("cudagraph_mode")
        return bool(self.flags.get("enforce_eager")) or level == "0" or mode in {"NONE", 0}

    def _captures(self, tokens: int) -> tuple[int, ...]:
        nested = self.flags.get("compilation_config", {}).get("cudagraph_capture_sizes")
        sizes = (
            self.flags.get("cudagraph_capture_sizes") or self.flags.get("cuda_graph_sizes") or nested or ()
        )
        if not isinstance(sizes, list | tuple) or not all(isinstance(each, int) for each in sizes):
            raise InvalidInputError(
                f"--set compilation_config.cudagraph_capture_sizes={sizes!r}: a list of whole numbers is expected"
            )
        return tuple(sorted(each for each in set(sizes) if 0 < each <= tokens))

    def _largest_capture(
        self, captures: tuple[int, ...], seqs: int, tokens: int, speculative_tokens: int
    ) -> int:
        if captures:
            return captures[-1]
        nested = self.flags.get("compilation_config", {}).get("max_cudagraph_capture_size")
        given = self.flags.get("max_cudagraph_capture_size") or nested
        if isinstance(given, int) and given > 0:
            return min(given, tokens)
        return largest_capture(seqs=seqs, tokens=tokens, speculative_tokens=speculative_tokens)

    def _kv_cache_bytes(self) -> int | None:
        given: int | None = self.flags.get("kv_cache_memory_bytes")
        space = self.env.get("VLLM_CPU_KVCACHE_SPACE")
        if not self.card.is_cpu or space is None:
            return given
        if not re.fullmatch(r"\d{1,6}", space):
            raise InvalidInputError(
                f"--env VLLM_CPU_KVCACHE_SPACE={space[:40]}: whole GiB are expected, such as 4"
            )
        return int(space) << 30 or given

    def _multimodal(self) -> bool:
        limits = self.flags.get("limit_mm_per_prompt") or {}
        counts = [each.get("count", 1) if isinstance(each, dict) else each for each in limits.values()]
        none = bool(counts) and not any(counts)
        return not (self.flags.get("language_model_only") or none)

    def _speculation(self) -> tuple[int, str]:
        """Tokens and method of speculation; (0, ""): none."""
        config = self.flags.get("speculative_config") or {}
        method = str(config.get("method") or self.flags.get("spec_method") or "")
        model = config.get("model") or self.flags.get("spec_model")
        if not (method or model):
            return 0, ""
        tokens = config.get("num_speculative_tokens", self.flags.get("spec_tokens", 1))
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1024:
            raise InvalidInputError(
                f"--set speculative_config.num_speculative_tokens={tokens!r}: a whole number of 1 to 1,024 is expected"
            )
        return tokens, method or "draft_model"

    def _drafting_layers(self, method: str) -> int:
        """Layers of the checkpoint's own prediction, or EAGLE's one; a draft model's own config isn't read."""
        if method.endswith("mtp"):
            return max(1, self.model.num_mtp_layers)
        return 1 if method.startswith("eagle") else 0

    def _layer_partition(self) -> tuple[int, ...]:
        said = self.env.get("VLLM_PP_LAYER_PARTITION", "")
        if said and not re.fullmatch(r"\d{1,4}(,\d{1,4})*", said):
            raise InvalidInputError(
                f"--env VLLM_PP_LAYER_PARTITION={said[:40]}: numbers of layers are expected, such as 16,16"
            )
        return tuple(int(each) for each in said.split(",")) if said else ()

    def _state_dtype(self) -> str:
        said = self.flags.get("mamba_ssm_cache_dtype", "auto")
        return "" if said == "auto" else str(said)

    def _graphs_charged(self) -> bool | None:
        said = self.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
        return None if said is None else said == "1"

    def _v2(self) -> bool:
        said = self.env.get("VLLM_USE_V2_MODEL_RUNNER")
        return said == "1" if said in {"0", "1"} else runs_on_v2(self.version, self.model)
