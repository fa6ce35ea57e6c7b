"""What a tensor takes of the device: PyTorch's caching allocator gives more than it is asked for.

c10/cuda/CUDACachingAllocator.cpp: up to 1 MiB a tensor lies in a small segment; up to 10 MiB it is cut out of a segment
of 20 MiB; a larger one has a segment of its own, a multiple of 2 MiB, whose rest is cut off for others only if it is
more than 1 MiB. Where `max_split_size` holds (20 MiB while vLLM loads a model, from 0.22 on: v1/worker/gpu_worker.py)
nothing is cut off a tensor of that size. `Model loading took` counts what is given, not what was asked for.
"""

MIB = 1 << 20
SMALL_BYTES = MIB
"""kSmallSize: the rest of a segment up to this isn't cut off."""
OWN_SEGMENT_BYTES = 10 * MIB
"""kMinLargeAlloc."""
SEGMENT_STEP_BYTES = 2 * MIB
"""kRoundLarge."""
ROUNDING_BYTES = 512
"""kMinBlockSize."""
UNSPLIT_BYTES = 20 * MIB
_UNSPLIT_FROM = (0, 22, 0)


def given_bytes(asked: int, *, engine_version: tuple[int, int, int]) -> int:
    """Bytes that a tensor of `asked` bytes takes when a model is loaded by this version."""
    rounded = -(-asked // ROUNDING_BYTES) * ROUNDING_BYTES
    if rounded < OWN_SEGMENT_BYTES:
        return rounded
    rest = -rounded % SEGMENT_STEP_BYTES
    whole = engine_version >= _UNSPLIT_FROM and rounded >= UNSPLIT_BYTES
    return rounded + rest if whole or rest <= SMALL_BYTES else rounded
