"""Plans as JSON and back."""

import json
from dataclasses import replace

import pytest

from llmservice_operator.planning.serialize import plan_from_json, plan_to_json
from llmservice_operator.planning.types import SpeedFlags
from unit.perfmodel.samples import SMOLLM2, on, planned

SPECS = {
    "cpu": on("cpu"),
    "gpu": on("nvidia-h200"),
    "mig": on("nvidia-h100-80gb", engine={"kvCacheDtype": "fp8"}),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_the_round_trip_is_exact(spec: dict[str, object]) -> None:
    plan = planned(SMOLLM2, spec)

    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_fields_of_a_newer_release_are_ignored() -> None:
    plan = planned(SMOLLM2, on("cpu"))
    values = plan_to_json(plan)
    values["placement"] = {"nodes": 1}
    values["speed"]["goodput"] = 1.0
    values["knobs"]["swap"] = 4

    assert plan_from_json(values) == plan


def test_a_plan_of_an_earlier_release_is_read() -> None:
    plan = planned(SMOLLM2, on("nvidia-h200"))
    values = plan_to_json(plan)
    for name in ("speed", "headroom_bytes", "missed", "speed_flags"):
        del values[name]

    assert plan_from_json(values) == replace(plan, speed=None, headroom_bytes=None, speed_flags=SpeedFlags())


def test_a_prediction_that_says_less_is_left_out() -> None:
    values = plan_to_json(planned(SMOLLM2, on("nvidia-h200")))
    values["speed"] = {"ttft_seconds": 1.0}

    assert plan_from_json(values).speed is None


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises((KeyError, TypeError)):
        plan_from_json({"accelerator": {}})
