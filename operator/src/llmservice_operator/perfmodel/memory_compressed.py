"""Peak of one forward pass of compressed attention (DeepSeek-V4), beside the weights."""

from llmservice_operator.perfmodel.memory_types import MIB, Batch
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache

TOKEN_MIB = 0.55
"""A token of a batch, so that two public starts of DeepSeek-V4-Flash come back within 0.6 GiB: 5.44 GiB left on 0.22
and two GH200 at 16,384 tokens, some 7.7 on 0.26 and two H20 at 8,192. Two on 0.25 and eight B200 had some 4 % less than
the 145 and 138 GiB that it leaves. Queries and outputs padded to 64 heads, four residuals and the experts' workspaces,
as they are read in the source (models/deepseek_v4), explain 0.21 of it."""


def has_compressed_attention(model: Architecture) -> bool:
    """Whether some layer keeps one entry for several tokens."""
    return any(isinstance(each, AttentionCache) and each.compress_ratio > 1 for each in model.caches)


def compressed_bytes(model: Architecture, batch: Batch) -> int:
    """The peak; 0 for other models."""
    if not has_compressed_attention(model):
        return 0
    return int(batch.max_num_batched_tokens * TOKEN_MIB * MIB)
