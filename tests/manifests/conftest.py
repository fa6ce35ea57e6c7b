"""An API server with our CRD."""

from integration.api.conftest import crd, kubectl, light_cluster  # noqa: F401
