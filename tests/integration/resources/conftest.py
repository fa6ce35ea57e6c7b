"""Rendered objects on a real API server."""

from devcluster.fixtures import light_cluster

__all__ = ["light_cluster"]
