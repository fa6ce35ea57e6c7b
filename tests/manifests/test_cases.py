"""Real deployments as LLMServices: the API server takes each, and each is planned or refused as its author would."""

import pytest

from integration.api.kubectl import Kubectl
from llmservice_operator.planning.types import Plan, Refusal
from manifests.cases import PLANNED, SAMPLES, Case, read_cases
from manifests.outcomes import outcome

CASES = read_cases()


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


@pytest.mark.light
def test_the_api_server_takes_the_samples(kubectl: Kubectl, crd: None) -> None:
    del crd  # only that it is there

    result = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(SAMPLES))

    assert result.returncode == 0, result.stderr
