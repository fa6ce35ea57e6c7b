"""What an engine is to the operator."""

from typing import Protocol

from llmservice_operator.api.spec import LLMServiceSpec


class Named(Protocol):
    """Whatever carries the service's name."""

    @property
    def name(self) -> str:
        """The LLMService's name."""


class PlannedKnobs(Protocol):
    """The knobs of a plan that become flags (planning's Knobs)."""

    @property
    def max_model_len(self) -> int: ...
    @property
    def gpu_memory_utilization(self) -> float | None: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def block_size(self) -> int | None: ...
    @property
    def tensor_parallel_size(self) -> int: ...


class Planned(Protocol):
    """The part of a plan that an engine's command line depends on."""

    @property
    def knobs(self) -> PlannedKnobs: ...
    @property
    def engine_version(self) -> str: ...
    @property
    def engine_args(self) -> tuple[tuple[str, str], ...]: ...


class EngineAdapter(Protocol):
    """One engine: its command line and its versions."""

    def default_command(self) -> tuple[str, ...]:
        """The command that starts the engine in its own image."""

    def arguments(self, spec: LLMServiceSpec, plan: Planned, identity: Named) -> tuple[str, ...]:
        """The whole argument list after the command."""

    def version_from_image(self, image: str) -> str:
        """The engine's version as the image's tag tells it; empty where it tells none."""
