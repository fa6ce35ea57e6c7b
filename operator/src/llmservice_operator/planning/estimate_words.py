"""Where each number of an estimate is from, in words."""

from typing import Any

from llmservice_operator.perfmodel.weights import parameter_count, quantized_share
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_trial import Trial
from llmservice_operator.planning.words import gib, tokens


def explain_gpu(trial: Trial) -> dict[str, Any]:
    """The keys of `memory` and `kv_cache` → where each number is from."""
    return {
        "memory": _memory(trial),
        "kv_cache": _kv_cache(trial),
        "settings": dict(sorted(trial.settings.sources.items())),
    }


def _memory(trial: Trial) -> dict[str, str]:
    held, settings, batch = trial.account, trial.settings, trial.batch
    row = settings.card
    outside = "context, graphs that aren't charged, workspaces and growth while serving"
    graphs = f"up to {settings.captures.largest} tokens over {trial.model.num_layers} layers"
    charged = (
        "charged to the budget" if held.graphs_charged else "outside of the budget in this version and runner"
    )
    return {
        "total_bytes": f"{row.name}: {row.sources.get('memory', 'the catalogue')}",
        "requested_bytes": f"ceil(total x gpu_memory_utilization {settings.utilization:g}) (v1/worker/utils.py)",
        "weights_bytes": _weights(trial),
        "activation_bytes": f"largest of forward pass at {batch.max_num_batched_tokens:,} batched tokens, sampler at "
        f"{batch.max_num_seqs:,} sequences x {trial.model.vocab_size:,} of vocabulary, and encoder; and the runner's "
        "own buffers",
        "non_torch_bytes": "memory outside of torch's allocator (measured on H100 and H200)",
        "cuda_graph_bytes": f"{graphs}; {charged}" if held.graphs else "no graphs are captured",
        "cuda_graph_charged_bytes": charged if held.graphs else "no graphs",
        "kv_cache_bytes": _pool(trial),
        "outside_budget_bytes": f"{outside}; total - requested leaves {gib(held.total - held.requested)}",
    }


def _weights(trial: Trial) -> str:
    settings, model = trial.settings, trial.whole
    share = quantized_share(model, settings.quantization)
    stored = (
        f"{settings.quantization.method} for {share:.0%}, the rest {settings.dtype}"
        if share
        else settings.dtype
    )
    text = f"{parameter_count(model) / 1e9:.2f}e9 parameters ({model.kind}), {stored}"
    if settings.parallel.ranks > 1:
        text += f", one of {settings.parallel.ranks} ranks"
        text += ", the one with the fewest blocks" if settings.parallel.pipeline > 1 else ""
    text += settings.weights_told
    if settings.cpu_offload_bytes:
        text += f", less {gib(settings.cpu_offload_bytes)} in host memory"
    if trial.account.extras:
        text += f", with {gib(trial.account.extras)} of LoRA slots and draft"
    return text


def _pool(trial: Trial) -> str:
    if trial.settings.blocks_override is not None:
        return "num_gpu_blocks_override x bytes of a block"
    if trial.settings.kv_cache_bytes is not None:
        return "kv_cache_memory_bytes"
    return "requested - weights - activation - non-torch - charged graphs"


def _kv_cache(trial: Trial) -> dict[str, str]:
    layout, length = trial.layout, trial.length
    groups = f"{len(layout.groups)} group(s) of layers over one pool"
    per_request = trial.blocks_per_request(length or 1)
    raised = layout.block_size != trial.settings.block_size
    return {
        "tokens": f"max_concurrency x {tokens(length)}, as the engine prints it",
        "blocks": f"KV cache / {layout.bytes_per_block:,} B a block ({groups})",
        "block_size": "raised until an attention page holds a state (platforms/interface.py)"
        if raised
        else trial.settings.sources.get("block_size", ""),
        "bytes_per_token": f"all layers that grow with the context, one rank, {_cache_dtype(trial.settings)}",
        "max_concurrency": f"blocks / {per_request:,} blocks of one request of {tokens(length)}",
    }


def _cache_dtype(settings: Settings) -> str:
    return settings.dtype if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
