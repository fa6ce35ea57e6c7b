"""Tables for the docs: how far sizing is from recorded starts, and what becomes of real deployments.

python -m golden.plans.render    writes operator/docs/reference/sizing-errors.txt and real-cases.txt
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.planning.types import Plan
from manifests.cases import read_cases
from manifests.outcomes import outcome
from unit.perfmodel.samples import read_starts, start_account

REFERENCE = Path(__file__).resolve().parents[3] / "operator" / "docs" / "reference"
TERMS = (
    ("weights", "weights_gib", lambda account: account.weights),
    ("activation", "peak_activation_gib", lambda account: account.activation),
    ("non_torch", "non_torch_gib", lambda account: account.non_torch),
    ("graphs", "cudagraph_gib", lambda account: account.graphs),
    ("kv_cache", "available_kv_gib", lambda account: account.available),
)


def error_lines() -> Iterator[str]:
    """Per start and term: what the engine reported, and predicted minus reported, in GiB."""
    yield "Predicted minus reported, GiB of one rank; in brackets what the engine reported."
    yield "kv_cache has the margin of 1 GiB in it: it is under-promised on purpose."
    yield ""
    yield f"{'start':<56}" + "".join(f"{name:>18}" for name, _, _ in TERMS)
    for name, start in read_starts("starts.json").items():
        yield f"{name[:55]:<56}" + "".join(_cell(start, key, of) for _, key, of in TERMS)


def _cell(start: dict[str, Any], key: str, of: Any) -> str:
    reported = start["memory"][key]
    if reported is None:
        return f"{'-':>18}"
    return f"{of(start_account(start)) / GIB - reported:>+8.2f} ({reported:>6.2f})".rjust(18)


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
    write("sizing-errors.txt", error_lines())
    write("real-cases.txt", case_lines())
