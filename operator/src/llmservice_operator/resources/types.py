"""What the renderers are told beside the spec and the plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmservice_operator.api.spec import LLMServiceSpec
from llmservice_operator.planning.types import Plan

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON."""

DEFAULT_ENGINE_IMAGE = "default"
"""The key of `RenderSettings.engine_images` for accelerators without an image of their own."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which LLMService is rendered for. The uid goes into owner references only, never into a pod."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class RenderSettings:
    """The operator's own choices, the same for every service."""

    supervisor_image: str
    """The operator's image: its init container puts the supervisor into the engine's pod."""
    engine_images: Mapping[str, str]
    """Engine image by accelerator row, and under `default` for all other rows."""
    supervisor_pull_policy: str | None = None
    """`Always`, `IfNotPresent` or `Never`; None: the API server's own default by tag."""
    hub_endpoint: str = ""
    """Base URL of the model hub, passed as HF_ENDPOINT; empty: the library's own default."""
    allowed_host_paths: tuple[str, ...] = ()
    """Directories under which `spec.model.cache.hostPath` may lie; none by default."""
    drain_minimum_seconds: int = 5
    """How long the engine serves on after an asked stop, even when idle: endpoints take that long to go."""
    hang_seconds: int = 120
    """Requests run and no token comes for so long: the engine is hung."""
    memory_failure_hold_seconds: int = 120
    """How long a pod whose engine ran out of memory waits for a corrected plan before it fails."""


class EngineCommands(Protocol):
    """The part of an engine adapter that rendering needs."""

    def default_command(self) -> tuple[str, ...]:
        """The command that starts the engine in its own image."""

    def arguments(self, spec: LLMServiceSpec, plan: Plan, identity: Identity, /) -> tuple[str, ...]:
        """The whole argument list after the command."""


@dataclass(frozen=True, kw_only=True)
class Volumes:
    """Volumes of a pod with the mounts of its engine container."""

    volumes: tuple[Manifest, ...] = field(default_factory=tuple)
    mounts: tuple[Manifest, ...] = field(default_factory=tuple)
