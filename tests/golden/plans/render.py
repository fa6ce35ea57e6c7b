"""A table for the docs: what becomes of real deployments.

python -m golden.plans.render    writes operator/docs/reference/real-cases.txt
"""

from collections.abc import Iterator
from pathlib import Path

from llmservice_operator.planning.types import Plan
from manifests.cases import read_cases
from manifests.outcomes import outcome

REFERENCE = Path(__file__).resolve().parents[3] / "operator" / "docs" / "reference"


def case_lines() -> Iterator[str]:
    """Per real deployment: where it is from, and its plan or the reason of its refusal."""
    for name, case in read_cases().items():
        result = outcome(case)
        yield f"{name} ({case.source})"
        if isinstance(result, Plan):
            knobs = result.knobs
            where = f"{result.accelerators_per_replica} x {result.accelerator.name}"
            held = f"{result.max_concurrency:.2f} requests of full length"
            yield f"  {where}: max_model_len {knobs.max_model_len:,}, max_num_seqs {knobs.max_num_seqs}, {held}"
        else:
            yield f"  {result.reason}: {result.message}"
        if case.not_said:
            yield f"  not said: {case.not_said}"


def write(name: str, lines: Iterator[str]) -> None:
    REFERENCE.mkdir(parents=True, exist_ok=True)
    (REFERENCE / name).write_text("\n".join(line.rstrip() for line in lines) + "\n")


if __name__ == "__main__":
    write("real-cases.txt", case_lines())
