"""The first process of an engine's container: supervises, reports, drains. Standard library only."""

__version__ = "0.1.0"
