"""Where a model's files come from, as its uri says."""

from dataclasses import dataclass

from llmservice_operator.engines.vllm import MODELS_MOUNT_PATH, resolve_model_path


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model's uri, taken apart."""

    location: str
    """What the engine is told to load: `org/name` on a hub, or a path in its container."""
    local: bool
    """Whether the files are in the pod when it starts, so that no hub is needed."""
    claim: str | None = None
    """The claim to mount read-only at `claim_mount_path`, for `pvc://`."""

    @property
    def claim_mount_path(self) -> str:
        """Where the claim is mounted."""
        return f"{MODELS_MOUNT_PATH}/{self.claim}"


def parse_model_uri(uri: str) -> ModelSource:
    """Take `spec.model.uri` apart. Raises InvalidInputError for a scheme that is not served."""
    location = resolve_model_path(uri)
    scheme, _, rest = uri.partition("://")
    claim = rest.partition("/")[0] if scheme == "pvc" else None
    return ModelSource(location=location, local=scheme != "hf", claim=claim)
