"""An API server with our CRD, and what it says of every bad object."""

import re
from pathlib import Path

import pytest

from devcluster.fixtures import AnyLightCluster, light_cluster  # noqa: F401
from integration.api.bad_objects import FOLDER
from integration.api.kubectl import Kubectl, program_for


@pytest.fixture(scope="session")
def kubectl(light_cluster: AnyLightCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:  # noqa: F811
    """Run kubectl on the cluster; the caller looks at the exit code."""
    cache: Path = tmp_path_factory.mktemp("kubectl")
    return Kubectl(program=program_for(light_cluster), kubeconfig=light_cluster.kubeconfig, cache=cache)


@pytest.fixture(scope="session")
def crd(kubectl: Kubectl) -> None:
    """Our CRD, ready to be used."""
    kubectl.install_crd()


@pytest.fixture(scope="session")
def refusals(kubectl: Kubectl, crd: None) -> dict[str, str]:
    """What the API server says of each bad object, by the file's name, from one `kubectl apply` of all of them."""
    del crd  # only that it is there
    result = kubectl("apply", "--validate=strict", "-f", str(FOLDER))
    said = {}
    for block in re.split(r'(?m)^(?=[^\n]*"[^"\n]*/bad/[^"\n]+\.yaml": )', result.stderr):
        if (match := re.search(r'/bad/([^"/\n]+)\.yaml": ', block)) is not None:
            said[match.group(1)] = block
    return said


@pytest.fixture
def namespace(kubectl: Kubectl, crd: None, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    del crd  # only that it is there
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    kubectl("create", "namespace", name)
    return name
