"""The weights twice: as config.json tells their shapes, and as the checkpoint has them. Pure.

The shapes decide what an engine allocates, so the account is theirs. Where the checkpoint has clearly more, one of the
two is wrong, and the larger counts: a plan that is too careful can be corrected, one that is too bold does not start.
"""

from dataclasses import replace

from llmservice_operator.perfmodel.shapes import DTYPE_BYTES
from llmservice_operator.perfmodel.weights import rank_weight_bytes
from llmservice_operator.planning.case import Case
from llmservice_operator.planning.words import gib

HEADERS_TOLERANCE = 0.02
"""Of tensors counted one by one: padding and scales."""
TOTAL_TOLERANCE = 0.05
"""Of a total: prediction layers and vision towers are in it, 1.3 to 3.5 % on models that have them."""
LARGER_TOTAL = 0.1
"""From here on a total that may hold what isn't loaded is believed against the shapes."""


def exact_bytes(case: Case, dtype: str) -> int | None:
    """Bytes that the checkpoint brings onto accelerators in all; None where that isn't known."""
    facts = case.inputs.model
    if facts is None or case.quantization.online:
        return None
    if facts.checkpoint is not None:
        return facts.checkpoint.loaded_bytes(
            vision=case.switches.multimodal,
            mtp=case.switches.speculative,
            float_bytes=None if case.quantization.method else DTYPE_BYTES[dtype],
        )
    same_width = DTYPE_BYTES[dtype] == DTYPE_BYTES[case.model.dtype]
    return facts.weights_bytes if same_width else None


def derived_bytes(case: Case, dtype: str) -> int:
    """The same from the shapes: without tables that the engine makes itself."""
    stored = tuple(each for each in case.model.weights if each.in_checkpoint)
    return rank_weight_bytes(
        replace(case.model, weights=stored),
        case.quantization,
        dtype=dtype,
        tensor_parallel_size=1,
        with_vision=case.switches.multimodal,
    )


def larger_share(case: Case, dtype: str) -> float:
    """By what the shapes' bytes are to be multiplied, since the checkpoint has clearly more; else 1."""
    exact = exact_bytes(case, dtype)
    if exact is None:
        return 1.0
    share = exact / derived_bytes(case, dtype)
    counted = case.inputs.model is not None and case.inputs.model.checkpoint is not None
    return share if share > 1 + (HEADERS_TOLERANCE if counted else LARGER_TOTAL) else 1.0


def told_exact(case: Case, dtype: str) -> str:
    """What the checkpoint has, to stand beside what the shapes tell; empty where it isn't known."""
    exact = exact_bytes(case, dtype)
    if exact is None:
        return ""
    checkpoint = case.inputs.model.checkpoint if case.inputs.model else None
    if checkpoint is None:
        return f"; the checkpoint has {gib(exact)}"
    left = checkpoint.total_bytes - checkpoint.loaded_bytes(
        vision=case.switches.multimodal, mtp=case.switches.speculative
    )
    unloaded = f", {gib(left)} more are not loaded" if left > 0 else ""
    return f"; the checkpoint's {checkpoint.tensors:,} tensors have {gib(exact)}{unloaded}"


def weights_warnings(case: Case, dtype: str) -> list[str]:
    """Where shapes and checkpoint differ, and why the checkpoint isn't known as well as it could be."""
    facts = case.inputs.model
    warnings = (
        [f"the checkpoint: {facts.weights_problem}"] if facts is not None and facts.weights_problem else []
    )
    exact = exact_bytes(case, dtype)
    if exact is None or facts is None:
        return warnings
    derived = derived_bytes(case, dtype)
    tolerance = TOTAL_TOLERANCE if facts.checkpoint is None else HEADERS_TOLERANCE
    if abs(exact - derived) > tolerance * derived:
        counts = (
            f"{gib(exact)} is planned for" if larger_share(case, dtype) > 1 else "the shapes are planned for"
        )
        warnings.append(
            f"the checkpoint has {gib(exact)}, its config.json tells of {gib(derived)}: one of them is wrong, or holds "
            f"what isn't loaded; {counts}"
        )
    return warnings
