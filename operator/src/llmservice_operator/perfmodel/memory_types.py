"""What a memory account depends on: the engine's rules, the batch knobs, the formats of the weights."""

from dataclasses import dataclass

from llmservice_operator.perfmodel.capture import USUAL_RULE, CaptureRule
from llmservice_operator.perfmodel.device_shape import HOPPER, DeviceShape
from llmservice_operator.perfmodel.quantization import Quantization

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemoryRules:
    """What an engine's version does with memory. Made by engines/, read here."""

    runner_v2: bool
    """Model runner V2 runs the model; V1 otherwise."""
    graphs_charged: bool
    """Whether an estimate of the CUDA graphs is taken from the budget."""
    multi_rank_non_torch_bytes: int
    """Non-torch memory of a rank among several, beside what the next term says."""
    few_kernels: bool = False
    """Few kernels are loaded before profiling ends (before 0.11): little non-torch memory at one rank."""
    fused_all_reduce_bytes: int = 0
    """Workspace of FlashInfer's all-reduce with a norm, on Hopper and SM100 (config/vllm.py
    `enable_allreduce_rms_fusion`)."""
    graphs_by_estimate: bool = True
    """V1's graphs take about what it estimates (from 0.20 on); more, by layer, before."""
    sampler_sorts: bool = False
    """Top-k and top-p sort the logits (before 0.17); a Triton kernel finds thresholds in place from then on."""
    sampler_flashinfer: bool = False
    """FlashInfer's sampler is the default where it is installed (before 0.11)."""
    lasting_workspaces: bool = True
    """The experts' workspaces stay once they are made (from 0.14 on, v1/worker/workspace.py)."""
    compile_benchmarks: bool = True
    """Inductor times combined kernels on made-up inputs while it compiles (from 0.12 on, config/compilation.py)."""
    latent_rehearsed: bool = True
    """Profiling allocates what a latent context would be expanded to (from 0.12 on, mla_attention.py)."""
    videos_fill_context: bool = False
    """The dummy video of profiling is as long as the context allows (until 0.13; models/qwen3_vl.py)."""
    sampler_state_charged: bool = False
    """V2: the penalties' state is in the budget (from 0.28 on, where free memory is compared before and after)."""
    sampler_rehearsed: bool = False
    """V2: profiling samples once more with every processor on, over float32 copies (0.33)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch knobs, and the shape of the replica."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    dtype: str
    fp8_weights: bool = False
    block_scaled: bool = False
    """FP8 with a scale for each block of weights: activations are quantised in groups."""
    expert_format: str = ""
    """Format of the routed experts, as `Format.name` says it; empty: the model's dtype."""
    expert_parallel: bool = False
    """Experts are whole on a rank, and spread over ranks."""
    enforce_eager: bool = False
    captures: tuple[int, ...] = ()
    """Batch sizes of CUDA graphs that a flag names; empty: the engine's own."""
    largest_capture: int | None = None
    """The largest of the engine's own; None: as the rule and the other knobs have it."""
    capture_rule: CaptureRule = USUAL_RULE
    piecewise_graphs: bool = True
    full_graphs: bool = True
    multimodal: bool = False
    """Whether the encoder runs: a vision model that isn't limited to text."""
    max_lora_rank: int = 0
    """Rank of LoRA slots; 0: none."""
    max_loras: int = 0
    speculative: bool = False
    """Whether a draft model or multi-token-prediction layers run beside the model."""
    flashinfer_sampler: bool = True
    """VLLM_USE_FLASHINFER_SAMPLER. Since the kernel that needs no sort (0.17) both samplers take as much."""
    max_model_len: int = 0
    """0: long enough not to matter. Latent attention's workspace depends on it."""
    block_size: int = 16
    device: DeviceShape = HOPPER

    @property
    def sampled_rows(self) -> int:
        """Requests of the profile run: one token each at the least."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


def format_fields(quantization: Quantization) -> tuple[bool, bool, str]:
    """`fp8_weights`, `block_scaled` and `expert_format` of a Batch for these weights."""
    fmt = quantization.default
    name = fmt.name if fmt is not None else ""
    return (name == "FP8", name == "FP8" and quantization.block_size > 0, name)
