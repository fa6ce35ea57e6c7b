"""vLLM's versions: which rules hold from which release on."""

import re
from dataclasses import dataclass

from llmservice_operator.perfmodel.kv_cache import COMPRESSED_BLOCK_SIZE, GPU_BLOCK_SIZE
from llmservice_operator.perfmodel.memory import GIB, EngineMemoryRules
from llmservice_operator.perfmodel.shapes import Architecture, AttentionCache

Version = tuple[int, int, int]

OLDEST_KNOWN: Version = (0, 8, 0)
NEWEST_KNOWN: Version = (0, 33, 0)

_V2_MIXTURES_0_26 = ("DeepseekV2", "GraniteMoe", "Inkling", "LongcatFlashNgram", "Qwen2Moe")
"""Beginnings of the architectures with experts that 0.26 runs on model runner V2 (config/vllm.py of 0.26.0)."""

_V2_FAMILIES_0_24 = frozenset(
    {
        "Qwen3ForCausalLM",
        "DeepseekV2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "GraniteMoeForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
    }
)
_V2_FAMILY_0_22 = "Qwen3ForCausalLM"
"""Architectures that earlier releases run on V2 (config/vllm.py of 0.24.0 and 0.22.1)."""

_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[.-]?(?:post|rc|dev)\d*)?(?:[-+._].*)?")
_ENGINE_REPOSITORIES = ("vllm-openai", "vllm-cpu", "vllm", "fake-engine")
"""Last parts of image names whose tags are the engine's version; other images have versions of their own."""


def parse_version(text: str) -> Version | None:
    """`0.26.0`, `v0.26.0`, `0.8.5.post1` → (major, minor, patch); None for what is none."""
    match = _TAG.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def version_from_image(image: str) -> str:
    """The engine's version as the image's tag tells it: `vllm/vllm-openai:v0.26.0-cu128` → `0.26.0`.

    Empty for `latest`, a digest alone, a nightly or an image whose tags are its vendor's own versions.
    """
    name = image.partition("@")[0]
    repository, separator, tag = name.rpartition(":")
    if not separator or "/" in tag:
        return ""
    last = repository.rpartition("/")[2]
    if not any(last == known or last.startswith(f"{known}-") for known in _ENGINE_REPOSITORIES):
        return ""
    version = parse_version(tag)
    return ".".join(str(part) for part in version) if version else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionNote:
    """What is said of a version that isn't known in full; empty: nothing."""

    version: Version
    warning: str


def known_version(text: str) -> VersionNote:
    """The version whose rules are used, and a warning where that is an assumption."""
    newest = ".".join(str(part) for part in NEWEST_KNOWN)
    version = parse_version(text) if text else None
    if version is None:
        said = (
            f"is {text!r}, which is no version"
            if text
            else "is unknown: neither spec.engine.version nor the image's tag tells it"
        )
        return VersionNote(
            version=NEWEST_KNOWN,
            warning=f"the engine's version {said}; the rules of vLLM {newest} are used; set spec.engine.version",
        )
    if version > NEWEST_KNOWN:
        return VersionNote(
            version=version,
            warning=f"vLLM {text} is newer than {newest}, the newest this release knows; the rules of "
            f"{newest} are used",
        )
    if version < OLDEST_KNOWN:
        return VersionNote(
            version=version,
            warning=f"vLLM {text} is older than 0.8, the oldest this release knows; its memory may differ",
        )
    return VersionNote(version=version, warning="")


def runs_on_v2(version: Version, model: Architecture, *, quantized: bool = False) -> bool:
    """Whether model runner V2 runs this model (config/vllm.py of each sampled release).

    0.22: one dense family, unquantised. 0.24: six families. 0.26 and 0.28: all but experts outside of a list, states
    and the attention-free. From 0.30 on all.
    """
    if version >= (0, 30, 0):
        return True
    if model.has_state or version < (0, 22, 0):
        return False
    if version >= (0, 26, 0):
        return model.mixture is None or model.name.startswith(_V2_MIXTURES_0_26)
    if version >= (0, 24, 0):
        return model.name in _V2_FAMILIES_0_24
    return model.name == _V2_FAMILY_0_22 and not quantized


def memory_rules(
    version: Version, model: Architecture, *, v2: bool | None = None, graphs_charged: bool | None = None
) -> EngineMemoryRules:
    """What this version does with memory; each rule's first sampled release is given where the rule is read.

    `v2` and `graphs_charged`: what the environment forces (VLLM_USE_V2_MODEL_RUNNER,
    VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS). Graphs: runner V1 charges an estimate from 0.20.2 on; V2 estimates none
    until 0.28 and does from 0.30 on.

    Non-torch at TP 2: 2.07 to 2.10 GiB on 0.19, H100, where FlashInfer's fused all-reduce has a workspace (from 0.18
    on); 0.07 (V2) and 0.10 (V1) on 0.26, H200, without nvcc, so without FlashInfer's. 0.4 before: two starts of 0.12
    on H100, one of 0.18 on four cards that don't fuse.
    """
    on_v2 = runs_on_v2(version, model) if v2 is None else v2
    estimates = version >= ((0, 30, 0) if on_v2 else (0, 18, 0))
    charged = version >= ((0, 30, 0) if on_v2 else (0, 20, 0)) if graphs_charged is None else graphs_charged
    return EngineMemoryRules(
        runner_v2=on_v2,
        graphs_charged=charged and estimates,
        multi_rank_non_torch_bytes=int((0.4 if version < (0, 20, 0) else 0.07 if on_v2 else 0.1) * GIB),
        fused_all_reduce_bytes=int(1.68 * GIB) if (0, 18, 0) <= version < (0, 20, 0) else 0,
        few_kernels=version < (0, 11, 0),
        graphs_by_estimate=version >= (0, 20, 0),
        sampler_sorts=version < (0, 17, 0),
        sampler_flashinfer=version < (0, 11, 0),
        lasting_workspaces=version >= (0, 14, 0),
        compile_benchmarks=version >= (0, 12, 0),
        latent_rehearsed=version >= (0, 12, 0),
        videos_fill_context=version < (0, 14, 0),
        sampler_state_charged=version >= (0, 28, 0),
        sampler_rehearsed=version >= (0, 33, 0),
    )


def gpu_block_size(version: Version, model: Architecture, compute_capability: str | None) -> int:
    """Tokens of a block where no flag says, before a hybrid raises it (platforms/cuda.py of sampled releases).

    Latent attention until 0.17: FlashMLA on Hopper forces 64, CUTLASS on SM100 128 (FlashInfer 64 from 0.16 on). From
    0.18 on the first backend that runs decides: FlashAttention takes 16 (seen on 0.26, H200), FlashInfer on SM100 32.
    Sparse latent attention, with an indexer beside the latent, 64.
    """
    latents = {
        each.key_size for each in model.caches if isinstance(each, AttentionCache) and each.kind == "latent"
    }
    capability = compute_capability or ""
    if any(isinstance(each, AttentionCache) and each.compress_ratio > 1 for each in model.caches):
        return COMPRESSED_BLOCK_SIZE
    if not latents:
        return GPU_BLOCK_SIZE
    if len(latents) > 1:
        return 64
    if capability.startswith("10."):
        return 128 if version < (0, 16, 0) else 64 if version < (0, 18, 0) else 32
    return 64 if capability == "9.0" and version < (0, 18, 0) else GPU_BLOCK_SIZE


def has_shutdown_timeout(version: Version) -> bool:
    """Whether `--shutdown-timeout` is there (absent in 0.16, present in 0.18.1)."""
    return version >= (0, 18, 0)


def tracks_server_load(version: Version) -> bool:
    """Whether `--enable-server-load-tracking` is there and right.

    It is there in 0.8.5, but until 0.9.1 a client that hangs up leaves its request in the count (vllm-project/vllm
    pull request 18784).
    """
    return version >= (0, 10, 0)


def leaves_endpoints_out_of_its_log(version: Version) -> bool:
    """Whether `--disable-access-log-for-endpoints` is there (absent in 0.15.1, present in 0.16.0)."""
    return version >= (0, 16, 0)


def counts_moved_bytes(version: Version) -> bool:
    """Whether `--enable-mfu-metrics` makes counters move (they are there in 0.17.0; 0.16.0 only logs the figures)."""
    return version >= (0, 17, 0)


def wants_a_state_for_each_sequence(version: Version) -> bool:
    """Whether capturing graphs refuses more sequences than the pool has blocks of states (config/compilation.py)."""
    return version >= (0, 20, 0)


def caches_prefixes_of_hybrids(version: Version) -> bool:
    """Whether prefix caching is on by default for models with a state (off in 0.26, on in 0.33)."""
    return version >= (0, 27, 0)
