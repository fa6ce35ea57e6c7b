"""Which batches CUDA graphs are captured for where no flag says, and how far a batch is padded to one of them.

vLLM config/vllm.py, `_set_cudagraph_sizes`.
"""

from dataclasses import dataclass

from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import ceil_div

LARGEST_CAPTURE = 512
WIDE_CAPTURE = 1024
_WIDE_CARDS_FROM = (0, 33, 0)
"""Compute capability 10.x captures more in 0.33, not in 0.26."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRule:
    """The largest batch of an engine, before its knobs cut it."""

    most_tokens: int = LARGEST_CAPTURE
    follows_sequences: bool = True
    """Twice max_num_seqs at most."""

    def largest_tokens(
        self, *, max_num_seqs: int, max_num_batched_tokens: int, speculative_tokens: int = 0
    ) -> int:
        """The largest batch with these knobs."""
        most = min(self.most_tokens, max_num_batched_tokens)
        return min(most, 2 * max_num_seqs * (1 + speculative_tokens)) if self.follows_sequences else most


USUAL_RULE = CaptureRule()


def capture_rule(
    quantization: Quantization, *, engine_version: tuple[int, int, int], compute_capability: str | None
) -> CaptureRule:
    """The rule of this version, card and checkpoint.

    A checkpoint whose experts are MXFP4 natively captures 1,024 tokens whatever max_num_seqs is
    (model_executor/models/config.py; seen: prompts of 1,024 tokens of gpt-oss-20b keep the graph on an H200).
    """
    if quantization.method == "mxfp4":
        return CaptureRule(most_tokens=WIDE_CAPTURE, follows_sequences=False)
    wide = engine_version >= _WIDE_CARDS_FROM and (compute_capability or "").startswith("10.")
    return CaptureRule(most_tokens=WIDE_CAPTURE if wide else LARGEST_CAPTURE)


def captured_sizes(largest_tokens: int, *, max_num_seqs: int) -> list[int]:
    """All sizes, smallest first: 1, 2, 4, then steps of 8, from 256 on steps of 16, and max_num_seqs."""
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest_tokens + 1, 16), max_num_seqs}
    return sorted(size for size in sizes if size <= largest_tokens)


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
