"""KV cache: bytes of a page, groups, blocks, and how many requests they hold.

Follows vLLM 0.33 v1/core/kv_cache_planning.py and v1/kv_cache_interface.py; the rules hold since 0.11.
"""

from dataclasses import dataclass

from llmservice_operator.perfmodel.shapes import (
    DTYPE_BYTES,
    Architecture,
    AttentionCache,
    LayerCache,
    StateCache,
    ceil_div,
)

GPU_BLOCK_SIZE = 16
CPU_BLOCK_SIZE = 128
COMPRESSED_BLOCK_SIZE = 256
"""What compressed attention's backends prefer (mla/sparse_swa.py)."""
_PAGE_ALIGNMENT = 576
_OVERLAPS_FROM, _LISTS_BUCKETS_FROM = (0, 28, 0), (0, 24, 0)

_ONE_BYTE = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8_per_token_head", "fp8_per_token_head"})
_NVFP4 = frozenset({"nvfp4", "nvfp4_4over6"})
_SPARSE_LATENT_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_SPARSE_LATENT_SIZE = 512 + 64
"""A token of DeepSeek's sparse latent attention: its bytes are fixed, for this latent with its rotary part
(layers/attention/mla_attention.py)."""
_SCALE_BYTES = 4
"""The `..._per_token_head` formats keep a scale for keys and one for values, of each token and head, beside them
(v1/attention/backends/triton_attn.py, layers/attention/mla_attention.py)."""


def element_bytes(kv_cache_dtype: str, model_dtype: str) -> float:
    """Bytes of one cached element (config/cache.py); `auto` is the model's dtype.

    NVFP4 carries its scales in 1/16 of the elements. Raises KeyError for a dtype that isn't known.
    """
    if kv_cache_dtype == "auto":
        return DTYPE_BYTES[model_dtype]
    if kv_cache_dtype in _ONE_BYTE:
        return 1.0
    if kv_cache_dtype in _NVFP4:
        return 0.5 + 1 / 16
    if kv_cache_dtype == "int4_per_token_head":
        return 0.5
    if kv_cache_dtype in _SPARSE_LATENT_BYTES:
        return _SPARSE_LATENT_BYTES[kv_cache_dtype] / _SPARSE_LATENT_SIZE
    return DTYPE_BYTES[kv_cache_dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What the cache's layout depends on, beside the model."""

    kv_cache_dtype: str
    """Resolved: a checkpoint's own wish counts as given."""
    model_dtype: str
    tensor_parallel_size: int
    block_size: int
    max_num_batched_tokens: int
    prefix_caching: bool
    state_dtype: str = ""
    """`--mamba-ssm-cache-dtype`; empty: what the config says."""
    batches_in_flight: int = 2
    """2 with asynchronous scheduling (config/vllm.py); windows keep that many batches' tokens."""
    engine_version: tuple[int, int, int] = _OVERLAPS_FROM
    """Decides how pages of several sizes share a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers of one kind that share a block table."""

    layers: int
    sample: LayerCache
    page_bytes: int = 0
    """Of a block's pages in all of its layers, where groups differ in it; 0: they don't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """Groups over one pool of blocks, on one rank."""

    groups: tuple[Group, ...]
    block_size: int
    """Tokens of one block of full attention; raised for hybrids until an attention page holds a state."""
    bytes_per_block: int
    settings: CacheSettings

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks that one request of this length holds over all groups."""
        return sum(self._group_blocks(group, tokens) for group in self.groups)

    def _group_blocks(self, group: Group, tokens: int) -> int:
        cache = group.sample
        if isinstance(cache, StateCache):
            return 2 if self.settings.prefix_caching else 1
        size = cache.block_tokens or self.block_size * _block_scale(cache, self)
        in_flight = self.settings.batches_in_flight * self.settings.max_num_batched_tokens
        if cache.kind == "sliding":
            return ceil_div(min(cache.window - 1 + in_flight, tokens), size) + 1
        if cache.kind == "chunked":
            return ceil_div(min(cache.window + in_flight, tokens), size)
        return ceil_div(tokens, size)

    def needed_bytes(self, tokens: int) -> int:
        """Bytes that the engine asks for before it serves one request of this length (the null block included)."""
        return (self.blocks_per_request(tokens) + 1) * self.bytes_per_block

    def blocks(self, available_bytes: int) -> int:
        """Blocks of a pool of this size."""
        return max(0, available_bytes) // self.bytes_per_block

    def max_concurrency(self, available_bytes: int, tokens: int) -> float:
        """Requests of this length that a pool of so many bytes holds, as the engine prints it."""
        return self.concurrency(self.blocks(available_bytes), tokens)

    def concurrency(self, blocks: int, tokens: int) -> float:
        """The same of a pool of so many blocks."""
        request = self.blocks_per_request(tokens)
        first = self.groups[0].page_bytes
        if first and self.settings.engine_version < _OVERLAPS_FROM:
            # It divided the groups' bytes by the first group's page (`get_max_concurrency_for_kv_cache_config`).
            used = sum(self._group_blocks(group, tokens) * group.page_bytes for group in self.groups)
            request = ceil_div(used, first)
        return blocks / request

    def longest_request(self, available_bytes: int, limit: int) -> int:
        """The longest request, at most `limit`, that a pool serves; 0 if not even one token."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed_bytes(middle) <= available_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def _block_scale(cache: AttentionCache, layout: CacheLayout) -> int:
    """How many times more tokens a block of this layer holds, so that all pages are of one size."""
    if cache.compress_ratio > 1:
        return 1
    largest = max(
        _token_bytes(group.sample, layout.settings)
        for group in layout.groups
        if isinstance(group.sample, AttentionCache)
    )
    own = _token_bytes(cache, layout.settings)
    return max(1, int(largest // own)) if own else 1


def _token_bytes(cache: AttentionCache, settings: CacheSettings) -> float:
    """Bytes of one token in one layer on one rank. A latent is whole on every rank; heads are never fewer than one."""
    heads = (
        cache.kv_heads if cache.kind == "latent" else max(1, cache.kv_heads // settings.tensor_parallel_size)
    )
    if cache.token_bytes or (cache.packed_fp8_bytes and settings.kv_cache_dtype.startswith("fp8")):
        return heads * (cache.token_bytes or cache.packed_fp8_bytes)
    width = element_bytes(settings.kv_cache_dtype, settings.model_dtype)
    scales = 2 * _SCALE_BYTES if settings.kv_cache_dtype.endswith("per_token_head") else 0
    return heads * ((cache.key_size + cache.value_size) * width + scales)


def _state_bytes(cache: StateCache, settings: CacheSettings) -> int:
    """Bytes of one state in one layer on one rank."""
    conv = ceil_div(cache.conv_elements, settings.tensor_parallel_size) * DTYPE_BYTES[settings.model_dtype]
    dtype = settings.state_dtype or cache.state_dtype or settings.model_dtype
    return conv + ceil_div(cache.state_elements, settings.tensor_parallel_size) * DTYPE_BYTES.get(dtype, 4)


def bytes_per_token(architecture: Architecture, settings: CacheSettings) -> int:
    """Bytes of one token over all layers that grow with the context, on one rank."""
    return int(
        sum(
            _token_bytes(each, settings) / each.compress_ratio
            for each in architecture.caches
            if isinstance(each, AttentionCache) and not each.block_tokens
        )
    )


def cache_layout(architecture: Architecture, settings: CacheSettings) -> CacheLayout:
    """Groups and block bytes of this model (`get_kv_cache_groups`).

    Layers of one kind form one group. Several kinds are split into groups of about equal size that alias one pool:
    the smallest kind's size, or the largest's where that is less than half as much more.
    """
    kinds: dict[LayerCache, int] = {}
    for cache in architecture.caches:
        kinds[cache] = kinds.get(cache, 0) + 1
    if any(isinstance(cache, AttentionCache) and cache.compress_ratio > 1 for cache in kinds):
        return _packed_layout(kinds, settings)
    block_size = _block_size(kinds, settings)
    latent_only = all(isinstance(cache, AttentionCache) and cache.kind == "latent" for cache in kinds)
    attention = [cache for cache in kinds if isinstance(cache, AttentionCache)]
    page = int(max((_token_bytes(cache, settings) for cache in attention), default=0.0) * block_size)
    state = max(
        (_state_bytes(cache, settings) for cache in kinds if isinstance(cache, StateCache)), default=0
    )
    page = max(page, state)
    if len(kinds) == 1 or latent_only:
        layers = sum(kinds.values())
        total = int(
            sum(
                _token_bytes(cache, settings) * block_size * count
                for cache, count in kinds.items()
                if isinstance(cache, AttentionCache)
            )
        )
        group = Group(layers=layers, sample=next(iter(kinds)))
        return CacheLayout(
            groups=(group,), block_size=block_size, bytes_per_block=total or page * layers, settings=settings
        )
    smallest, largest = min(kinds.values()), max(kinds.values())
    size = largest if largest < 1.5 * smallest else smallest
    groups = tuple(
        Group(layers=min(size, count), sample=cache)
        for cache, count in kinds.items()
        for _ in range(ceil_div(count, size))
    )
    return CacheLayout(groups=groups, block_size=block_size, bytes_per_block=size * page, settings=settings)


def _packed_layout(kinds: dict[LayerCache, int], settings: CacheSettings) -> CacheLayout:
    """Compressed attention: pages of several sizes in one block, a block to one group at a time.

    One group of all that grows with the context; windows and states by their block and window, cut into groups of
    about as many layers (`_get_kv_cache_groups_uniform_groups`, `_approximate_gcd`). Until 0.22 a block has room for
    a page of each size in each layer, until 0.26 for as many of each size as the group with most, since then for the
    largest group. One start's needs are met to 0.01 GiB (DeepSeek-V4-Flash on 0.22: 6.66 GiB for 30,000 tokens).
    """
    buckets: dict[tuple[int, int], dict[AttentionCache, int]] = {}
    for cache, count in kinds.items():
        if isinstance(cache, AttentionCache):
            buckets.setdefault((cache.block_tokens, cache.window), {})[cache] = count
    growing = buckets.pop((0, 0))
    depths = [max(growing.values()), *(max(each.values()) for each in buckets.values())]
    depth = min(
        range(depths[0], max(depths) + 1), key=lambda size: (sum(-each % size for each in depths), -size)
    )
    grown = {cache: _page_bytes(cache, settings) for cache in growing}
    pages = sum(grown[cache] * count for cache, count in growing.items())
    groups = [Group(layers=max(growing.values()), sample=next(iter(growing)), page_bytes=pages)]
    for bucket in buckets.values():
        parts = ceil_div(max(bucket.values()), depth)
        layers = ceil_div(max(bucket.values()), parts)
        pages = layers * sum(_padded_page(cache, settings, set(grown.values())) for cache in bucket)
        groups += [Group(layers=layers, sample=next(iter(bucket)), page_bytes=pages)] * parts
    if settings.engine_version >= _OVERLAPS_FROM:
        block = max(group.page_bytes for group in groups)
    elif settings.engine_version >= _LISTS_BUCKETS_FROM:
        most = max(group.layers for group in groups)
        largest = max(grown.values())
        block = sum(
            page * (max(most, growing[cache]) if page == largest else growing[cache])
            for cache, page in grown.items()
        )
    else:
        block = sum(set(grown.values())) * max(group.layers for group in groups)
    return CacheLayout(
        groups=tuple(groups), block_size=settings.block_size, bytes_per_block=block, settings=settings
    )


def _padded_page(cache: AttentionCache, settings: CacheSettings, sizes: set[int]) -> int:
    """A page of a window or of states: until 0.26 it is as large as one of what grows."""
    page = _page_bytes(cache, settings)
    if settings.engine_version >= _OVERLAPS_FROM:
        return page
    return min((size for size in sizes if size >= page), default=page)


def _page_bytes(cache: AttentionCache, settings: CacheSettings) -> int:
    entries = (cache.block_tokens or settings.block_size) // cache.compress_ratio
    return ceil_div(int(entries * _token_bytes(cache, settings)), _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT


def _block_size(kinds: dict[LayerCache, int], settings: CacheSettings) -> int:
    """Raised for hybrids: align x ceil(state page / (align x bytes per token)) (platforms/interface.py)."""
    states = [_state_bytes(cache, settings) for cache in kinds if isinstance(cache, StateCache)]
    attention = [_token_bytes(cache, settings) for cache in kinds if isinstance(cache, AttentionCache)]
    if not states or not attention:
        return settings.block_size
    return settings.block_size * max(1, ceil_div(max(states), int(settings.block_size * max(attention))))
