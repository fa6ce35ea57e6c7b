"""`llmservice plan`: the operator's own plan of an LLMService, offline."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from llmservice_operator.api.labels import KIND
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.validation import check_object
from llmservice_operator.cli_documents import (
    config_texts,
    member,
    print_while_read,
    read_catalogue,
    read_config,
    read_text,
    yaml_objects,
)
from llmservice_operator.clients.safetensors_files import read_weights
from llmservice_operator.engines.versions import version_from_image
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.planning.explain import explain, explain_refusal
from llmservice_operator.planning.plan import plan_for_image
from llmservice_operator.planning.serialize import plan_to_json
from llmservice_operator.planning.types import ModelFacts, Plan, PlanInputs, Refusal
from llmservice_operator.settings import DEFAULT_ENGINE_IMAGES

REFUSED, UNUSABLE = 1, 2


def add_parser(subparsers: Any) -> None:
    """Add `plan` to the command's subcommands."""
    parser = subparsers.add_parser(
        "plan",
        help="print the plan of an LLMService, offline",
        description="Print the plan of each LLMService in a file: the engine's settings and the memory account, "
        "term by term. Exit code 1: refused, with the reason; 2: the file can't be used.",
    )
    add_inputs(parser)
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    parser.set_defaults(run=run)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add what a plan is made from."""
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        help="YAML or JSON with LLMServices and their ConfigMaps; - for stdin",
    )
    parser.add_argument(
        "--config", type=Path, help="config.json, or the folder it is in; before any ConfigMap of the file"
    )
    parser.add_argument(
        "--catalogue", type=Path, help="rows of accelerators in addition to the built-in ones"
    )
    parser.add_argument(
        "--engine-version", default="", help="the engine's version, where neither spec nor image tell it"
    )


@dataclass(frozen=True)
class Document:
    """What a file holds."""

    services: list[Mapping[str, Any]] = field(default_factory=list)
    config_maps: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def run(arguments: argparse.Namespace) -> int:
    """Plan every LLMService of the file and print it."""
    try:
        results = plan_file(arguments)
        print_while_read(lambda: _print(results, arguments.output))
    except (InvalidInputError, OSError) as error:
        print(f"llmservice plan: {error}", file=sys.stderr)
        return UNUSABLE
    return REFUSED if any(isinstance(result, Refusal) for _, result in results) else 0


def plan_file(arguments: argparse.Namespace) -> list[tuple[str, Plan | Refusal]]:
    """Name and plan of every LLMService of the file. Raises InvalidInputError or OSError."""
    return [(inputs.service_name, result) for inputs, result in plan_services(arguments)]


def plan_services(arguments: argparse.Namespace) -> list[tuple[PlanInputs, Plan | Refusal]]:
    """Every LLMService of the file, and its plan. Raises InvalidInputError or OSError."""
    document = read_documents(read_text(arguments.filename))
    catalogue = read_catalogue(arguments.catalogue)
    return [_plan(each, document, catalogue, arguments) for each in document.services]


def _print(results: list[tuple[str, Plan | Refusal]], output: str) -> None:
    """Plans go to stdout; a refusal's text goes to stderr in a table, and into the document otherwise."""
    if output == "table":
        for index, (name, result) in enumerate(results):
            refused = isinstance(result, Refusal)
            text = explain_refusal(name, result) if isinstance(result, Refusal) else explain(name, result)
            print(("\n" if index else "") + text, end="", file=sys.stderr if refused else sys.stdout)
        return
    documents = [{"name": name, **_as_json(result)} for name, result in results]
    if output == "json":
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        print(yaml.safe_dump_all(documents, sort_keys=False, width=110), end="")


def _as_json(result: Plan | Refusal) -> dict[str, Any]:
    if isinstance(result, Refusal):
        refusal = {"reason": result.reason, "message": result.message, "certain": result.certain}
        return {"refusal": {**refusal, "shortfall_bytes": result.shortfall_bytes}}
    return {"plan": plan_to_json(result)}


def read_documents(text: str) -> Document:
    """The LLMServices and ConfigMaps of a text. Raises InvalidInputError for what is neither YAML nor has a service."""
    document = Document()
    for each in yaml_objects(text, "the file"):
        if each.get("kind") == KIND:
            document.services.append(each)
        elif each.get("kind") == "ConfigMap":
            name = str(member(each, "metadata", "a ConfigMap of the file").get("name"))
            document.config_maps[name] = member(each, "data", f"ConfigMap {name}")
    if not document.services:
        raise InvalidInputError(f"the file has no object of kind {KIND}")
    return document


def _plan(
    service: Mapping[str, Any],
    document: Document,
    catalogue: tuple[AcceleratorRow, ...],
    arguments: argparse.Namespace,
) -> tuple[PlanInputs, Plan | Refusal]:
    name = str(member(service, "metadata", f"an {KIND} of the file").get("name", ""))
    spec = _spec(name, service)
    inputs = PlanInputs(
        service_name=name,
        spec=spec,
        model=_model(spec, document, arguments.config),
        catalogue=catalogue,
        nodes=None,
        engine_version="",
    )
    return inputs, plan_for_image(inputs, lambda row: _engine_version(spec, row, arguments.engine_version))


def _engine_version(spec: LLMServiceSpec, row: str, said: str) -> str:
    """As the operator has it: from the spec, the image, or the image that this release has for the row."""
    if spec.engine.version:
        return spec.engine.version
    if spec.engine.image:
        return version_from_image(spec.engine.image) or said
    return said or version_from_image(DEFAULT_ENGINE_IMAGES.get(row) or DEFAULT_ENGINE_IMAGES["default"])


def _spec(name: str, service: Mapping[str, Any]) -> LLMServiceSpec:
    """The spec, if the API server would take it."""
    problems = check_object(service)
    if problems:
        raise InvalidInputError(
            "\n  ".join((f"{name or 'an object'} would be refused:", *map(str, problems)))
        )
    return LLMServiceSpec.model_validate(service["spec"])


def _model(spec: LLMServiceSpec, document: Document, config: Path | None) -> ModelFacts | None:
    """config.json from --config, else from the ConfigMap in the file, else from the folder of a file:// address."""
    if config is not None:
        return model_from_path(config)
    if spec.model.config_map is not None:
        data = document.config_maps.get(spec.model.config_map)
        if data is None:
            return None
        return model_from_texts(data, source=f"ConfigMap {spec.model.config_map}")
    folder = Path(spec.model.uri.removeprefix("file://"))
    return model_from_path(folder) if spec.model.uri.startswith("file://") and folder.is_dir() else None


def model_from_path(path: Path) -> ModelFacts:
    """The facts of a config.json, or of a folder with one, and of the weights in it.

    Raises InvalidInputError or OSError.
    """
    texts, source = config_texts(path)
    facts = model_from_texts(texts, source=source)
    if not path.is_dir():
        return facts
    found = read_weights(path, facts.config)
    return replace(
        facts,
        weights_bytes=found.weights_bytes,
        checkpoint=found.checkpoint,
        weights_problem=found.problem,
    )


def model_from_texts(texts: Mapping[Any, Any], *, source: str) -> ModelFacts:
    """The facts of config.json and, where it is apart, hf_quant_config.json."""
    return ModelFacts(config=read_config(texts, source=source), source=source)
