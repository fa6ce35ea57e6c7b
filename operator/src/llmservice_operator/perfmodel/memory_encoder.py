"""What a vision encoder adds to the profile run: dummy images, their outputs, and its own forward pass.

The profile run encodes as many of the largest items as the token budget holds, and the budget is never less than one
item (v1/core/encoder_cache_manager.py). Their pixels (a local of `profile_run`) and their outputs (the encoder's cache)
stay alive through the language model's pass and the sampler: 0.18 GiB on gemma-3-4b, 0.23 on gemma-3-27b (0.19, 8,192
tokens), 2.85 on Qwen3-VL-30B-A3B (0.12, a dummy video of 65,536 tokens).
"""

from llmservice_operator.perfmodel.memory_types import Batch, EngineMemoryRules
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture

LARGEST_IMAGE_TOKENS = 16384
"""Of towers that take images of any size: 12,845,056 pixels at 28 x 28 a token, 16,777,216 at 32 x 32 (Qwen's
processors)."""
LARGEST_VIDEO_TOKENS = 4 * LARGEST_IMAGE_TOKENS
"""Of the dummy video until 0.13: two starts of Qwen3-VL-30B-A3B, contexts of 65,536 and 262,144."""


def encoded_tokens(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Tokens of the dummy items."""
    budget = batch.max_num_batched_tokens
    if model.vision is None or not batch.multimodal:
        return 0
    if not model.vision.takes_videos:
        return budget
    length = batch.max_model_len or model.max_model_len
    if rules.videos_fill_context:
        return max(budget, min(length, LARGEST_VIDEO_TOKENS))
    return max(budget, min(length, LARGEST_IMAGE_TOKENS))


def encoder_kept_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Pixels and outputs of the dummy items; outputs were kept twice while videos filled the context."""
    tower = model.vision
    if tower is None or not batch.multimodal:
        return 0
    pixels = tower.merged_patches * tower.patch_elements
    outputs = model.hidden_size * tower.output_levels
    outputs *= 2 if rules.videos_fill_context and tower.takes_videos else 1
    return encoded_tokens(model, batch, rules) * (pixels + outputs) * DTYPE_BYTES[batch.dtype]


def encoder_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Peak of the encoder's own pass: pixels, residual and normed input, and a feed-forward over all patches."""
    tower = model.vision
    if tower is None or not batch.multimodal:
        return 0
    patches = encoded_tokens(model, batch, rules) * tower.merged_patches
    inner = tower.intermediate_size // batch.tensor_parallel_size + 2 * tower.hidden_size
    return patches * DTYPE_BYTES[batch.dtype] * (tower.patch_elements + inner)
