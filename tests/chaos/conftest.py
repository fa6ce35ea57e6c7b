"""Options of the chaos tests: how many kills, and the seed of all chance."""

import random

import pytest

from devcluster.fixtures import light_cluster

__all__ = ["light_cluster"]

DEFAULT_KILLS = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=DEFAULT_KILLS, help="how often the operator is killed")
    parser.addoption("--seed", type=int, default=None, help="repeats a run's chance")


@pytest.fixture
def kills(pytestconfig: pytest.Config) -> int:
    """How often the operator is killed."""
    # Where pytest was started on a parent folder, this file came too late to add its options.
    found: int = pytestconfig.getoption("--kills", default=DEFAULT_KILLS)
    return found


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run."""
    found: int | None = pytestconfig.getoption("--seed", default=None)
    return random.SystemRandom().randrange(2**32) if found is None else found
