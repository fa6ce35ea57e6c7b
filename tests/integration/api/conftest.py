"""An API server with our CRD, and what it says of every bad object."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import LightCluster
from devcluster.fixtures import AnyLightCluster, light_cluster  # noqa: F401
from integration.api.bad_objects import FOLDER

CRD = Path(__file__).parents[3] / "crds" / "llmservices.yaml"

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def kubectl(light_cluster: AnyLightCluster) -> Kubectl:  # noqa: F811
    """Run kubectl on the cluster; the caller looks at the exit code."""
    own = isinstance(light_cluster, LightCluster)
    program = str(light_cluster.program("kubectl")) if own else shutil.which("kubectl")
    assert program is not None, "kubectl is not on PATH"

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [program, f"--kubeconfig={light_cluster.kubeconfig}", *arguments]
        return subprocess.run(command, input=stdin, text=True, capture_output=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="session")
def crd(kubectl: Kubectl) -> None:
    """Our CRD, established."""
    for arguments in (
        ("apply", "--server-side", "--force-conflicts", "-f", str(CRD)),
        ("wait", "--for=condition=Established", "--timeout=30s", "crd/llmservices.llmservice.dev"),
    ):
        result = kubectl(*arguments)
        assert result.returncode == 0, result.stderr


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
