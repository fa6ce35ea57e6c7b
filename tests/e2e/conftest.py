"""A cluster with the images in it, the models on its nodes' disk and the operator installed by Helm."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

import deploy
from devcluster.fixtures import AnyCluster

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The cluster as a platform team would hand it over."""

    cluster: AnyCluster
    engine_node: str
    """The only node that has the real engine's image."""


@pytest.fixture(scope="session")
def platform(cluster: AnyCluster) -> Platform:
    """The operator runs; the fake engine is on all nodes, the real one on one."""
    archives = deploy.build_images("operator", "fake-engine", "vllm-cpu")
    deploy.load_images(cluster, archives)
    deploy.install_operator(cluster, archives["operator"])
    return Platform(cluster=cluster, engine_node=cluster.nodes[0])


@pytest.fixture(scope="module")
def namespace(platform: Platform, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace at Pod Security `restricted`, with the claim `models`; gone in the end, with all that is in it."""
    name = f"{request.module.__name__.rpartition('.')[2].replace('_', '-')[:40]}-{uuid4().hex[:6]}"
    deploy.create_namespace(platform.cluster, name, labels=RESTRICTED)
    deploy.provide_models(platform.cluster, name, deploy.build_model())
    yield name
    deploy.delete_namespace(platform.cluster, name)
