"""A service in memory, on the catalogue that ships."""

import pytest

from llmservice_operator.perfmodel.accelerators import builtin_catalogue_text, load_catalogue

from .memory_kube import World


@pytest.fixture
def world() -> World:
    """No service yet; the ConfigMap `tiny` is there."""
    return World(catalogue=load_catalogue(builtin_catalogue_text()))
