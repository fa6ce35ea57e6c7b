"""A start in numbers: the account and the KV cache's layout at given settings."""

from dataclasses import dataclass, replace

from llmservice_operator.engines.versions import memory_rules
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.device_shape import device_shape
from llmservice_operator.perfmodel.drafting import with_drafting_layers
from llmservice_operator.perfmodel.kv_cache import CacheLayout, CacheSettings, cache_layout
from llmservice_operator.perfmodel.memory import Account, Batch, EngineMemoryRules, account, format_fields
from llmservice_operator.perfmodel.pipeline import layer_ranges, stage
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache, ceil_div
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.estimate_settings import Settings


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A start in numbers."""

    whole: Architecture
    """The model as it is loaded, all stages."""
    model: Architecture
    """The pipeline stage that has the fewest blocks; without a pipeline the whole."""
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
        reserved = self.settings.frontend_bytes
        if self.settings.kv_cache_bytes is not None:
            return self.settings.kv_cache_bytes - reserved
        return self.account.available - reserved

    @property
    def length(self) -> int:
        """The length that is served; 0 where `auto` finds none."""
        return self.settings.max_model_len or self.longest_request(self.whole.max_model_len)

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        override = self.settings.blocks_override
        return override if override is not None else self.layout.blocks(self.available)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool: what is available, or what the given number of blocks takes."""
        override = self.settings.blocks_override
        return override * self.layout.bytes_per_block if override is not None else self.available

    @property
    def given_pool_bytes(self) -> int | None:
        """The pool's size where a flag gives it; None: what the budget leaves."""
        is_given = self.settings.blocks_override is not None or self.settings.kv_cache_bytes is not None
        return max(0, self.pool_bytes) if is_given else None

    @property
    def taken_by_others_bytes(self) -> int:
        """Of the card, before the engine starts."""
        return 0 if self.free_bytes is None else max(0, self.account.total - self.free_bytes)

    @property
    def left_outside_bytes(self) -> int:
        """Of the card, beside the engine's budget or, where a flag gives the pool, beside what that comes to."""
        held, given = self.account, self.given_pool_bytes
        taken = held.weights + held.extras + held.activation + held.non_torch
        return held.total - self.taken_by_others_bytes - (held.requested if given is None else taken + given)

    def rank_tokens(self, length: int) -> int:
        """Tokens of a request that one rank keeps: context parallelism shares them out."""
        return ceil_div(length, self.settings.parallel.context)

    def needed_bytes(self, length: int) -> int:
        """Bytes of the pool that one request of this length needs."""
        return self.layout.needed_bytes(self.rank_tokens(length))

    def blocks_per_request(self, length: int) -> int:
        """Blocks of one request of this length."""
        return self.layout.blocks_per_request(self.rank_tokens(length))

    def longest_request(self, limit: int) -> int:
        """The longest request, at most `limit`, that the pool serves; 0 if not even one token."""
        longest = self.layout.longest_request(self.pool_bytes, self.rank_tokens(limit))
        return min(limit, longest * self.settings.parallel.context)


def make_trial(model: Architecture, settings: Settings, *, free_bytes: int | None = None) -> Trial:
    """All numbers of a start at these settings: of the stage with the fewest blocks, which the others follow.

    Raises InvalidInputError for a pipeline that the layers can't be split over.
    """
    whole = with_drafting_layers(_as_cached(model, settings), settings.speculation.drafting_layers)
    trials = [_stage_trial(whole, part, settings, free_bytes=free_bytes) for part in _stages(whole, settings)]
    return min(trials, key=lambda trial: trial.layout.blocks(trial.available))


def _stage_trial(
    whole: Architecture, model: Architecture, settings: Settings, *, free_bytes: int | None
) -> Trial:
    rules = memory_rules(settings.version, whole, v2=settings.v2, graphs_charged=settings.graphs_charged)
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
        whole=whole,
        model=model,
        settings=settings,
        rules=rules,
        batch=batch,
        account=replace(held, margin=0),
        layout=cache_layout(model, cache_settings(settings)),
        free_bytes=free_bytes,
    )


def _stages(model: Architecture, settings: Settings) -> list[Architecture]:
    """The stages of the pipeline; one: the model itself."""
    count = settings.parallel.pipeline
    if count == 1:
        return [model]
    try:
        ranges = layer_ranges(model.num_layers, count, settings.parallel.layers)
    except ValueError as error:
        raise InvalidInputError(f"--set pipeline_parallel_size={count}: {error}") from error
    return [stage(model, ranges, index) for index in range(count)]


def _as_cached(model: Architecture, settings: Settings) -> Architecture:
    """The model with windows that keep everything, where a flag says so."""
    if not settings.window_as_full:
        return model
    caches = tuple(
        replace(each, kind="full", window=0)
        if isinstance(each, AttentionCache) and each.kind in {"sliding", "chunked"}
        else each
        for each in model.caches
    )
    return replace(model, caches=caches)


def _batch(settings: Settings) -> Batch:
    fp8, block_scaled, expert_format = format_fields(settings.quantization)
    return Batch(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        tensor_parallel_size=settings.parallel.tensor,
        dtype=settings.dtype,
        fp8_weights=fp8,
        block_scaled=block_scaled,
        expert_format=expert_format,
        expert_parallel=settings.parallel.experts,
        enforce_eager=settings.enforce_eager,
        captures=settings.captures.sizes,
        largest_capture=settings.captures.largest,
        piecewise_graphs=settings.captures.piecewise,
        full_graphs=settings.captures.full,
        multimodal=settings.multimodal and settings.encoder_profiled,
        max_lora_rank=settings.lora.rank,
        max_loras=settings.lora.slots,
        speculative=settings.speculation.has_weights,
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
        tensor_parallel_size=settings.parallel.tensor,
        block_size=settings.block_size,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        prefix_caching=settings.prefix_caching,
        state_dtype=settings.state_dtype,
        batches_in_flight=settings.batches_in_flight,
        engine_version=settings.version,
    )


def _weights(model: Architecture, settings: Settings) -> int:
    size = rank_weight_bytes(
        model,
        settings.quantization,
        dtype=settings.dtype,
        tensor_parallel_size=settings.parallel.tensor,
        with_vision=settings.multimodal,
        data_parallel_size=settings.parallel.data,
        expert_parallel=settings.parallel.experts,
        capability=settings.card.capability,
        engine_version=settings.version,
    )
    return max(0, int(size * settings.weights_share) - settings.cpu_offload_bytes)
