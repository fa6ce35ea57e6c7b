"""One API server and one operator for all tests here; each test has a namespace of its own."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import running
from devcluster.api import Api, ApiError
from devcluster.cluster import LightCluster
from devcluster.fixtures import light_cluster  # noqa: F401  a fixture
from factories import TINY

from . import played
from .engines import Engines


@pytest.fixture(scope="session")
def api(light_cluster: LightCluster) -> Api:  # noqa: F811
    """The API server, with the CRD installed."""
    api = light_cluster.api
    running.install_crds(api)
    return api


@pytest.fixture(scope="session")
def supervisors() -> Iterator[played.Supervisors]:
    """The supervisors of all played pods."""
    with played.Supervisors() as running:
        yield running


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """The engines of those played pods that a test gives one."""
    with Engines() as running_engines:
        yield running_engines


@pytest.fixture(scope="session")
def operator_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the operator's process."""
    return tmp_path_factory.mktemp("operator") / "operator.log"


@pytest.fixture(scope="session")
def operator(
    api: Api,
    light_cluster: LightCluster,  # noqa: F811
    supervisors: played.Supervisors,
    operator_log: Path,
) -> Iterator[played.RestartableOperator]:
    """The operator, as its own process."""
    process = played.RestartableOperator(light_cluster.kubeconfig, operator_log.parent)
    process.restart()
    yield process
    process.stop()


@pytest.fixture
def bare(api: Api) -> Iterator[played.Played]:
    """A namespace with the ConfigMap `tiny`, and no operator that looks at it."""
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    world = played.Played(api=api, namespace=namespace)
    _wait_for_account(api, namespace)
    world.create("ConfigMap", {"metadata": {"name": "tiny"}, "data": {"config.json": json.dumps(TINY)}})
    yield world
    for service in world.items("LLMService"):
        world.delete("LLMService", service["metadata"]["name"])


@pytest.fixture
def operator_log_path(operator_log: Path) -> Path:
    """Asked for by tests with an operator, so that its log is shown when they fail."""
    return operator_log


@pytest.fixture
def world(
    bare: played.Played,
    operator: played.RestartableOperator,
    operator_log_path: Path,
    supervisors: played.Supervisors,
) -> played.Played:
    """The same, with the operator at work."""
    bare.reports = supervisors.reports
    return bare


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """What the operator logged last is shown with a failure."""
    report = yield
    log = getattr(item, "funcargs", {}).get("operator_log_path")
    if report.failed and log is not None and log.exists():
        report.sections.append(("operator log", log.read_text(errors="replace")[-6000:]))
    return report


def _wait_for_account(api: Api, namespace: str) -> None:
    """Pods need the ServiceAccount `default`; without a controller that makes it, the test does."""
    body: dict[str, Any] = {"metadata": {"name": "default"}}
    try:
        api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    except ApiError as error:
        if error.status != 409:
            raise
