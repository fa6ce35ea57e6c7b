"""What a vision encoder adds to the profile run: dummy images, their outputs, and its own forward pass.

The profile run encodes as many of the largest images as the token budget holds (encoder_cache_manager.py). Their pixels
(a local of `profile_run`) and their outputs (the encoder's cache) stay alive through the language model's pass and the
sampler: 0.18 GiB on gemma-3-4b, 0.23 on gemma-3-27b (0.19, 8,192 tokens).
"""

from llmservice_operator.perfmodel.memory_types import Batch
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture

_CHANNELS = 3
_PATCH_SIDE = 14
"""Pixels of a patch's side, of most towers."""


def encoder_kept_bytes(model: Architecture, batch: Batch) -> int:
    """Pixels and outputs of a whole token budget of images."""
    if model.vision is None or not batch.multimodal:
        return 0
    pixels = model.vision.merged_patches * _CHANNELS * _PATCH_SIDE**2
    return batch.max_num_batched_tokens * (model.hidden_size + pixels) * DTYPE_BYTES[batch.dtype]


def encoder_bytes(model: Architecture, batch: Batch) -> int:
    """Peak of the encoder's own pass: a feed-forward over all patches, and what is kept."""
    if model.vision is None or not batch.multimodal:
        return 0
    patches = batch.max_num_batched_tokens * model.vision.merged_patches
    inner = model.vision.intermediate_size + 4 * model.vision.hidden_size
    return encoder_kept_bytes(model, batch) + patches * DTYPE_BYTES[batch.dtype] * inner
