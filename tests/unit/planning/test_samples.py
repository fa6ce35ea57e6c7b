"""The samples are services that this release plans, of models of every kind."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.api.validation import check_object
from llmservice_operator.cli_plan import model_from_texts
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import Plan, PlanInputs
from unit.perfmodel.samples import catalogue

SAMPLES = {
    path.stem: path for path in sorted((Path(__file__).parents[3] / "crds" / "samples").glob("*.yaml"))
}
REAL = [name for name in SAMPLES if name != "fake"]


def planned_sample(name: str) -> tuple[dict[str, Any], Plan]:
    """A sample and its plan, with the config that lies beside it."""
    service, config = yaml.safe_load_all(SAMPLES[name].read_text())
    result = make_plan(
        PlanInputs(
            service_name=name,
            spec=LLMServiceSpec.model_validate(service["spec"]),
            model=model_from_texts(config["data"], source="sample"),
            catalogue=catalogue(),
            nodes=None,
            engine_version="0.26.0",
        )
    )
    assert isinstance(result, Plan), result
    return service, result


def test_there_are_eight_real_models() -> None:
    assert len(REAL) >= 8


@pytest.mark.parametrize("name", SAMPLES)
def test_the_api_server_would_take_it(name: str) -> None:
    assert check_object(next(yaml.safe_load_all(SAMPLES[name].read_text()))) == ()


@pytest.mark.parametrize("name", REAL)
def test_its_floors_are_kept(name: str) -> None:
    service, plan = planned_sample(name)
    workload = service["spec"].get("workload", {})

    assert plan.knobs.max_model_len >= workload.get("context", {}).get("min", 1)
    assert plan.knobs.max_num_seqs >= workload.get("concurrency", {}).get("min", 1)


@pytest.mark.parametrize("name", REAL)
def test_its_speed_is_expected_within_its_objectives(name: str) -> None:
    _, plan = planned_sample(name)

    assert plan.speed is not None
    assert plan.missed == ()
