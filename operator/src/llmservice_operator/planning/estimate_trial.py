"""A start in numbers: the account and the KV cache's layout at given settings."""

from dataclasses import dataclass, replace

from llmservice_operator.engines.versions import memory_rules
from llmservice_operator.perfmodel.device_shape import device_shape
from llmservice_operator.perfmodel.kv_cache import CacheLayout, CacheSettings, cache_layout
from llmservice_operator.perfmodel.memory import Account, Batch, EngineMemoryRules, account, format_fields
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.estimate_settings import Settings


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A start in numbers."""

    model: Architecture
    settings: Settings
    rules: EngineMemoryRules
    batch: Batch
    account: Account
    layout: CacheLayout
    free_bytes: int | None
    """Free memory of the card before the engine starts; None: all of it."""

    @property
    def available(self) -> int:
        """Bytes for the KV cache, as the engine prints them; negative where the rest has no room."""
        if self.settings.kv_cache_bytes is not None:
            return self.settings.kv_cache_bytes
        return self.account.available

    @property
    def length(self) -> int:
        """The length that is served; 0 where `auto` finds none."""
        limit = self.model.max_model_len
        return self.settings.max_model_len or self.layout.longest_request(self.available, limit)

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        override = self.settings.blocks_override
        return override if override is not None else self.layout.blocks(self.available)


def make_trial(model: Architecture, settings: Settings, *, free_bytes: int | None = None) -> Trial:
    """All numbers of a start at these settings."""
    rules = memory_rules(settings.version, model, v2=settings.v2, graphs_charged=settings.graphs_charged)
    batch = _batch(settings)
    held = account(
        total_bytes=settings.card.memory_bytes,
        utilization=settings.utilization,
        weights_bytes=_weights(model, settings),
        model=model,
        batch=batch,
        rules=rules,
    )
    return Trial(
        model=model,
        settings=settings,
        rules=rules,
        batch=batch,
        account=replace(held, margin=0),
        layout=cache_layout(model, cache_settings(settings)),
        free_bytes=free_bytes,
    )


def _batch(settings: Settings) -> Batch:
    fp8, block_scaled, expert_format = format_fields(settings.quantization)
    return Batch(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        tensor_parallel_size=settings.tensor_parallel_size,
        dtype=settings.dtype,
        fp8_weights=fp8,
        block_scaled=block_scaled,
        expert_format=expert_format,
        enforce_eager=settings.enforce_eager,
        multimodal=settings.multimodal,
        max_lora_rank=settings.max_lora_rank,
        max_loras=settings.max_loras,
        speculative=bool(settings.speculative_tokens),
        flashinfer_sampler=settings.flashinfer_sampler,
        max_model_len=settings.max_model_len,
        block_size=settings.block_size,
        device=device_shape(settings.card.compute_capability, settings.card.memory_bytes),
    )


def cache_settings(settings: Settings) -> CacheSettings:
    """The KV cache's settings."""
    return CacheSettings(
        kv_cache_dtype=settings.kv_cache_dtype,
        model_dtype=settings.dtype,
        tensor_parallel_size=settings.tensor_parallel_size,
        block_size=settings.block_size,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        prefix_caching=settings.prefix_caching,
        state_dtype=settings.state_dtype,
        batches_in_flight=settings.batches_in_flight,
    )


def _weights(model: Architecture, settings: Settings) -> int:
    size = rank_weight_bytes(
        model,
        settings.quantization,
        dtype=settings.dtype,
        tensor_parallel_size=settings.tensor_parallel_size,
        with_vision=settings.multimodal,
        data_parallel_size=settings.data_parallel_size,
        expert_parallel=settings.expert_parallel,
        capability=settings.card.capability,
        engine_version=settings.version,
    )
    return max(0, size - settings.cpu_offload_bytes)
