"""Inputs that each layer has of its own: a second embedding with a share for each layer (models/gemma4.py)."""

from llmservice_operator.perfmodel.config_reader import ConfigReader
from llmservice_operator.perfmodel.shapes import Shard, Weight


def per_layer_weights(
    text: ConfigReader, *, hidden_size: int, num_layers: int, vocab_size: int
) -> list[Weight]:
    """The second embedding, its projection from the first, and each layer's gate and projection; none without."""
    size = text.integer("hidden_size_per_layer_input", default=0, minimum=0)
    if not size:
        return []
    rows = text.integer("vocab_size_per_layer_input", default=vocab_size)
    weights = [
        Weight(
            module="embed_tokens_per_layer",
            rows=rows,
            columns=size * num_layers,
            shard=Shard.VOCABULARY,
            linear=False,
        ),
        Weight(
            module="per_layer_model_projection",
            rows=size * num_layers,
            columns=hidden_size,
            shard=Shard.TENSOR,
        ),
    ]
    for index in range(num_layers):
        prefix = f"layers.{index}"
        weights += [
            Weight(
                module=f"{prefix}.per_layer_input_gate",
                rows=size,
                columns=hidden_size,
                shard=Shard.REPLICATED,
            ),
            Weight(
                module=f"{prefix}.per_layer_projection",
                rows=hidden_size,
                columns=size,
                shard=Shard.REPLICATED,
            ),
        ]
    return weights
