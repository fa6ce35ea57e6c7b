"""CUDA graphs: what they take, and what runner V1 estimates and charges before it captures them.

A full graph of a decode batch holds what FlashAttention gathers its splits in: 32 splits (`--attention-config
flash_attn_max_num_splits_for_cuda_graph`) x rows x heads x head size in float32, one for all layers. Runner V2 keeps
three of them: 0.99 GiB with 512 rows of Llama-3.1-8B, 0.59 with 256, 0.41 with 128, at two ranks 0.72 and 0.51 (0.26,
H200). The rest is nodes of graphs and kernels' modules; it is fitted (tests/accuracy/memory_fit.py).
"""

from llmservice_operator.perfmodel import capture
from llmservice_operator.perfmodel.memory_types import MIB, Batch, EngineMemoryRules
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache, ceil_div

_FULL_SET = 2 * 51
"""Piecewise and full graphs of an engine whose largest capture and sequences are 512 or more."""
_SPLITS = 32
_FLOAT32 = 4

FIRST_GRAPH_MIB, FULL_GRAPH_MIB, RANKS_MIB = 236.0, 2.3, 108.0
"""Of V1's estimate beside the splits: the first graph, a further full one, and what ranks add. A further piecewise one
counts 1 MiB, the floor in the code."""
V2_LAYER_MIB, V2_REST_MIB, V2_RANKS_MIB, V2_COPIES = 10, -85, 105, 3
V1_OVER_ESTIMATE_MIB = 100
V1_REST_MIB, V1_LAYER_MIB, V1_WINDOWED_EXPERTS_LAYER_MIB = 250, 12, 28
"""Of what the graphs take in the end, beside the splits. V2: by layer, and what ranks add (ten starts within 0.25 GiB).
V1: somewhat more than its estimate (0.26: 0.39 to 1.04 GiB); before 0.20 by layer, more where full and sliding layers
alternate among experts (1.55 GiB over 24 layers and 83 sizes of gpt-oss-20b, 0.19)."""


def capture_counts(batch: Batch) -> tuple[int, int]:
    """Numbers of piecewise and of full graphs; full ones only for batches of at most max_num_seqs."""
    held = captured_sizes(batch)
    full = sum(size <= batch.max_num_seqs for size in held)
    return len(held) if batch.piecewise_graphs else 0, full if batch.full_graphs else 0


def captured_sizes(batch: Batch) -> list[int]:
    """Batches that graphs are captured for, smallest first: those that a flag names, or the engine's own."""
    if batch.enforce_eager:
        return []
    if batch.captures:
        return sorted(batch.captures)
    largest = batch.largest_capture
    if largest is None:
        largest = batch.capture_rule.largest_tokens(
            max_num_seqs=batch.max_num_seqs, max_num_batched_tokens=batch.max_num_batched_tokens
        )
    return capture.captured_sizes(largest, max_num_seqs=batch.max_num_seqs)


def attention_width(model: Architecture) -> int:
    """Heads x head size of the widest attention layer; of latent attention heads x latent."""
    latents = [
        each.key_size for each in model.caches if isinstance(each, AttentionCache) and each.kind == "latent"
    ]
    if latents:
        return model.num_attention_heads * max(latents)
    outputs = (
        each.columns for each in model.weights if each.module.endswith((".self_attn.o_proj", ".mixer.o_proj"))
    )
    return max(outputs, default=model.num_attention_heads * model.head_size)


def split_bytes(model: Architecture, batch: Batch) -> int:
    """What one gathering of FlashAttention's splits takes in the largest full graph."""
    rows = max((size for size in captured_sizes(batch) if size <= batch.max_num_seqs), default=0)
    rows = rows if batch.full_graphs else 0
    return _SPLITS * rows * ceil_div(attention_width(model), batch.tensor_parallel_size) * _FLOAT32


def graph_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What all graphs take in the end."""
    if not any(capture_counts(batch)):
        return 0
    if rules.runner_v2:
        rest = V2_REST_MIB + V2_LAYER_MIB * model.num_layers
        rest += V2_RANKS_MIB if batch.tensor_parallel_size > 1 else 0
        return max(0, rest) * MIB + V2_COPIES * split_bytes(model, batch)
    if rules.graphs_by_estimate:
        return v1_estimate_bytes(model, batch) + V1_OVER_ESTIMATE_MIB * MIB
    windows = any(isinstance(cache, AttentionCache) and cache.kind == "sliding" for cache in model.caches)
    layer = V1_WINDOWED_EXPERTS_LAYER_MIB if windows and model.mixture is not None else V1_LAYER_MIB
    share = sum(capture_counts(batch)) / _FULL_SET
    return int((V1_REST_MIB + layer * model.num_layers * share) * MIB) + split_bytes(model, batch)


def v1_estimate_bytes(model: Architecture, batch: Batch) -> int:
    """Runner V1's estimate (v1/worker/gpu_model_runner.py `profile_cudagraph_memory`).

    The larger first graph of the two kinds, and for each further graph what the second of its kind took, at least
    1 MiB.
    """
    piecewise, full = capture_counts(batch)
    if not piecewise:
        return 0
    counted = FIRST_GRAPH_MIB + (piecewise - 1) + FULL_GRAPH_MIB * max(0, full - 1)
    counted += RANKS_MIB if batch.tensor_parallel_size > 1 else 0.0
    return int(counted * MIB) + split_bytes(model, batch)


def graph_estimate_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What is taken off the budget for graphs.

    V1 takes its estimate. V2, from 0.30 on, captures them once for this, so that it takes what they take
    (v1/worker/gpu/cudagraph_utils.py).
    """
    return graph_bytes(model, batch, rules) if rules.runner_v2 else v1_estimate_bytes(model, batch)
