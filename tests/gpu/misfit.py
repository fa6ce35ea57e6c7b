"""A plan that is too large for the card, corrected once by the operator's own code, on a real GPU.

    PYTHONPATH=tests:operator/src python3 -m gpu.misfit SERVICE.yaml OUT --models FOLDER [--catalogue ROWS.yaml]
        [--engine-models FOLDER] [--hold-gib N]

The service is planned from the config.json under --models; the engine is started with the one under --engine-models,
so that a config that lies can be staged; --catalogue lies of the card, --hold-gib is a neighbour on it. The failure is
read from the supervisor's report, made a correction as the operator makes it, and the engine started again.
"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from gpu.cases import engine_arguments
from gpu.starts import run
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.cli_documents import read_catalogue
from llmservice_operator.cli_plan import model_from_path, read_documents
from llmservice_operator.clients.engine import parse_report
from llmservice_operator.controller.failed_start import correction_of
from llmservice_operator.planning.plan import plan_for_image
from llmservice_operator.planning.serialize import plan_to_json
from llmservice_operator.planning.types import MemoryCorrection, Plan, PlanInputs


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One misfit, corrected")
    parser.add_argument("service", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--engine-models", type=Path)
    parser.add_argument("--catalogue", type=Path)
    parser.add_argument("--supervisor", type=Path, default=Path("supervisor.pyz"))
    parser.add_argument("--hold-gib", type=float, default=0)
    parser.add_argument("--engine-version", default="0.26.0")
    parser.add_argument("--first-port", type=int, default=60)
    return parser.parse_args()


def attempt(given: argparse.Namespace, inputs: PlanInputs, name: str) -> MemoryCorrection | str:
    """Plan and start once: the correction that the failure asks for, or how it ended without one."""
    plan = plan_for_image(inputs, lambda _row: given.engine_version)
    if not isinstance(plan, Plan):
        return f"{plan.reason}: {plan.message}"
    model = (given.engine_models or given.models) / folder_of(inputs.spec)
    case = {
        "name": name,
        "args": [
            *("--model", str(model), "--load-format", "dummy", "--tokenizer", "tokenizer"),
            *engine_arguments(inputs.spec, plan, name),
        ],
        "hold_gib": given.hold_gib,
    }
    port = given.first_port + (inputs.correction is not None)
    record = run(case, given.supervisor, given.out, (9410 + port, 8000 + port))
    report = parse_report(json.dumps(record.get("report") or {}))
    correction = None if report.failure is None else correction_of(report.failure, report, plan)
    kept = {**record, "plan": plan_to_json(plan), "correction": correction and asdict(correction)}
    with (given.out / "records.jsonl").open("a") as lines:
        lines.write(json.dumps(kept) + "\n")
    return correction or str(record["state"])


def folder_of(spec: LLMServiceSpec) -> str:
    return spec.model.uri.partition("://")[2].replace("/", "--")


def main() -> int:
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    service = read_documents(given.service.read_text()).services[0]
    name, spec = service["metadata"]["name"], LLMServiceSpec.model_validate(service["spec"])
    inputs = PlanInputs(
        service_name=name,
        spec=spec,
        model=model_from_path(given.models / folder_of(spec)),
        catalogue=read_catalogue(given.catalogue),
        nodes=None,
        engine_version=given.engine_version,
    )
    first = attempt(given, inputs, f"{name}-1")
    print(f"first start: {first}", flush=True)
    if not isinstance(first, MemoryCorrection):
        return 1
    second = attempt(given, replace(inputs, correction=first), f"{name}-2")
    print(f"corrected: {second}", flush=True)
    return 0 if second == "ready" else 1


if __name__ == "__main__":
    sys.exit(main())
