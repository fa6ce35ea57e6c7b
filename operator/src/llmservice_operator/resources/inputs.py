"""What the user says, as far as pods depend on it: the only thing that may ever restart an engine."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from llmservice_operator.api.labels import RESTART_ANNOTATION
from llmservice_operator.api.spec import LLMServiceSpec

_SPEC_FIELDS = ("model", "engine", "accelerator", "workload", "slo", "podTemplate", "drain")


def user_inputs(spec: LLMServiceSpec, annotations: Mapping[str, str], config_digest: str) -> dict[str, Any]:
    """The user's words on the model, the engine, the accelerator, the workload, its objectives, the pod and the drain.

    Defaults are left out, so that a release that adds a field, or a user who writes a default down, changes
    nothing. Not in it: replicas, scaling, the Service, and all that is the operator's own (its version, the
    catalogue, nodes).

    `config_digest`: of the model's config.json, empty where it could not be read.
    """
    said = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    inputs = {name: said[name] for name in _SPEC_FIELDS if said.get(name)}
    if config_digest:
        inputs["configDigest"] = config_digest
    if restart := annotations.get(RESTART_ANNOTATION):
        inputs["restart"] = restart
    return inputs


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """16 hex digits that stand for the inputs."""
    return digest(inputs)[:16]


def spec_from_inputs(inputs: Mapping[str, Any], current: LLMServiceSpec) -> LLMServiceSpec | None:
    """The spec as the user had it when these inputs were stored; what inputs leave out is as it is now.

    None where this release cannot read it any more: then there is no baseline to compare with.
    """
    said = current.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    for name in _SPEC_FIELDS:
        said.pop(name, None)
        if name in inputs:
            said[name] = inputs[name]
    try:
        return LLMServiceSpec.model_validate(said)
    except ValidationError:
        return None


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, the same for the same value whatever the order of its keys; 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # JSON may have half of a surrogate pair, which UTF-8 has not.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
