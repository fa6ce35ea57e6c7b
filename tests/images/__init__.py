"""Builds the project's container images and the demo's model, once, into a cache: `python -m images`."""
