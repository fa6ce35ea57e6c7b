"""CUDA graphs: what they take, and what runner V1 estimates and charges before it captures them."""

from llmservice_operator.perfmodel.memory_types import GIB, MIB, Batch
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache

_LARGEST_CAPTURE = 512
_FULL_SET = 2 * 51
"""Piecewise and full graphs of an engine whose largest capture and sequences are 512 or more."""
_FIRST_GRAPH_BYTES = 216 * MIB
_FULL_GRAPH_BYTES_A_LAYER = int(0.164 * MIB)
_PIECEWISE_GRAPH_BYTES = MIB
"""What the estimate is made of. A further piecewise graph counts 1 MiB, the floor in the code; the first graph and a
full graph's share a layer are fitted to four starts of 0.26 on H200 (tests/accuracy/memory_fit.py)."""


def capture_counts(batch: Batch) -> tuple[int, int]:
    """Numbers of piecewise and of full graphs (config/vllm.py `_set_cudagraph_sizes`).

    Sizes 1, 2, 4, then steps of 8, from 256 on steps of 16; full graphs only for batches of at most max_num_seqs.
    """
    if batch.enforce_eager:
        return 0, 0
    largest = min(_LARGEST_CAPTURE, 2 * batch.max_num_seqs, batch.max_num_batched_tokens)
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)}
    if batch.max_num_seqs <= largest:
        sizes.add(batch.max_num_seqs)
    held = [size for size in sizes if size <= largest]
    return len(held), sum(size <= batch.max_num_seqs for size in held)


def graph_bytes(model: Architecture, batch: Batch) -> int:
    """What all graphs take in the end.

    With all sizes up to 512 captured 0.3 GiB and 24 MiB a layer (starts: 0.4 to 1.9 GiB); 52 MiB a layer where full and
    sliding layers alternate among experts (1.55 GiB over 24 layers). In proportion to the graphs.
    """
    if batch.enforce_eager:
        return 0
    windows = any(isinstance(cache, AttentionCache) and cache.kind == "sliding" for cache in model.caches)
    layer = 52 * MIB if windows and model.mixture is not None else 24 * MIB
    return int((0.3 * GIB + layer * model.num_layers) * max(0.25, sum(capture_counts(batch)) / _FULL_SET))


def graph_estimate_bytes(model: Architecture, batch: Batch) -> int:
    """What runner V1 takes off the budget for them (v1/worker/gpu_model_runner.py `profile_cudagraph_memory`).

    The larger first graph of the two kinds, and for each further graph what the second of its kind took, at least
    1 MiB.
    """
    piecewise, full = capture_counts(batch)
    if not piecewise:
        return 0
    further = max(0, piecewise - 1) * _PIECEWISE_GRAPH_BYTES
    further += max(0, full - 1) * _FULL_GRAPH_BYTES_A_LAYER * model.num_layers
    return _FIRST_GRAPH_BYTES + further
