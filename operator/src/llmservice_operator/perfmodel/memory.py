"""Memory of one accelerator at given settings, term by term, as vLLM accounts it.

    requested = ceil(total x utilization)
    available = requested - weights - activation - non-torch - CUDA graphs - margin

Each term is a function with its source; the peaks are counted from what the code keeps alive (memory_forward,
memory_sampler, memory_encoder, memory_graphs). tests/accuracy compares them with starts of real engines, and
operator/docs/sizing.md has the table.
"""

import math
from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.memory_encoder import encoder_bytes, encoder_kept_bytes
from llmservice_operator.perfmodel.memory_forward import expert_workspace_bytes, forward_bytes
from llmservice_operator.perfmodel.memory_graphs import capture_counts, graph_bytes, graph_estimate_bytes
from llmservice_operator.perfmodel.memory_sampler import sampler_bytes, sampler_state_bytes
from llmservice_operator.perfmodel.memory_types import GIB, MIB, Batch, EngineMemoryRules, format_fields
from llmservice_operator.perfmodel.shapes import Architecture

__all__ = [
    "GIB",
    "MIB",
    "Account",
    "Batch",
    "EngineMemoryRules",
    "account",
    "activation_bytes",
    "capture_counts",
    "context_bytes",
    "draft_bytes",
    "encoder_bytes",
    "format_fields",
    "forward_bytes",
    "graph_bytes",
    "graph_estimate_bytes",
    "growth_bytes",
    "lora_bytes",
    "margin_bytes",
    "non_torch_bytes",
    "outside_bytes",
    "outside_margin_bytes",
    "outside_start_bytes",
    "requested_bytes",
    "safe_utilization",
    "sampler_bytes",
    "sampler_state_bytes",
    "start_limit",
]


def activation_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What profiling adds to the weights.

    The larger of the forward pass and the sampler, beside the experts' workspaces, which the former has made; and what
    the encoder leaves for the whole run.
    """
    workspaces = expert_workspace_bytes(model, batch) if rules.lasting_workspaces else 0
    peak = max(forward_bytes(model, batch, rules), workspaces + sampler_bytes(model, batch, rules))
    peak = max(peak + encoder_kept_bytes(model, batch, rules), encoder_bytes(model, batch, rules))
    return peak + (sampler_state_bytes(model, batch, rules) if rules.sampler_state_charged else 0)


OLDER_CARDS_BYTES, OLDER_CARDS_RANKS_BYTES = int(0.06 * GIB), int(0.14 * GIB)
"""Medians of the public starts (tests/truth/field): at one rank as printed, among ranks by what they leave room for."""


def non_torch_bytes(batch: Batch, rules: EngineMemoryRules) -> int:
    """Memory outside of torch's allocator that profiling adds: modules of kernels that are loaded.

    At one rank on Hopper the mean of the starts by runner (V2 0.22 in each, V1 0.24 to 0.26; memory_fit.py of
    tests/accuracy); among ranks by version. Before 0.11, and on cards before Hopper, whose kernels are fewer, public
    starts print 0.02 to 0.09 GiB at one rank (T4, L4, A100, RTX 4090, H100), and leave room for 0.05 to 0.17 at two
    and four (A100, RTX 3090).
    """
    older = batch.device.compute_capability.startswith(("7.", "8."))
    if batch.tensor_parallel_size > 1 and older:
        return min(rules.multi_rank_non_torch_bytes, OLDER_CARDS_RANKS_BYTES)
    if batch.tensor_parallel_size == 1 and (older or rules.few_kernels):
        return OLDER_CARDS_BYTES
    if batch.tensor_parallel_size > 1:
        fuses = batch.device.compute_capability.startswith(("9.", "10."))
        return rules.multi_rank_non_torch_bytes + (rules.fused_all_reduce_bytes if fuses else 0)
    return int((0.22 if rules.runner_v2 else 0.25) * GIB)


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
    """What generation takes beyond the activation that is charged.

    Half of a forward pass to all of it (nvidia-smi after generation, less context, weights, pool, graphs, penalty
    counts and activation, on H200, 0.26: 0.85 and 1.17 GiB of 1.7 with Llama-3.1-8B, 2.64 of 2.5 with Qwen3-32B-FP8,
    0.15 with experts, whose sampler's peak is larger); 0.5 GiB at least.
    """
    return max(GIB // 2, int(1.1 * forward_bytes(model, batch)))


WORKSPACE_BYTES = 394 * MIB
"""FlashInfer's workspace, made when it is first needed (v1/attention/backends/flashinfer.py)."""


def workspace_bytes(batch: Batch) -> int:
    """That workspace where FlashInfer's attention is the default: on SM100 (platforms/cuda.py); none elsewhere.

    nvidia-smi after starts with FlashAttention on H200 has no room for it (2,048 batched tokens: 1.48 GiB beside
    weights and cache, of which context, non-torch and graphs are 1.14).
    """
    return WORKSPACE_BYTES if batch.device.data_center_blackwell else 0


def outside_start_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What a start needs outside of the budget at the least; with less it dies in its warm-up.

    The low ends of what was seen: 0.51 GiB of context (1.5 among ranks), four fifths of the graphs that aren't charged,
    and the workspace. With experts on runner V1 the sampler's warm-up counts too: its room is taken by the experts'
    workspaces (gpt-oss-20b dies at 0.95 on an 80-GB H100 with 0.19; dense models with larger samplers start).
    """
    context = int((0.51 if batch.tensor_parallel_size == 1 else 1.5) * GIB)
    graphs = 0 if rules.graphs_charged else graph_bytes(model, batch, rules) * 4 // 5
    state = _uncharged_state(model, batch, rules)
    return context + graphs + state + workspace_bytes(batch) + _sampler_outside(model, batch, rules)


def _sampler_outside(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    if model.mixture is None or rules.runner_v2:
        return 0
    return sampler_bytes(model, batch, replace(rules, sampler_sorts=False))


def _uncharged_state(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    return 0 if rules.sampler_state_charged else sampler_state_bytes(model, batch, rules)


def outside_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules) -> int:
    """What must fit outside of the budget while it serves."""
    graphs = 0 if rules.graphs_charged else graph_bytes(model, batch, rules)
    growth = max(growth_bytes(model, batch), _sampler_outside(model, batch, rules))
    state = _uncharged_state(model, batch, rules)
    return context_bytes(batch) + graphs + state + workspace_bytes(batch) + growth


MARGIN_BYTES = GIB // 2
"""What a plan keeps back for what the account may be wrong by: more than three times the worst error of a start
that its constants weren't fitted to (0.14 GiB, `make accuracy`)."""


def margin_bytes(total_bytes: int) -> int:
    """What a plan keeps back: half a GiB, on small cards 1 %. An estimate has none."""
    return min(MARGIN_BYTES, total_bytes // 100)


def outside_margin_bytes(total_bytes: int) -> int:
    """What a plan keeps free outside of the budget beyond `outside_bytes`: 2 % of the card, at most 1.5 GiB.

    What lies outside is known worse than what is inside (graphs within 0.45 GiB of the recorded starts, growth from a
    few of them), and to be wrong there ends an engine that serves, where inside it costs some cache.
    """
    return min(3 * GIB // 2, total_bytes // 50)


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
    return Account(
        total=total_bytes,
        requested=requested_bytes(total_bytes, utilization),
        weights=weights_bytes,
        activation=activation_bytes(model, batch, rules),
        non_torch=non_torch_bytes(batch, rules),
        graphs=graph_bytes(model, batch, rules),
        graphs_charged=graph_estimate_bytes(model, batch, rules) if rules.graphs_charged else 0,
        extras=lora_bytes(model, batch) + draft_bytes(model, batch, weights_bytes),
        margin=margin_bytes(total_bytes),
        outside=outside_bytes(model, batch, rules),
    )


def safe_utilization(
    *, total_bytes: int, model: Architecture, batch: Batch, rules: EngineMemoryRules
) -> float:
    """The highest share of the card whose rest holds what must fit outside of the budget, and its margin.

    In hundredths, at most 0.95; 0.0 if nothing is left.
    """
    outside = outside_bytes(model, batch, rules) + outside_margin_bytes(total_bytes)
    share = 1.0 - outside / total_bytes
    return max(0.0, min(0.95, math.floor(share * 100) / 100))


def start_limit(*, total_bytes: int, model: Architecture, batch: Batch, rules: EngineMemoryRules) -> float:
    """The highest share at which a start can survive at all; above it the engine dies in its warm-up."""
    return 1.0 - outside_start_bytes(model, batch, rules) / total_bytes
