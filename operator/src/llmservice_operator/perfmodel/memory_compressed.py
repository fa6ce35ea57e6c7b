"""Peak of one forward pass of compressed attention (DeepSeek-V4), beside the weights."""

from llmservice_operator.perfmodel.memory_types import Batch
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache

MIB = 2**20
TOKEN_MIB = 0.6
"""A token of a batch, the larger of two public starts of DeepSeek-V4-Flash: 0.6 MiB (0.22, two GH200, 16,384 tokens),
some 0.45 (0.26, two H20). Queries and outputs padded to 64 heads, four residuals and the experts' workspaces, as they
are read in the source (models/deepseek_v4), explain 0.21 of it."""


def has_compressed_attention(model: Architecture) -> bool:
    """Whether some layer keeps one entry for several tokens."""
    return any(isinstance(each, AttentionCache) and each.compress_ratio > 1 for each in model.caches)


def compressed_bytes(model: Architecture, batch: Batch) -> int:
    """The peak; 0 for other models."""
    if not has_compressed_attention(model):
        return 0
    return int(batch.max_num_batched_tokens * TOKEN_MIB * MIB)
