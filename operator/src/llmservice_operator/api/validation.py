"""The API server's checks without an API server: what is wrong with one of our objects before it is applied.

The types' own validators and the schema's CEL rules are made from one source each; what only the API server has
(names, lists keyed by name, what holds on create only) is checked here.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.labels import API_VERSION, KIND, POLICY_KIND
from llmservice_operator.api.markers import Matches
from llmservice_operator.api.names import NAME_MAX_LENGTH, NAME_MEND, NAME_PATTERN, object_name_fault
from llmservice_operator.api.problems import field_of, message_of
from llmservice_operator.api.scaling_policy import ScalingPolicySpec
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.spec_scaling import REPLICAS_ON_CREATE

Spec = TypeVar("Spec", bound=SpecModel)

_NAME = Matches(NAME_PATTERN, NAME_MEND)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: the field and the words, with the value, the limit and the mend in them."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def check_object(manifest: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What the API server would refuse in a new LLMService or ScalingPolicy, as it is in a file; empty: nothing."""
    return tuple(
        _policy_problems(manifest) if manifest.get("kind") == POLICY_KIND else _object_problems(manifest)
    )


def check_spec(spec: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What the API server would refuse in the `spec` of a new LLMService; empty: nothing."""
    return tuple(_spec_problems(spec))


def _policy_problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _head_problems(manifest, POLICY_KIND, {"spec"})
    name = _name(manifest)
    if (fault := object_name_fault(name)) is not None:
        yield Problem(field="metadata.name", message=f"{str(name)[:64]!r}: {fault}")
    spec = manifest.get("spec", {})
    if not isinstance(spec, Mapping):
        yield Problem(field="spec", message=f"is {str(spec)[:64]!r}; an object is expected")
        return
    _, problems = _checked(ScalingPolicySpec, spec)
    yield from problems


def _head_problems(manifest: Mapping[str, Any], kind: str, parts: set[str]) -> Iterator[Problem]:
    for field, expected in (("apiVersion", API_VERSION), ("kind", kind)):
        if manifest.get(field) != expected:
            yield Problem(
                field=field, message=f"is {str(manifest.get(field))[:64]!r}, and must be {expected}"
            )
    for field in sorted(manifest.keys() - {"apiVersion", "kind", "metadata"} - parts):
        yield Problem(field=field, message="is no field of this object")


def _name(manifest: Mapping[str, Any]) -> object:
    metadata = manifest.get("metadata")
    return metadata.get("name", "") if isinstance(metadata, Mapping) else ""


def _object_problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _head_problems(manifest, KIND, {"spec", "status"})
    if (fault := _name_fault(_name(manifest))) is not None:
        yield Problem(field="metadata.name", message=fault)
    spec = manifest.get("spec")
    if isinstance(spec, Mapping):
        yield from _spec_problems(spec)
    else:
        yield Problem(field="spec", message="is required")


def _name_fault(name: object) -> str | None:
    if not isinstance(name, str):
        return f"{str(name)[:64]!r} is no text: put it in quotes; {NAME_MEND}"
    if len(name) > NAME_MAX_LENGTH:
        return f"{name[:64]!r}: {NAME_MEND}"
    try:
        _NAME.check(name)
    except ValueError as error:
        return str(error)
    return None


def _checked(kind: type[Spec], spec: Mapping[str, Any]) -> tuple[Spec | None, tuple[Problem, ...]]:
    """The spec as this type, or what is wrong with it."""
    try:
        # As JSON and strictly: no text for a number, no Python name for a field, as the API server has it.
        text = json.dumps(spec, default=str)
        return kind.model_validate_json(text, strict=True, by_alias=True, by_name=False), ()
    except ValidationError as error:
        return None, tuple(
            Problem(field=_prefixed(field_of(each["loc"], spec)), message=message_of(each))
            for each in error.errors()
        )


def _spec_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    parsed, problems = _checked(LLMServiceSpec, spec)
    if parsed is None:
        yield from problems
        return
    if parsed.scaling is not None and parsed.replicas != 1:
        yield Problem(field="spec.replicas", message=REPLICAS_ON_CREATE)
    lists: tuple[tuple[str, Sequence[str]], ...] = (
        ("spec.engine.env", [variable.name for variable in parsed.engine.env]),
        ("spec.podTemplate.volumes", [volume.name for volume in parsed.pod_template.volumes]),
        ("spec.accelerator.types", parsed.accelerator.types),
    )
    for field, keys in lists:
        for key, count in Counter(keys).items():
            if count > 1:
                yield Problem(field=field, message=f"{key} is there {count} times; keep one")


def _prefixed(field: str) -> str:
    return f"spec.{field}" if field else "spec"
