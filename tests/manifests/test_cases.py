"""Real deployments as LLMServices: the API server takes each, and each is planned or refused as its author would."""

import pytest

from integration.api.kubectl import Kubectl
from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.engines.versions import version_from_image
from llmservice_operator.perfmodel.accelerators import load_catalogue, merge_catalogues
from llmservice_operator.planning.plan import make_plan
from llmservice_operator.planning.types import ModelFacts, Plan, PlanInputs, Refusal
from manifests.cases import PLANNED, ROWS, Case, read_cases
from unit.perfmodel.samples import catalogue, load_config

CASES = read_cases()


def outcome(case: Case) -> Plan | Refusal:
    spec = LLMServiceSpec.model_validate(case.spec)
    rows = load_catalogue((ROWS / case.rows).read_text()) if case.rows else ()
    return make_plan(
        PlanInputs(
            service_name=case.path.stem,
            spec=spec,
            model=ModelFacts(config=load_config(case.config)),
            catalogue=merge_catalogues(catalogue(), rows),
            nodes=None,
            engine_version=spec.engine.version or version_from_image(spec.engine.image),
        )
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_planned_or_refused(case: Case) -> None:
    result = outcome(case)

    assert (PLANNED if isinstance(result, Plan) else result.reason) == case.expect, result


@pytest.mark.parametrize(
    "case", [each for each in CASES.values() if each.expect == "DoesNotFit"], ids=lambda case: case.path.stem
)
def test_a_misfit_tells_the_shortfall_and_a_mend(case: Case) -> None:
    result = outcome(case)

    assert isinstance(result, Refusal)
    assert "GiB short" in result.message
    assert "what would fit, cheapest first: " in result.message


@pytest.mark.light
def test_the_api_server_takes_all_of_them(kubectl: Kubectl, crd: None) -> None:
    del crd  # only that it is there
    folder = str(next(iter(CASES.values())).path.parent)

    result = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", folder)

    assert result.returncode == 0, result.stderr
    assert result.stdout.count("created") == len(CASES)
