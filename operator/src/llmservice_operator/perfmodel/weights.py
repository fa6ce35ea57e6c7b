"""Bytes of weights: of the whole model and of one rank."""

from llmservice_operator.perfmodel.quantization import Quantization, weight_bytes
from llmservice_operator.perfmodel.shapes import Architecture

ENGINES_OWN = ("rotary", "kv_b_absorbed")
"""Ends of the modules that aren't in the checkpoint: the table of angles, and latent attention's split projection."""


def rank_weight_bytes(
    architecture: Architecture,
    quantization: Quantization,
    *,
    dtype: str,
    tensor_parallel_size: int,
    with_vision: bool = True,
) -> int:
    """Bytes of weights on one rank, as `Model loading took` reports them."""
    weights = architecture.weights
    if architecture.vision is not None and with_vision:
        weights += architecture.vision.weights
    return sum(
        weight_bytes(each, quantization, dtype=dtype, tensor_parallel_size=tensor_parallel_size)
        for each in weights
    )


def quantized_share(architecture: Architecture, quantization: Quantization) -> float:
    """Share of the elements that are quantised, for the explanation."""
    total = sum(each.elements(1) for each in architecture.weights)
    quantized = sum(
        each.elements(1) for each in architecture.weights if quantization.format_of(each) is not None
    )
    return quantized / total


def parameter_count(architecture: Architecture) -> int:
    """Parameters of the language model, without the engine's own tables and copies."""
    return sum(each.elements(1) for each in architecture.weights if not each.module.endswith(ENGINES_OWN))
