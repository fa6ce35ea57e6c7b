"""A release's whole life while an engine serves: previous version, upgrade, failures, rollback, gone, and back."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import deploy
from devcluster.fixtures import AnyCluster
from e2e.conftest import RESTRICTED, Platform
from e2e.fleet import Fleet, Run, config_map

pytestmark = pytest.mark.cluster

PREVIOUS = Path(__file__).resolve().parents[1] / "data" / "charts" / "llmservice-operator-0.1.0.tgz"
RELEASE = (deploy.RELEASE, "--namespace", deploy.OPERATOR_NAMESPACE)
WAIT = ("--wait", "--timeout", "90s")
SHORT_WAIT = ("--wait", "--timeout", "8s")
ONE = ("--set", "replicas=1")


@dataclass(frozen=True, kw_only=True)
class Life:
    """What was seen of the service after each step."""

    before: Run
    after: dict[str, Run]
    kept: dict[str, str] = field(default_factory=dict)
    """uid of the LLMService after each step."""
    answers: dict[str, str] = field(default_factory=dict)
    """What Helm said, where that matters."""


class Stepper:
    """Does one thing to the release at a time and looks at the service after it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.life = Life(before=fleet.run("kept"), after={})

    def helm(self, step: str, *arguments: str, fails: bool = False) -> None:
        """One command of Helm; `fails`: it is to fail."""
        if fails:
            with pytest.raises(AssertionError) as refusal:
                deploy.helm(self._fleet.cluster, *arguments)
            self.life.answers[step] = str(refusal.value)
        else:
            self.life.answers[step] = deploy.helm(self._fleet.cluster, *arguments)
        self.look(step)

    def look(self, step: str) -> None:
        """What is there now."""
        self.life.after[step] = self._fleet.run("kept")
        self.life.kept[step] = self._fleet.get("llmservice", "kept")["metadata"]["uid"]

    def works(self, step: str) -> None:
        """The operator looks after the service: an edit that concerns no pod is told in its status."""
        self._fleet.touch("kept", step)


@pytest.fixture(scope="module")
def life(platform: Platform, namespace: str) -> Iterator[Life]:
    """All of it, in the order in which a platform team would."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace))
    fleet.apply("kept")
    fleet.wait_ready("kept")
    step = Stepper(fleet)
    try:
        _live(step, platform.cluster)
        yield step.life
    finally:
        deploy.install_operator(platform.cluster, deploy.build_images("operator")["operator"])
        fleet.remove_all()


def _live(step: Stepper, cluster: AnyCluster) -> None:
    chart = str(deploy.CHART)
    upgrade = ("upgrade", deploy.RELEASE, chart, "--namespace", deploy.OPERATOR_NAMESPACE)
    step.helm("uninstall", "uninstall", *RELEASE, "--wait")
    labels = [f"{key}={value}" for key, value in RESTRICTED.items()]
    cluster.kubectl("label", "--overwrite", "namespace", deploy.OPERATOR_NAMESPACE, *labels)
    step.helm("the previous version", "install", deploy.RELEASE, str(PREVIOUS), *RELEASE[1:], *ONE)
    step.helm("upgrade", *upgrade, *WAIT)
    step.works("upgraded")
    step.helm("helm test", "test", *RELEASE, "--timeout", "60s")
    step.helm("half-failed upgrade", *upgrade, *SHORT_WAIT, "--set", "image.tag=nowhere", fails=True)
    step.helm("mended upgrade", *upgrade, *ONE, *WAIT)
    step.helm("forced upgrade", *upgrade, *ONE, *WAIT, "--force-replace", "--server-side=false")
    step.helm("rollback", "rollback", deploy.RELEASE, "1", *RELEASE[1:])
    step.helm("upgrade once more", *upgrade, *ONE, *WAIT)
    step.helm("uninstall again", "uninstall", *RELEASE, "--wait")
    deploy.install_operator(cluster, deploy.build_images("operator")["operator"])
    step.look("install again")
    step.works("installed again")


def test_the_engine_never_restarts(life: Life) -> None:
    """The same pods, no container started again, no further pod template: after each of the steps."""
    assert life.after == dict.fromkeys(life.after, life.before)
    assert life.before.restarts == 0


def test_the_service_is_never_lost(life: Life) -> None:
    assert len(set(life.kept.values())) == 1


def test_helm_test_passes(life: Life) -> None:
    assert "Succeeded" in life.answers["helm test"]


def test_a_half_failed_upgrade_is_told(life: Life) -> None:
    assert "not ready" in life.answers["half-failed upgrade"] or (
        "context deadline exceeded" in life.answers["half-failed upgrade"]
    )
