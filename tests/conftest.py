"""What every test may use: one light cluster and one whole cluster for the session."""

pytest_plugins = ["devcluster.fixtures"]
