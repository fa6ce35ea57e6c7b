"""Which batches a CUDA graph holds, and how far it pads them (vLLM config/vllm.py, `_set_cudagraph_sizes`)."""

from dataclasses import dataclass

from llmservice_operator.perfmodel.shapes import ceil_div

LARGEST_CAPTURE = 512
WIDE_CAPTURE = 1024
"""On compute capability 10; and for checkpoints whose experts are MXFP4 natively, whatever max_num_seqs is
(model_executor/models/config.py; seen: 1,024 tokens of gpt-oss-20b keep the graph on an H200)."""
_WIDE_CAPTURE_GENERATION = "10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The captured sizes."""

    largest_tokens: int
    """0: nothing is captured."""
    max_num_seqs: int

    def holds(self, tokens: int) -> bool:
        """Whether a graph of this many tokens, or somewhat more, was captured."""
        return 0 < tokens <= self.largest_tokens

    def padded(self, tokens: int) -> int:
        """Tokens that the graph runs: 1, 2, 4, then steps of 8, from 256 on steps of 16, and max_num_seqs."""
        if not self.holds(tokens):
            return tokens
        step = 16 if tokens > 248 else 8
        size = tokens if tokens <= 2 else 4 if tokens <= 4 else ceil_div(tokens, step) * step
        if tokens <= self.max_num_seqs < size:
            return self.max_num_seqs
        return min(size, self.largest_tokens)


def capture_sizes(
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    compute_capability: str | None,
    enforce_eager: bool,
    native_mxfp4: bool = False,
) -> Capture:
    """What an engine captures with these knobs."""
    major = (compute_capability or "").split(".")[0]
    largest = min(WIDE_CAPTURE if major == _WIDE_CAPTURE_GENERATION else LARGEST_CAPTURE, 2 * max_num_seqs)
    if native_mxfp4:
        largest = WIDE_CAPTURE
    return Capture(
        largest_tokens=0 if enforce_eager else min(largest, max_num_batched_tokens), max_num_seqs=max_num_seqs
    )
