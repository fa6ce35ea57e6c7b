"""`llmservice plan`: the operator's own plan of an LLMService, offline."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llmservice_operator.api.labels import KIND
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.validation import check_object
from llmservice_operator.engines.versions import version_from_image
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    load_catalogue,
    merge_catalogues,
)
from llmservice_operator.planning.explain import explain, explain_refusal
from llmservice_operator.planning.plan import plan_for_image
from llmservice_operator.planning.serialize import plan_to_json
from llmservice_operator.planning.types import ModelFacts, PlanInputs, Refusal
from llmservice_operator.settings import DEFAULT_ENGINE_IMAGES

CONFIG_KEY, QUANT_KEY, CATALOGUE_KEY = "config.json", "hf_quant_config.json", "accelerators.yaml"
LARGEST_CONFIG_BYTES = 16 << 20
REFUSED, UNUSABLE = 1, 2


def add_parser(subparsers: Any) -> None:
    """Add `plan` to the command's subcommands."""
    parser = subparsers.add_parser(
        "plan",
        help="print the plan of an LLMService, offline",
        description="Print the plan of each LLMService in a file: the engine's settings and the memory account, "
        "term by term. Exit code 1: refused, with the reason; 2: the file can't be used.",
    )
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        help="YAML or JSON with LLMServices and their ConfigMaps; - for stdin",
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    parser.add_argument(
        "--config", type=Path, help="config.json, or the folder it is in; before any ConfigMap of the file"
    )
    parser.add_argument(
        "--catalogue", type=Path, help="rows of accelerators in addition to the built-in ones"
    )
    parser.add_argument(
        "--engine-version", default="", help="the engine's version, where neither spec nor image tell it"
    )
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Document:
    """What a file holds."""

    services: list[Mapping[str, Any]] = field(default_factory=list)
    config_maps: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def run(arguments: argparse.Namespace) -> int:
    """Plan every LLMService of the file and print it."""
    try:
        document = read_documents(_text(arguments.filename))
        catalogue = read_catalogue(arguments.catalogue)
        results = [_plan(each, document, catalogue, arguments) for each in document.services]
    except (InvalidInputError, OSError) as error:
        print(f"llmservice plan: {error}", file=sys.stderr)
        return UNUSABLE
    _print(results, arguments.output)
    return REFUSED if any(isinstance(result, Refusal) for _, result in results) else 0


def _print(results: list[tuple[str, Any]], output: str) -> None:
    """Plans go to stdout; a refusal's text goes to stderr in a table, and into the document otherwise."""
    if output == "table":
        for index, (name, result) in enumerate(results):
            refused = isinstance(result, Refusal)
            text = explain_refusal(name, result) if refused else explain(name, result)
            print(("\n" if index else "") + text, end="", file=sys.stderr if refused else sys.stdout)
        return
    documents = [{"name": name, **_as_json(result)} for name, result in results]
    if output == "json":
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        print(yaml.safe_dump_all(documents, sort_keys=False, width=110), end="")


def _as_json(result: Any) -> dict[str, Any]:
    if isinstance(result, Refusal):
        refusal = {"reason": result.reason, "message": result.message, "certain": result.certain}
        return {"refusal": {**refusal, "shortfall_bytes": result.shortfall_bytes}}
    return {"plan": plan_to_json(result)}


def _text(filename: str) -> str:
    return sys.stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")


def read_documents(text: str) -> Document:
    """The LLMServices and ConfigMaps of a text. Raises InvalidInputError for what is neither YAML nor has a service."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        objects = list(_flattened(yaml.load_all(text, Loader=loader)))
    except yaml.YAMLError as error:
        raise InvalidInputError(f"the file is no YAML: {error}") from error
    document = Document()
    for each in objects:
        if each.get("kind") == KIND:
            document.services.append(each)
        elif each.get("kind") == "ConfigMap":
            document.config_maps[str(each.get("metadata", {}).get("name"))] = each.get("data") or {}
    if not document.services:
        raise InvalidInputError(f"the file has no object of kind {KIND}")
    return document


def _flattened(documents: Iterator[Any]) -> Iterator[Mapping[str, Any]]:
    for each in documents:
        if isinstance(each, Mapping) and each.get("kind") == "List":
            yield from (item for item in each.get("items") or () if isinstance(item, Mapping))
        elif isinstance(each, Mapping):
            yield each
        elif each is not None:
            raise InvalidInputError(f"a document of the file is {type(each).__name__}; an object is expected")


def read_catalogue(path: Path | None) -> tuple[AcceleratorRow, ...]:
    """The built-in rows with those of a file (plain, or a ConfigMap that has them under accelerators.yaml)."""
    builtin = load_catalogue(builtin_catalogue_text())
    if path is None:
        return builtin
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    if isinstance(values, Mapping) and values.get("kind") == "ConfigMap":
        text = str((values.get("data") or {}).get(CATALOGUE_KEY, ""))
    return merge_catalogues(builtin, load_catalogue(text))


def _plan(
    service: Mapping[str, Any],
    document: Document,
    catalogue: tuple[AcceleratorRow, ...],
    arguments: argparse.Namespace,
) -> tuple[str, Any]:
    name = str((service.get("metadata") or {}).get("name", ""))
    spec = _spec(name, service)
    inputs = PlanInputs(
        service_name=name,
        spec=spec,
        model=_model(spec, document, arguments.config),
        catalogue=catalogue,
        nodes=None,
        engine_version="",
    )
    return name, plan_for_image(inputs, lambda row: _engine_version(spec, row, arguments.engine_version))


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
    """The facts of a config.json, or of a folder with one. Raises InvalidInputError or OSError."""
    folder, file = (path, path / CONFIG_KEY) if path.is_dir() else (path.parent, path)
    texts = {CONFIG_KEY: _bounded(file)}
    if (folder / QUANT_KEY).is_file():
        texts[QUANT_KEY] = _bounded(folder / QUANT_KEY)
    return model_from_texts(texts, source=str(file))


def _bounded(file: Path) -> str:
    if file.stat().st_size > LARGEST_CONFIG_BYTES:
        raise InvalidInputError(
            f"{file} has {file.stat().st_size:,} bytes; at most {LARGEST_CONFIG_BYTES:,} is expected of a config"
        )
    return file.read_text(encoding="utf-8")


def model_from_texts(texts: Mapping[str, Any], *, source: str) -> ModelFacts:
    """The facts of config.json and, where it is apart, hf_quant_config.json."""
    if CONFIG_KEY not in texts:
        raise InvalidInputError(
            f"{source} has no key {CONFIG_KEY}; it has {', '.join(sorted(texts)) or 'none'}"
        )
    config = _object(texts[CONFIG_KEY], f"{source}: {CONFIG_KEY}")
    if QUANT_KEY in texts and "quantization_config" not in config:
        config["quantization_config"] = _object(texts[QUANT_KEY], f"{source}: {QUANT_KEY}")
    return ModelFacts(config=config, source=source)


def _object(text: Any, what: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidInputError(f"{what} is a {type(values).__name__}; an object is expected")
    return values
