"""A ScalingPolicy on a real API server: found by its short name, and stored as it was written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.api.kubectl import Kubectl

pytestmark = pytest.mark.light

GOOD = Path(__file__).parent / "good"
BALANCED = Path(__file__).parents[3] / "policies" / "scaling" / "balanced.yaml"


@pytest.fixture
def stored(kubectl: Kubectl, crd: None) -> Iterator[dict[str, object]]:
    """A policy that says three things, as it is read back by the short name."""
    del crd  # only that it is there
    kubectl.output("apply", "--validate=strict", "-f", str(GOOD / "policy-for-bursts.yaml"))
    try:
        yield json.loads(kubectl.output("get", "llmscale", "policy-for-bursts", "-o", "json"))
    finally:
        kubectl.output("delete", "scalingpolicy", "policy-for-bursts")


def test_only_what_was_said_is_stored(stored: dict[str, object]) -> None:
    """What is left out follows the built-in policy of whichever release runs."""
    assert stored["spec"] == {
        "targetUtilization": 0.7,
        "scaleInUtilization": 0.6,
        "leastStabilizationSeconds": 300,
    }


@pytest.mark.usefixtures("crd")
def test_the_profile_is_accepted(kubectl: Kubectl) -> None:
    result = kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(BALANCED))

    assert result.returncode == 0, result.stderr
