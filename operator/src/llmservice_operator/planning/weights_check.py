"""The weights twice: as config.json tells their shapes, and as the checkpoint has them. Pure.

The shapes decide what an engine allocates, so the account is theirs. Where the checkpoint has clearly more, one of the
two is wrong, and a plan takes the larger: a careful one can be corrected, one that is too bold does not start.
"""

from dataclasses import dataclass, replace

from llmservice_operator.perfmodel.checkpoint import Checkpoint
from llmservice_operator.perfmodel.memo import remembered
from llmservice_operator.perfmodel.quantization import Quantization
from llmservice_operator.perfmodel.shapes import DTYPE_BYTES, Architecture
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.words import gib

HEADERS_TOLERANCE = 0.02
"""Of tensors counted one by one: padding and scales."""
TOTAL_TOLERANCE = 0.05
"""Of a total: prediction layers and vision towers are in it, 1.3 to 3.5 % on models that have them."""
LARGER_TOTAL = 0.1
"""From here on a total that may hold what isn't loaded is believed against the shapes."""


@remembered
def _stored_bytes(model: Architecture, quantization: Quantization, *, dtype: str, with_vision: bool) -> int:
    """Bytes of the whole model without tables that the engine makes itself."""
    stored = tuple(each for each in model.weights if each.in_checkpoint)
    return rank_weight_bytes(
        replace(model, weights=stored),
        quantization,
        dtype=dtype,
        tensor_parallel_size=1,
        with_vision=with_vision,
    )


@dataclass(frozen=True, kw_only=True)
class WeightsCheck:
    """One model's shapes beside its checkpoint, as it is to be served."""

    model: Architecture
    quantization: Quantization
    dtype: str
    vision: bool
    """Whether the encoder is loaded."""
    mtp: bool
    """Whether prediction layers are."""
    checkpoint: Checkpoint | None = None
    total_bytes: int | None = None
    """Of the checkpoint, where its tensors aren't known."""
    problem: str = ""
    """Why the checkpoint isn't known as well as it could be."""

    @property
    def exact_bytes(self) -> int | None:
        """Bytes that the checkpoint brings onto accelerators in all; None where that isn't known."""
        if self.quantization.online:
            return None
        if self.checkpoint is not None:
            return self.checkpoint.loaded_bytes(
                vision=self.vision,
                mtp=self.mtp,
                float_bytes=None if self.quantization.method else DTYPE_BYTES[self.dtype],
            )
        same_width = DTYPE_BYTES[self.dtype] == DTYPE_BYTES[self.model.dtype]
        return self.total_bytes if same_width else None

    @property
    def derived_bytes(self) -> int:
        """The same from the shapes."""
        return _stored_bytes(self.model, self.quantization, dtype=self.dtype, with_vision=self.vision)

    @property
    def larger_share(self) -> float:
        """By what the shapes' bytes are to be multiplied, since the checkpoint has clearly more; else 1."""
        exact = self.exact_bytes
        if exact is None:
            return 1.0
        share = exact / self.derived_bytes
        return share if share > 1 + (LARGER_TOTAL if self.checkpoint is None else HEADERS_TOLERANCE) else 1.0

    def told(self) -> str:
        """What the checkpoint has, to stand beside what the shapes tell; empty where it isn't known."""
        exact = self.exact_bytes
        if exact is None:
            return ""
        if self.checkpoint is None:
            return f"; the checkpoint has {gib(exact)}"
        left = self.checkpoint.total_bytes - self.checkpoint.loaded_bytes(vision=self.vision, mtp=self.mtp)
        unloaded = f", {gib(left)} more are not loaded" if left > 0 else ""
        return f"; the checkpoint's {self.checkpoint.tensors:,} tensors have {gib(exact)}{unloaded}"

    def warnings(self, *, larger_counts: bool) -> list[str]:
        """Where shapes and checkpoint differ. `larger_counts`: whether the account took the larger of them."""
        found = [f"the checkpoint: {self.problem}"] if self.problem else []
        exact = self.exact_bytes
        if exact is None:
            return found
        derived = self.derived_bytes
        tolerance = TOTAL_TOLERANCE if self.checkpoint is None else HEADERS_TOLERANCE
        if abs(exact - derived) > tolerance * derived:
            larger = larger_counts and self.larger_share > 1
            counts = f"{gib(exact)} is planned for" if larger else "the shapes are planned for"
            found.append(
                f"the checkpoint has {gib(exact)}, its config.json tells of {gib(derived)}: one of them is wrong, or "
                f"holds what isn't loaded; {counts}"
            )
        return found
