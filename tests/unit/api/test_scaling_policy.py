"""The kind ScalingPolicy says what the autoscaler does, and its profile is the policy that is built in."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.api.crd import DEFINITIONS
from llmservice_operator.api.markers import NumberBetween
from llmservice_operator.api.profiles import render_balanced
from llmservice_operator.api.scaling_policy import ScalingPolicySpec
from llmservice_operator.autoscaling.policy import BALANCED, ScalingPolicy

SPEC: dict[str, Any] = DEFINITIONS["scalingpolicies"]()["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
    "properties"
]["spec"]
PROFILE = Path(__file__).parents[3] / "policies" / "scaling" / "balanced.yaml"
NEUTRAL = {
    "scale_in_utilization": 0.05,
    "kv_limit_after": 0.05,
    "least_stabilization_seconds": 1.0,
    "target_utilization": 1.0,
    "kv_limit": 1.0,
    "most_stabilization_seconds": 86_400.0,
}
"""Values that let the other of their pair be anything."""


def test_an_object_that_says_nothing_is_balanced() -> None:
    assert ScalingPolicySpec().model_dump() == dataclasses.asdict(BALANCED)


@pytest.mark.parametrize("name", ScalingPolicySpec.model_fields)
@pytest.mark.parametrize("bound", ["minimum", "maximum"])
def test_the_autoscaler_can_use_what_the_schema_takes(name: str, bound: str) -> None:
    (bounds,) = (
        each for each in ScalingPolicySpec.model_fields[name].metadata if isinstance(each, NumberBetween)
    )
    spec = ScalingPolicySpec.model_validate({**NEUTRAL, name: getattr(bounds, bound)})

    assert ScalingPolicy(**spec.model_dump()).problems() == ()


def test_the_schema_writes_no_defaults_into_objects() -> None:
    assert [name for name, each in SPEC["properties"].items() if "default" in each] == []


def test_each_field_tells_its_bounds_and_its_default() -> None:
    description = SPEC["properties"]["targetUtilization"]["description"]

    assert description.endswith("From 0.05 to 1. Default: 0.95.")


def test_the_profile_is_the_built_in_policy() -> None:
    profile = yaml.safe_load(PROFILE.read_text())

    assert profile["metadata"]["name"] == "balanced"
    assert ScalingPolicySpec.model_validate(profile["spec"]) == ScalingPolicySpec()


def test_the_committed_profile_is_the_generated_one() -> None:
    assert PROFILE.read_text() == render_balanced()
