"""Over how many tensor-parallel ranks a model can be split."""

from llmservice_operator.perfmodel.memo import remembered
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import VOCAB_PADDING, Architecture, Shard, ceil_div

_CUT_BY_COLUMNS = ("down_proj", "o_proj", "out_proj")
"""Ends of the row-parallel layers: their input side is the one that is cut."""


@remembered
def why_it_does_not_split(
    model: Architecture, quantization: Quantization, ranks: int, *, expert_parallel: bool = False
) -> str | None:
    """Why the model can't be split over so many ranks (config/model.py, layers/linear.py); None if it can.

    Under expert parallelism experts stay whole.
    """
    if ranks == 1:
        return None
    if model.num_attention_heads % ranks:
        return f"{model.num_attention_heads} attention heads don't divide by {ranks}"
    if model.num_kv_heads % ranks and ranks % model.num_kv_heads:
        return f"{model.num_kv_heads} KV heads and {ranks} ranks don't divide each other"
    if ceil_div(model.vocab_size, VOCAB_PADDING) * VOCAB_PADDING % ranks:
        return f"the vocabulary of {model.vocab_size}, padded to {VOCAB_PADDING}s, doesn't divide by {ranks}"
    block = quantization.block_size
    for weight in model.weights:
        if weight.shard is not Shard.TENSOR or (weight.expert and expert_parallel):
            continue
        side = weight.columns if weight.module.endswith(_CUT_BY_COLUMNS) else weight.rows
        if side % ranks:
            return f"{weight.module} has {side} features, which don't divide by {ranks}"
        if block and quantization.format_of(weight) is not None and (side // ranks) % block:
            return f"{weight.module} has {side} features; a share of 1/{ranks} isn't whole blocks of {block}"
    return None
