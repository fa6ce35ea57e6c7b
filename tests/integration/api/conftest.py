"""An API server with our CRDs, and what it says of every bad object."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

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
    """Our CRDs, ready to be used."""
    kubectl.install_crds()


@pytest.fixture(scope="session")
def refusals(kubectl: Kubectl, crd: None) -> Iterator[dict[str, str]]:
    """What the API server says of each bad object, by the file's name, from one `kubectl apply` of all of them."""
    del crd  # only that it is there
    with own_namespace(kubectl, "bad-objects") as namespace:
        result = kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(FOLDER))
        said = {}
        for block in re.split(r'(?m)^(?=[^\n]*"[^"\n]*/bad/[^"\n]+\.yaml": )', result.stderr):
            if (match := re.search(r'/bad/([^"/\n]+)\.yaml": ', block)) is not None:
                said[match.group(1)] = block
        yield said


@pytest.fixture
def namespace(kubectl: Kubectl, crd: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    del crd  # only that it is there
    with own_namespace(
        kubectl, re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    ) as name:
        yield name


@contextmanager
def own_namespace(kubectl: Kubectl, stem: str) -> Iterator[str]:
    """A new namespace, asked to go in the end (which an API server alone does not see through)."""
    name = f"{stem}-{uuid4().hex[:8]}"
    kubectl.output("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
