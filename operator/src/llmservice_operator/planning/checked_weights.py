"""Shapes and checkpoint of a case that is planned. Pure."""

from llmservice_operator.planning.case import Case
from llmservice_operator.planning.weights_check import WeightsCheck


def weights_check(case: Case, dtype: str) -> WeightsCheck:
    """The case's shapes beside its checkpoint, served in this dtype."""
    facts = case.inputs.model
    return WeightsCheck(
        model=case.model,
        quantization=case.quantization,
        dtype=dtype,
        vision=case.switches.multimodal,
        mtp=case.switches.speculative,
        checkpoint=None if facts is None else facts.checkpoint,
        total_bytes=None if facts is None else facts.weights_bytes,
        problem="" if facts is None else facts.weights_problem,
    )


def larger_share(case: Case, dtype: str) -> float:
    """By what the shapes' bytes are to be multiplied, since the checkpoint has clearly more; else 1."""
    return weights_check(case, dtype).larger_share


def exact_bytes(case: Case, dtype: str) -> int | None:
    """Bytes that the checkpoint brings onto accelerators in all; None where that isn't known."""
    return weights_check(case, dtype).exact_bytes


def told_exact(case: Case, dtype: str) -> str:
    """What the checkpoint has, beside what the shapes tell."""
    return weights_check(case, dtype).told()


def weights_warnings(case: Case, dtype: str) -> list[str]:
    """Where shapes and checkpoint differ."""
    return weights_check(case, dtype).warnings(larger_counts=True)
