"""The operator's machinery on a real API server: one server for all, a namespace for each test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import running
from devcluster.api import Api
from devcluster.fixtures import light_cluster
from devcluster.light import LightCluster

__all__ = ["light_cluster"]


@pytest.fixture(scope="session")
def api(light_cluster: LightCluster) -> Api:
    """The API server, with the CRDs installed."""
    running.install_crds(light_cluster.api)
    return light_cluster.api


@pytest.fixture
def namespace(api: Api) -> str:
    """A fresh namespace with a model's config in it."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    running.make_namespace(api, name)
    return name


@pytest.fixture
def operator(
    api: Api,
    light_cluster: LightCluster,
    namespace: str,
    tmp_path: Path,
) -> Iterator[running.OperatorProcess]:
    """An operator of this test's namespace alone, with a Lease of its own; not started yet."""
    operator = running.OperatorProcess(
        light_cluster.kubeconfig,
        tmp_path,
        name=f"op-{namespace}",
        LLMSERVICE_NAMESPACE=namespace,
        LLMSERVICE_WATCH_NAMESPACES=namespace,
    )
    yield operator
    operator.kill()
