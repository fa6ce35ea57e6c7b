"""The chart, rendered and installed by the real Helm on a real API server."""

from devcluster.fixtures import light_cluster

__all__ = ["light_cluster"]
