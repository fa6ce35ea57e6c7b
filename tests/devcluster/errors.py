"""Errors of the development cluster.

    DevclusterError
    ├── PreflightError    something the machine must have is missing
    ├── BuildError        a Go build failed
    ├── CommandError      an external command failed
    ├── StartError        a component did not become ready in time, or died
    └── ImageError        an image archive is no good, or there is no room for it

Each message names what was wrong, the value seen, and how to mend it.
"""


class DevclusterError(Exception):
    """Any failure of the development cluster; its text is meant for the person who ran the command."""


class PreflightError(DevclusterError):
    """The machine lacks something that the cluster needs."""


class BuildError(DevclusterError):
    """A binary could not be built."""


class CommandError(DevclusterError):
    """An external command exited with an error."""


class StartError(DevclusterError):
    """A component died or did not become ready within its time."""


class ImageError(DevclusterError):
    """An image archive cannot be read, or there is no room to import it."""
