"""Where a model's files come from, as its uri says."""

from dataclasses import dataclass
from typing import Literal

from llmservice_operator.errors import InvalidInputError

MODELS_MOUNT_PATH = "/models"
"""A claim of a `pvc://` uri is mounted read-only below this path, under its own name."""

Scheme = Literal["hf", "pvc", "file"]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model's uri, taken apart."""

    scheme: Scheme
    location: str
    """What the engine is told to load: `org/name` on a hub, or a path in its container."""
    claim: str | None = None
    """The claim to mount, for `pvc://`."""

    @property
    def local(self) -> bool:
        """Whether the files are in the pod when it starts, so that no hub is needed."""
        return self.scheme != "hf"


def parse_model_uri(uri: str) -> ModelSource:
    """Take `spec.model.uri` apart. Raises InvalidInputError for a scheme that is not served."""
    scheme, separator, rest = uri.partition("://")
    rest = rest.rstrip("/")
    if separator and rest:
        if scheme == "hf":
            return ModelSource(scheme="hf", location=rest)
        if scheme == "file":
            return ModelSource(scheme="file", location="/" + rest.lstrip("/"))
        if scheme == "pvc":
            claim, _, path = rest.partition("/")
            location = f"{MODELS_MOUNT_PATH}/{claim}" + (f"/{path}" if path else "")
            return ModelSource(scheme="pvc", location=location, claim=claim)
    raise InvalidInputError(
        f"spec.model.uri is {uri[:128]!r}: write hf://org/name, pvc://claim/path or file:///path/in/the/image"
    )
