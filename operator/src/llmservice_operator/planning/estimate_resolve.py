"""From flags and environment to the engine's settings; what isn't set is what this version of vLLM takes by itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llmservice_operator.engines.defaults import (
    EntryPoint,
    batch_defaults,
    batches_in_flight,
    drops_v2,
    full_graphs_by_default,
    runs_on_v0,
    utilization,
)
from llmservice_operator.engines.flags import allows_no_items
from llmservice_operator.engines.versions import (
    Version,
    caches_prefixes_of_hybrids,
    gpu_block_size,
    runs_on_v2,
)
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.capture import capture_rule
from llmservice_operator.perfmodel.drafting import drafting_layers
from llmservice_operator.perfmodel.formats import auto_dtype
from llmservice_operator.perfmodel.kv_cache import CPU_BLOCK_SIZE, element_bytes
from llmservice_operator.perfmodel.quantization import Quantization, online_quantization
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.planning.estimate_settings import (
    Captures,
    LoraSlots,
    Parallel,
    Settings,
    Speculation,
)

SET = "--set"
"""Where a value is from that was given."""
GRAPH_MODES = {
    "NONE": (False, False),
    "PIECEWISE": (True, False),
    "FULL": (False, True),
    "FULL_DECODE_ONLY": (False, True),
    "FULL_AND_PIECEWISE": (True, True),
}
"""cudagraph_mode → whether piecewise graphs and full ones are captured."""
WINDOWS_OFF = ("disable_sliding_window", "disable_hybrid_kv_cache_manager")
"""Flags with which a window keeps the whole context."""


@dataclass(frozen=True, kw_only=True)
class Resolver:
    """Flags and environment, what they are read against, and what is found out on the way."""

    flags: Mapping[str, Any]
    env: Mapping[str, str]
    version: Version
    entry_point: EntryPoint
    card: AcceleratorRow
    model: Architecture
    quantization: Quantization
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def resolve(self) -> Settings:
        """All settings. Raises InvalidInputError for a value that contradicts another."""
        flags = self.flags
        parallel, speculation = self._parallel(), self._speculation()
        length = self._max_model_len()
        tokens, seqs = self._batch(length or self.model.max_model_len, parallel.ranks)
        quantization = self._quantization()
        v2 = self._v2(speculation, quantized=bool(quantization.method))
        return Settings(
            version=self.version,
            entry_point=self.entry_point,
            card=self.card,
            quantization=quantization,
            parallel=parallel,
            speculation=speculation,
            captures=self._captures(seqs, tokens, speculation),
            lora=self._lora(),
            dtype=self._dtype(),
            kv_cache_dtype=self._kv_cache_dtype(quantization),
            max_model_len=length,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            utilization=self._utilization(),
            block_size=self._block_size(),
            prefix_caching=self._prefix_caching(),
            enforce_eager=self._eager(),
            batches_in_flight=self._batches_in_flight(parallel, v2=v2),
            v2=v2,
            kv_cache_bytes=self._kv_cache_bytes(),
            blocks_override=flags.get("num_gpu_blocks_override"),
            cpu_offload_bytes=_gib(flags.get("cpu_offload_gb", 0)),
            multimodal=self._multimodal(),
            encoder_profiled=not flags.get("skip_mm_profiling", False),
            frontend_bytes=_gib(flags.get("mm_ipc_gpu_memory_gb", 0)),
            state_dtype=self._state_dtype(),
            window_as_full=any(flags.get(name) for name in WINDOWS_OFF),
            flashinfer_sampler=self.env.get("VLLM_USE_FLASHINFER_SAMPLER", "1") != "0",
            compiles=self.env.get("TORCH_COMPILE_DISABLE") != "1",
            graphs_charged=self._graphs_charged(),
            sources=self.sources,
            notes=tuple(self.notes),
        )

    def _parallel(self) -> Parallel:
        flags = self.flags
        return Parallel(
            tensor=flags.get("tensor_parallel_size", 1),
            pipeline=flags.get("pipeline_parallel_size", 1),
            data=flags.get("data_parallel_size", 1),
            experts=flags.get("enable_expert_parallel", False),
            context=flags.get("decode_context_parallel_size", 1),
            layers=self._layer_partition(),
        )

    def _lora(self) -> LoraSlots:
        if not self.flags.get("enable_lora", False):
            return LoraSlots()
        return LoraSlots(slots=self.flags.get("max_loras", 1), rank=self.flags.get("max_lora_rank", 16))

    def _batches_in_flight(self, parallel: Parallel, *, v2: bool) -> int:
        asynchronous = self.flags.get("async_scheduling", True) and not self.card.is_cpu
        return batches_in_flight(
            self.version, asynchronous=asynchronous, pipeline_parallel_size=parallel.pipeline, v2=v2
        )

    def _max_model_len(self) -> int:
        given = self.flags.get("max_model_len")
        longest = self.model.max_model_len
        if given is None:
            self.sources["max_model_len"] = "config.json"
            return longest
        if given < 0:
            self.sources["max_model_len"] = "auto: the longest that fits"
            return 0
        self.sources["max_model_len"] = SET
        if given > longest and self.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
            self.notes.append(
                f"max_model_len is {given:,}, above the {longest:,} that config.json allows: the engine refuses it "
                "unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
            )
        return int(given)

    def _batch(self, length: int, ranks: int) -> tuple[int, int]:
        """Batch knobs. Defaults follow `_set_default_max_num_seqs_and_batched_tokens_args`."""
        tier = batch_defaults(self.version, self.card, self.entry_point, ranks=ranks)
        double = 2 if self.flags.get("performance_mode") == "throughput" else 1
        tokens, seqs = self.flags.get("max_num_batched_tokens"), self.flags.get("max_num_seqs")
        caller = "vllm serve" if self.entry_point == "server" else "the class LLM"
        told = f"vLLM's default for {tier.tier}, {caller}"
        self.sources["max_num_batched_tokens"] = SET if tokens else told
        self.sources["max_num_seqs"] = SET if seqs else told
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
            self.notes.append(
                f"max_num_batched_tokens ({tokens}) is below max_num_seqs ({seqs}): the engine refuses that"
            )
        return tokens, seqs

    def _quantization(self) -> Quantization:
        said = self.flags.get("quantization")
        if said is None or said == "auto":
            return self.quantization
        if self.quantization.method:
            if said.split("-")[0].split("_")[0] not in self.quantization.method:
                self.notes.append(
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

    def _dtype(self) -> str:
        said = self.flags.get("dtype", "auto")
        if said != "auto":
            self.sources["dtype"] = SET
            return str(said)
        if self.card.is_cpu:
            self.sources["dtype"] = "config.json"
            return self.model.dtype
        dtype = auto_dtype(self.card, self.model.dtype, self.version)
        same = dtype == self.model.dtype
        self.sources["dtype"] = (
            "config.json" if same else f"what auto makes of the checkpoint's {self.model.dtype} here"
        )
        return dtype

    def _kv_cache_dtype(self, quantization: Quantization) -> str:
        said = str(self.flags.get("kv_cache_dtype", "auto"))
        try:
            element_bytes(said, "bfloat16")
        except KeyError:
            raise InvalidInputError(
                f"--set kv_cache_dtype={said}: its size isn't known; auto, bfloat16, float16, fp8, fp8_e4m3, "
                "fp8_e5m2, int8_per_token_head, fp8_per_token_head, int4_per_token_head, nvfp4, fp8_ds_mla or "
                "nvfp4_ds_mla is expected"
            ) from None
        if said != "auto":
            self.sources["kv_cache_dtype"] = SET
            return said
        self.sources["kv_cache_dtype"] = (
            "what the checkpoint asks for" if quantization.kv_cache_dtype else "the model's dtype"
        )
        return quantization.kv_cache_dtype or "auto"

    def _utilization(self) -> float:
        given = self.flags.get("gpu_memory_utilization")
        told = ".".join(str(part) for part in self.version)
        self.sources["gpu_memory_utilization"] = SET if given is not None else f"vLLM {told}'s default"
        return float(given if given is not None else utilization(self.version))

    def _block_size(self) -> int:
        given = self.flags.get("block_size")
        self.sources["block_size"] = SET if given else "vLLM's default for the attention backend"
        if given:
            return int(given)
        if self.card.is_cpu:
            return CPU_BLOCK_SIZE
        return gpu_block_size(self.version, self.model, self.card.compute_capability)

    def _prefix_caching(self) -> bool:
        given = self.flags.get("enable_prefix_caching")
        self.sources["enable_prefix_caching"] = SET if given is not None else "vLLM's default"
        if given is not None:
            return bool(given)
        return caches_prefixes_of_hybrids(self.version) or not self.model.has_state

    def _level(self) -> str:
        return str(self.flags.get("optimization_level", "")).removeprefix("O")

    def _eager(self) -> bool:
        return bool(self.flags.get("enforce_eager")) or self._level() == "0"

    def _graph_kinds(self) -> tuple[bool, bool]:
        """Whether piecewise graphs and full ones are captured (config/compilation.py, `cudagraph_mode`)."""
        full = full_graphs_by_default(self.version) and self._level() != "1"
        said = self.flags.get("compilation_config", {}).get("cudagraph_mode")
        if said is None:
            return True, full
        mode = str(said).upper().rpartition(".")[2]
        if mode not in GRAPH_MODES:
            raise InvalidInputError(
                f"--set compilation_config.cudagraph_mode={str(said)[:40]}: one of {', '.join(GRAPH_MODES)} is expected"
            )
        return GRAPH_MODES[mode]

    def _captures(self, seqs: int, tokens: int, speculation: Speculation) -> Captures:
        """Batch sizes of graphs (`_set_cudagraph_sizes`); those beyond the token budget are left out."""
        piecewise, full = self._graph_kinds()
        if self._eager() or not (piecewise or full):
            return Captures(piecewise=False, full=False)
        nested = self.flags.get("compilation_config", {})
        flags = (self.flags.get("cudagraph_capture_sizes"), self.flags.get("cuda_graph_sizes"))
        sizes = next((each for each in (*flags, nested.get("cudagraph_capture_sizes")) if each), ())
        if not isinstance(sizes, list | tuple) or not all(isinstance(each, int) for each in sizes):
            raise InvalidInputError(
                f"--set compilation_config.cudagraph_capture_sizes={sizes!r}: a list of whole numbers is expected"
            )
        kept = tuple(sorted(each for each in set(sizes) if 0 < each <= tokens))
        if kept:
            return Captures(sizes=kept, largest=kept[-1], piecewise=piecewise, full=full)
        given = self.flags.get("max_cudagraph_capture_size") or nested.get("max_cudagraph_capture_size")
        if isinstance(given, int) and given > 0:
            return Captures(largest=min(given, tokens), piecewise=piecewise, full=full)
        rule = capture_rule(
            self.quantization, engine_version=self.version, compute_capability=self.card.compute_capability
        )
        largest = rule.largest_tokens(
            max_num_seqs=seqs, max_num_batched_tokens=tokens, speculative_tokens=speculation.tokens
        )
        return Captures(largest=largest, piecewise=piecewise, full=full)

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
        return not (self.flags.get("language_model_only") or allows_no_items(limits))

    def _speculation(self) -> Speculation:
        config = self.flags.get("speculative_config") or {}
        method = str(config.get("method") or self.flags.get("spec_method") or "")
        model = config.get("model") or self.flags.get("spec_model")
        if not (method or model):
            return Speculation()
        tokens = config.get("num_speculative_tokens", self.flags.get("spec_tokens", 1))
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1024:
            raise InvalidInputError(
                f"--set speculative_config.num_speculative_tokens={tokens!r}: a whole number of 1 to 1,024 is expected"
            )
        method = method or "draft_model"
        return Speculation(method=method, tokens=tokens, drafting_layers=drafting_layers(self.model, method))

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

    def _v2(self, speculation: Speculation, *, quantized: bool) -> bool:
        if self.card.is_cpu:
            return False
        said = self.env.get("VLLM_USE_V2_MODEL_RUNNER")
        if said in {"0", "1"}:
            return said == "1"
        given = frozenset(name for name, value in self.flags.items() if value is True)
        if drops_v2(self.version, speculation=speculation.method, switches=given):
            return False
        return runs_on_v2(self.version, self.model, quantized=quantized)


def _gib(size: float) -> int:
    return int(size * (1 << 30))
