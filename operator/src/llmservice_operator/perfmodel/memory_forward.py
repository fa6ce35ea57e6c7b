"""Peak of one forward pass of max_num_batched_tokens tokens: what is alive at once, by kind of layer.

The profile run skips attention itself, and it runs compiled code unless `--enforce-eager` is set. vLLM splits the
graph at attention and hands each piece its inputs as arguments, which live as long as the piece runs: attention's
output and the residual. In a piece come the new residual, and one after the other gate and up, their product, and the
output. Kernels that have variants are timed at their first launch, which takes a buffer as large as the L2 cache
(torch/_inductor/runtime/benchmarking.py). Peaks of 0.26 on H200 and 0.19 on H100 come back within 0.01 GiB by this
(tests/accuracy).
"""

from llmservice_operator.perfmodel.memory_compressed import compressed_bytes
from llmservice_operator.perfmodel.memory_types import Batch, EngineMemoryRules
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture, Mixture, Shard, Weight, ceil_div

_LATENT_ROWS_MAX = 64 * 1024
"""Rows at most of the workspace for latent contexts (mla_attention.py, determine_chunked_prefill_workspace_size)."""


_EAGER_ROWS, _EAGER_ROWS_OF_STATE_MODELS = 3, 5
"""Tensors of tokens x hidden size that eager mode keeps beside a feed-forward."""


def forward_bytes(model: Architecture, batch: Batch, rules: EngineMemoryRules | None = None) -> int:
    """Peak of one forward pass, beside the weights. Without rules: of the tensors alone, no GPU's scratch."""
    scratch = _scratch(batch) if rules is not None else 0
    row = batch.max_num_batched_tokens * model.hidden_size * DTYPE_BYTES[batch.dtype]
    peak = _dense_bytes(model, batch, row) + scratch if model.intermediate_size else 0
    if model.mixture is not None:
        peak = max(peak, _routed_bytes(model, batch, row) + scratch)
    latent = latent_rehearsal_bytes(model, batch) if rules is None or rules.latent_rehearsed else 0
    if latent:
        beside = latent + _latent_arguments(model, batch) + row + batch.device.matmul_workspace_bytes
        peak = max(peak, expert_workspace_bytes(model, batch) + beside)
    peak = max(peak, compressed_bytes(model, batch))
    if rules is not None and rules.compile_benchmarks:
        peak = max(peak, compile_bytes(model, batch, row))
    return peak


def compile_bytes(model: Architecture, batch: Batch, row: int) -> int:
    """Peak while the first piece is compiled.

    Combined kernels are timed on made-up inputs (`benchmark_combo_kernel`): the piece with the embedding gets a table
    of its size, and two outputs; under FP8 a third of one byte. A floor of every start with few tokens: 1.01 GiB at
    2,048, 1.10 at 8,192 (Llama-3.1-8B), 2.27 (70B in FP8; 0.26, H200). A model whose encoder runs embeds outside of
    the compiled graph.
    """
    embeds = _projection(model, "embed_tokens") is not None
    if batch.enforce_eager or not embeds or (model.vision is not None and batch.multimodal):
        return 0
    rows = Weight(
        module="embed_tokens", rows=model.vocab_size, columns=model.hidden_size, shard=Shard.VOCABULARY
    ).elements(batch.tensor_parallel_size)
    quantized = batch.max_num_batched_tokens * model.hidden_size if batch.fp8_weights else 0
    return rows * DTYPE_BYTES[batch.dtype] + 2 * row + quantized


def _projection(model: Architecture, *names: str) -> Weight | None:
    """The first weight of one of these names."""
    return next((found for name in names if (found := model.weight_kinds.get(name)) is not None), None)


def _attention_row(model: Architecture, batch: Batch) -> int:
    """Attention's output of all tokens on one rank: the input of its output projection."""
    output = _projection(model, "self_attn.o_proj", "mixer.o_proj")
    columns = output.columns if output is not None else model.num_attention_heads * model.head_size
    return _row(columns, batch)


def _row(width: int, batch: Batch) -> int:
    """All tokens, and a rank's share of this width."""
    share = ceil_div(width, batch.tensor_parallel_size)
    return batch.max_num_batched_tokens * share * DTYPE_BYTES[batch.dtype]


def _piece_arguments(model: Architecture, batch: Batch) -> int:
    """What a piece of the compiled graph is handed beside the residual, for the layers that hand over most.

    Attention: its output, and the gate of the output. Linear attention and Mamba: their output, and the gate, which is
    a part of the whole input projection and keeps it alive (mamba/gdn/qwen_gdn_linear_attn.py, mamba_mixer2.py).
    """
    kinds = model.weight_kinds
    found = [_attention_row(model, batch)]
    queries, output = kinds.get("self_attn.q_proj"), kinds.get("self_attn.o_proj")
    if queries is not None and output is not None and queries.rows == 2 * output.columns:
        found.append(2 * found[0])
    for prefix, inputs in (
        ("linear_attn", ("in_proj_qkv", "in_proj_z")),
        ("mamba", ("in_proj",)),
        ("mixer", ("in_proj",)),
    ):
        rows = sum(each.rows for name in inputs if (each := kinds.get(f"{prefix}.{name}")) is not None)
        out = kinds.get(f"{prefix}.out_proj")
        if rows and out is not None:
            found.append(_row(rows, batch) + _row(out.columns, batch))
    return max(found)


def _latent_arguments(model: Architecture, batch: Batch) -> int:
    """Queries, latents and the output of latent attention, all tokens on one rank."""
    queries = _projection(model, "self_attn.q_proj", "self_attn.q_b_proj")
    latents = _projection(model, "self_attn.kv_a_proj_with_mqa")
    width = ceil_div(queries.rows, batch.tensor_parallel_size) if queries is not None else 0
    width += latents.rows if latents is not None else 0
    return batch.max_num_batched_tokens * width * DTYPE_BYTES[batch.dtype] + _attention_row(model, batch)


def _dense_bytes(model: Architecture, batch: Batch, row: int) -> int:
    """A dense feed-forward: gate and up, the product, and what the piece's arguments keep alive.

    Under FP8 the kernel that multiplies also quantises: one byte, and with scales for blocks a float32 for each 128.
    Eager mode keeps the layer's input in place of attention's output; models with a state norm into new tensors, and
    keep gate and up while they project down (GemmaRMSNorm, Qwen2MoeMLP: 1.22 GiB of Qwen3.5-27B at 8,192 tokens).
    """
    tokens, width = batch.max_num_batched_tokens, DTYPE_BYTES[batch.dtype]
    inner = tokens * ceil_div(model.intermediate_size, batch.tensor_parallel_size)
    up = inner * width * (2 if model.gated else 1)
    if batch.fp8_weights and not batch.enforce_eager:
        product = inner + (inner // 128 * 4 if batch.block_scaled else 0)
    else:
        product = inner * width
    if batch.enforce_eager:
        return up + product + row * (_EAGER_ROWS_OF_STATE_MODELS if model.has_state else _EAGER_ROWS)
    return up + product + _piece_arguments(model, batch) + 2 * row


def _scratch(batch: Batch) -> int:
    """Workspace of cuBLAS, and the buffer that flushes the cache between timed launches; neither under block scales."""
    if batch.block_scaled:
        return 0
    return batch.device.matmul_workspace_bytes + (0 if batch.enforce_eager else batch.device.l2_cache_bytes)


def expert_workspace_bytes(model: Architecture, batch: Batch) -> int:
    """The two workspaces of routed experts, of all routed tokens (fused_moe/experts/triton_moe.py, marlin_moe.py).

    One holds the larger of the product and the output, the other the larger of gate-and-up and the output. MXFP4
    experts on Hopper (OAI's Triton kernels, monolithic) and FlashInfer's kernels on SM100 have none.
    """
    if model.mixture is None or _monolithic(batch) or batch.device.data_center_blackwell:
        return 0
    rows = batch.max_num_batched_tokens * model.mixture.experts_per_token
    inner = _expert_inner(model.mixture, batch)
    up = 2 * inner if model.gated else inner
    hidden = model.hidden_size
    return rows * DTYPE_BYTES[batch.dtype] * (max(inner, hidden) + max(up, hidden))


def _expert_inner(mixture: Mixture, batch: Batch) -> int:
    """Intermediate size of an expert on a rank."""
    return ceil_div(mixture.intermediate_size, 1 if batch.expert_parallel else batch.tensor_parallel_size)


def _monolithic(batch: Batch) -> bool:
    """Whether one kernel does all of an MXFP4 expert layer, with buffers of its own (oracle/mxfp4.py)."""
    return batch.expert_format == "MXFP4" and batch.device.compute_capability == "9.0"


def _routed_bytes(model: Architecture, batch: Batch, row: int) -> int:
    """A layer of experts.

    Workspaces, and beside them the piece's arguments, two residuals, the experts' output, and the next norm's two
    outputs, whose kernel is timed then; with shared experts their output and the sum (1.78 GiB of Mixtral-8x7B, 1.09
    of Nemotron-3-Nano, both at 8,192 tokens, 0.26, H200).

    MXFP4's kernels make the product and the scattered outputs inside.
    """
    mixture = model.mixture
    if mixture is None:
        return 0
    tokens, width = batch.max_num_batched_tokens, DTYPE_BYTES[batch.dtype]
    inside = 0
    if _monolithic(batch):
        inner = _expert_inner(mixture, batch)
        inside = tokens * mixture.experts_per_token * width * (inner + model.hidden_size)
    shared = any(name.endswith("shared_expert.up_proj") for name in model.weight_kinds)
    beside = _piece_arguments(model, batch) + (7 if shared else 5) * row
    return expert_workspace_bytes(model, batch) + inside + beside


def latent_rehearsal_bytes(model: Architecture, batch: Batch) -> int:
    """What a latent context of the workspace's length would be expanded to, for all heads of the rank.

    `torch.empty((workspace rows, heads, nope + v))` in the profile run (mla_attention.py). Read off the projection
    that expands it.
    """
    expand = _projection(model, "self_attn.kv_b_proj")
    if expand is None:
        return 0
    length = batch.max_model_len or model.max_model_len
    pages = batch.max_num_seqs * batch.block_size
    rows = max(min(max(8 * length, 4 * pages), _LATENT_ROWS_MAX), pages)
    return rows * ceil_div(expand.rows, batch.tensor_parallel_size) * DTYPE_BYTES[batch.dtype]
