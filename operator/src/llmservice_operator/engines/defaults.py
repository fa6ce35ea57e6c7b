"""What vLLM takes for a flag that isn't set, by version, card and entry point (`vllm/engine/arg_utils.py`)."""

from dataclasses import dataclass
from typing import Literal

from llmservice_operator.engines.versions import Version
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.memory import GIB

EntryPoint = Literal["server", "llm"]
"""`vllm serve`, or the class LLM in a program."""

CARD_OVERHEAD_BYTES = GIB // 2
"""What the driver counts (NVML) beyond the total that CUDA reports: the tiers go by the former (H200: 140.4 and
139.8 GiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDefaults:
    """max_num_batched_tokens and max_num_seqs of a tier, and the tier in words."""

    tokens: int
    seqs: int
    tier: str


def utilization(version: Version) -> float:
    """`gpu_memory_utilization`: 0.9 in 0.19.0 and before, 0.92 in 0.20.2 and after (`vllm/config/cache.py`)."""
    return 0.9 if version < (0, 20, 0) else 0.92


def batch_defaults(
    version: Version, card: AcceleratorRow, entry_point: EntryPoint, *, ranks: int = 1
) -> BatchDefaults:
    """The tier of this card (`get_batch_defaults`).

    From 0.9 on an A100 counts as small whatever its memory, from 0.33 on a GB10 too; the tier of 160 GiB is there
    from 0.28 on.
    """
    server = entry_point == "server"
    if card.is_cpu:
        return BatchDefaults(
            tokens=(2048 if server else 4096) * ranks, seqs=(128 if server else 256) * ranks, tier="a CPU"
        )
    size = card.memory_bytes + CARD_OVERHEAD_BYTES
    named_small = version >= (0, 9, 0) and "a100" in card.name.lower()
    named_small = named_small or (version >= (0, 33, 0) and card.compute_capability == "12.1")
    if size >= 160 * GIB and version >= (0, 28, 0):
        return BatchDefaults(tokens=16384, seqs=1024, tier="cards of 160 GiB and more")
    if size >= 70 * GIB and not named_small:
        return BatchDefaults(tokens=8192 if server else 16384, seqs=1024, tier="cards of 70 GiB and more")
    tier = "this kind of card" if named_small else "cards below 70 GiB"
    return BatchDefaults(tokens=2048 if server else 8192, seqs=256, tier=tier)


def runs_on_v0(version: Version, card: AcceleratorRow) -> bool:
    """Whether the engine falls back to V0: below compute capability 8.0 until V0 went in 0.11.

    (`_is_v1_supported_oracle` of 0.8.5.)
    """
    return version < (0, 11, 0) and card.capability is not None and card.capability < (8, 0)


def batches_in_flight(version: Version, *, asynchronous: bool, pipeline_parallel_size: int, v2: bool) -> int:
    """Batches whose tokens a sliding window keeps (`max_concurrent_batches` of 0.26).

    Until 0.24 it keeps one, and 0.25 does: two starts of DeepSeek-V4-Flash on B200 print 20.4 and 19.6 requests of
    1,048,576 tokens a rank, and two batches would leave 14.
    """
    if version < (0, 26, 0):
        return 1
    if asynchronous and v2:
        return pipeline_parallel_size + 1
    return 2 if asynchronous and pipeline_parallel_size <= 1 else pipeline_parallel_size


_V2_DRAFTS = ("eagle", "eagle3", "mtp", "dflash", "dspark")
_V1_SWITCHES = frozenset(
    {
        "enable_dbo",
        "enable_elastic_ep",
        "enable_return_routed_experts",
        "enable_prompt_embeds",
        "kv_sharing_fast_prefill",
    }
)


def drops_v2(version: Version, *, speculation: str, switches: frozenset[str]) -> bool:
    """Whether a feature sends the model back to runner V1 (`_get_v2_model_runner_unsupported_features` of 0.26, 0.33).

    `speculation` is its method, empty for none; `switches` are the flags that are on.
    """
    if version >= (0, 30, 0):
        return speculation in {"suffix", "custom_class"}
    drafts = speculation in _V2_DRAFTS or speculation.endswith("_mtp")
    return bool(speculation and not drafts) or bool(switches & _V1_SWITCHES)


def full_graphs_by_default(version: Version) -> bool:
    """Whether decode batches get graphs of the whole model: piecewise ones only before 0.11 (config/compilation.py)."""
    return version >= (0, 11, 0)
