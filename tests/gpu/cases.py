"""Cases for starts.py from LLMServices: the very arguments that the operator would render, with dummy weights.

    python -m gpu.cases OUT.json SERVICES.yaml [--models FOLDER] [--tokenizer FOLDER]

Each LLMService needs a ConfigMap in the file, or a folder of the model's name under --models. The model path of the
case is `<models>/<folder>`; `metadata.annotations` of a service may carry `gpu/case`, JSON that is merged into its case
(hold_gib, seconds, speed, env, more args under "more").
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.cli_documents import read_catalogue
from llmservice_operator.cli_plan import model_from_path, read_documents
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.planning.plan import plan_for_image
from llmservice_operator.planning.serialize import plan_to_json
from llmservice_operator.planning.types import ModelFacts, Plan, PlanInputs

DROPPED = ("--model", "--served-model-name", "--host", "--port", "--shutdown-timeout", "--revision")
"""What starts.py says itself, or what dummy weights have no use for."""


class Identity:
    """What the engine adapter asks of a service."""

    def __init__(self, name: str) -> None:
        self.name = name


def engine_arguments(spec: LLMServiceSpec, plan: Plan, name: str) -> list[str]:
    """The operator's arguments but for those that a bare machine decides."""
    arguments = iter(VllmEngine().arguments(spec, plan, Identity(name)))
    kept: list[str] = []
    for argument in arguments:
        if argument in DROPPED:
            next(arguments)
        else:
            kept.append(argument)
    return kept


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A service with its plan."""

    name: str
    spec: LLMServiceSpec
    model: ModelFacts
    inputs: PlanInputs
    plan: Plan
    case: dict[str, Any]
    """See starts.py; what was planned goes with it, so that both stand side by side later."""


def planned_service(service: Mapping[str, Any], models: Path, tokenizer: str, version: str) -> Planned:
    """The operator's own plan, and the case of it."""
    name = service["metadata"]["name"]
    extra = json.loads(service["metadata"].get("annotations", {}).get("gpu/case", "{}"))
    spec = LLMServiceSpec.model_validate(service["spec"])
    folder = models / spec.model.uri.partition("://")[2].replace("/", "--")
    inputs = PlanInputs(
        service_name=name,
        spec=spec,
        model=model_from_path(folder),
        catalogue=read_catalogue(None),
        nodes=None,
        engine_version=version,
    )
    plan = plan_for_image(inputs, lambda _row: version)
    if not isinstance(plan, Plan) or inputs.model is None:
        raise SystemExit(f"{name}: {plan}")
    arguments = ["--model", f"models/{folder.name}", "--load-format", "dummy", "--tokenizer", tokenizer]
    arguments += engine_arguments(spec, plan, name)
    case = {"name": name, "args": arguments + extra.pop("more", []), "plan": plan_to_json(plan), **extra}
    return Planned(name=name, spec=spec, model=inputs.model, inputs=inputs, plan=plan, case=case)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cases for starts.py from LLMServices")
    parser.add_argument("out", type=Path)
    parser.add_argument("services", type=Path)
    parser.add_argument("--models", type=Path, default=Path("tests/data/models"))
    parser.add_argument("--tokenizer", default="tokenizer")
    parser.add_argument("--engine-version", default="0.26.0")
    arguments = parser.parse_args()
    services = read_documents(arguments.services.read_text()).services
    cases = [
        planned_service(each, arguments.models, arguments.tokenizer, arguments.engine_version).case
        for each in services
    ]
    arguments.out.write_text(json.dumps(cases, indent=1) + "\n")
    for case in cases:
        print(case["name"], *case["args"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
