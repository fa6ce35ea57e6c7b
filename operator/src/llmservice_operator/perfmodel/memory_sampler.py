"""Peak of the sampler in the profile run, and what it keeps: logits over the whole vocabulary.

The profile run samples one token for each of min(max_num_seqs, max_num_batched_tokens) requests after the forward
pass, while its hidden states are alive (v1/worker/gpu_model_runner.py `_dummy_sampler_run`; for V2
v1/worker/gpu/model_runner.py). Live at the peak, by rows and vocabulary:

    V1      logits in the model's dtype, their float32 copy, probabilities, exponential noise: 2 + 4 + 4 + 4 bytes
    V1 <0.17  the same logits, sorted copies and indices of torch.sort and its scratch: 38 bytes; before 0.11 with
              FlashInfer installed 14 as above
    V2      logits only: its kernels write in place; among ranks also the gathered parts and their reordered copy
    V2 0.33 a second pass with all processors on: float32 copies
"""

from llmservice_operator.perfmodel.memory_types import Batch, EngineMemoryRules
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture, ceil_div

_FLOAT32 = 4
_SORT_BYTES, _SORT_BYTES_OF_FEW_ROWS, _FEW_ROWS = 38, 50, 128
"""bf16 logits 2, float32 copy 4, sorted values 4, int64 indices and their reverse 16, and the radix sort's own copy of
values and indices 12 (15 public starts of 0.8 to 0.15 within 0.05 GiB). Below 128 rows PyTorch sorts all rows as one
with two 8-byte keys (ATen/native/cuda/Sort.cpp)."""


def logits_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Live bytes over rows and vocabulary at the sampler's peak."""
    width = DTYPE_BYTES[batch.dtype]
    if rules.runner_v2:
        per_logit = width if batch.tensor_parallel_size == 1 else 2 * width
        if rules.sampler_rehearsed:
            per_logit = max(per_logit, width + 2 * _FLOAT32)
    elif _sorts(batch, rules):
        few = batch.sampled_rows < _FEW_ROWS
        per_logit = (_SORT_BYTES_OF_FEW_ROWS if few else _SORT_BYTES) + (width - 2)
    else:
        per_logit = width + 3 * _FLOAT32
    return batch.sampled_rows * model.vocab_size * per_logit


def _sorts(batch: Batch, rules: EngineMemoryRules) -> bool:
    """Whether the logits are sorted; not by FlashInfer's sampler, which engine V1 takes before 0.11 where it is there.

    It is in vLLM's images, not in what a wheel installs (VLLM_USE_FLASHINFER_SAMPLER=0 says so). V0, which cards below
    8.0 fall back to, sorts.
    """
    if not rules.sampler_sorts:
        return False
    old_card = batch.device.compute_capability.startswith("7.")
    return not (rules.sampler_flashinfer and batch.flashinfer_sampler) or old_card


def threshold_buffer_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """One row of float32 for each multiprocessor, kept from the first call on (v1/sample/ops/topk_topp_triton.py)."""
    if rules.runner_v2 or rules.sampler_sorts or batch.sampled_rows < 8:
        return 0
    return min(batch.device.multiprocessors, batch.sampled_rows) * model.vocab_size * _FLOAT32


def sampler_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Peak of sampling: logits, the hidden states of all tokens, and those of the sampled rows (V1: twice)."""
    width = DTYPE_BYTES[batch.dtype] * model.hidden_size
    copies = 1 if rules.runner_v2 else 2
    hidden = width * (batch.max_num_batched_tokens + copies * batch.sampled_rows)
    return (
        logits_bytes(model, batch, rules)
        + threshold_buffer_bytes(model, batch, rules)
        + hidden
        + batch.device.matmul_workspace_bytes
    )


def sampler_state_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """V2's penalty state: counts of 4 bytes and a mask of one bit for each sequence and token of the vocabulary.

    On the device at all times (v1/worker/gpu/sample/penalties.py). Made before profiling starts: until 0.27, which
    charges the rise of torch's peak, it is not in the budget.
    """
    if not rules.runner_v2:
        return 0
    return batch.max_num_seqs * 4 * (model.vocab_size + ceil_div(model.vocab_size, 32))
