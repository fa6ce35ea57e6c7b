"""Errors of the image builds. Each message names what was wrong and how to mend it."""


class ImagesError(Exception):
    """Any failure; its text is meant for the person who ran the command."""


class PreflightError(ImagesError):
    """The machine lacks something that a build needs."""


class BuildError(ImagesError):
    """A step of a build failed."""
