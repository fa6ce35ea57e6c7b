"""An API server with our CRDs."""

from devcluster.fixtures import light_cluster

__all__ = ["light_cluster"]
