"""What people's starts died of though the account had room: said, since no account holds it (tests/truth/field)."""

from dataclasses import replace

from llmservice_operator.perfmodel.memory import activation_bytes
from llmservice_operator.perfmodel.memory_compressed import has_compressed_attention
from llmservice_operator.planning.estimate_trial import Trial
from llmservice_operator.planning.words import gib

BOLDEST_UTILIZATION = 0.95
"""The most that a plan takes. The public starts above it on 0.12 and later died, after loading and while capturing
graphs; two on 0.11 served."""
_MORE_OUTSIDE_FROM = (0, 12, 0)
"""From here on communication and cuBLAS's handles are made before the engine measures, outside of its budget
(v1/worker/gpu_worker.py)."""
_V0_FALLS_BACK_BEFORE = (0, 9, 0)
"""Until then engine V0 takes over what V1 can't run, or all of it under VLLM_USE_V1=0."""
_V0_ENCODER_GIB = 4.3
"""More than V1 that V0's profile run took for an image and a video of full size (0.8.3, a tower of 32 layers)."""


def field_warnings(trial: Trial) -> list[str]:
    """Warnings from what happened to others."""
    found = []
    settings, held = trial.settings, trial.account
    bold = settings.utilization > BOLDEST_UTILIZATION and settings.kv_cache_bytes is None
    if bold and settings.version >= _MORE_OUTSIDE_FROM:
        found.append(
            f"gpu_memory_utilization {settings.utilization:g} leaves {gib(held.total - held.requested)} for all that "
            f"the engine doesn't count; public starts above {BOLDEST_UTILIZATION:g} died of it"
        )
    encodes = trial.model.vision is not None and settings.multimodal
    if encodes and settings.version < _V0_FALLS_BACK_BEFORE:
        found.append(
            f"vLLM before 0.9 may run this on engine V0, whose profile run takes some {_V0_ENCODER_GIB:g} GiB more for "
            "images and videos of full size; limit_mm_per_prompt bounds it"
        )
    sorting = _more_by_sorting(trial)
    pool, needed = trial.pool_bytes, trial.needed_bytes(trial.length)
    if sorting and pool - sorting < needed <= pool:
        found.append(
            f"vLLM before 0.11 samples with FlashInfer where it is installed, as in its images; from a plain wheel it "
            f"takes {gib(sorting)} more, and one request of {trial.length:,} tokens doesn't fit"
        )
    if has_compressed_attention(trial.model):
        found.append(
            f"compressed attention: what {trial.batch.max_num_batched_tokens:,} tokens of a forward pass take is known "
            "from four public starts alone; --kv-cache-memory-bytes makes it certain"
        )
    return found


def _more_by_sorting(trial: Trial) -> int:
    """What profiling takes more where FlashInfer's sampler is absent; 0 where it is never used or the pool is given."""
    if not trial.rules.sampler_flashinfer or trial.given_pool_bytes is not None:
        return 0
    plain = replace(trial.batch, flashinfer_sampler=False)
    return activation_bytes(trial.model, plain, trial.rules) - trial.account.activation
