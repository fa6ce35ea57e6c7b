"""The release's version: images, chart and supervisor carry the same one."""

__version__ = "0.1.0"
