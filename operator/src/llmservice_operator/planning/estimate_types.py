"""What an estimate is made from, and what it says."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from llmservice_operator.engines.defaults import EntryPoint
from llmservice_operator.perfmodel.accelerators import AcceleratorRow
from llmservice_operator.perfmodel.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Requests that arrive by themselves."""

    rate_per_second: float
    input_p50: int
    output_p50: int


@dataclass(frozen=True, kw_only=True)
class EstimateInputs:
    """Everything an estimate depends on."""

    config: Mapping[str, Any]
    """config.json, with hf_quant_config.json under `quantization_config` where that is apart."""
    card: AcceleratorRow | None
    """A row of the catalogue; None: the card that `total_gib` describes."""
    engine_version: str
    flags: tuple[tuple[str, str | None], ...] = ()
    """vLLM's flags as given: (name in any spelling, text; None for a bare switch), and `total_gib`, `free_gib`."""
    env: Mapping[str, str] = field(default_factory=dict)
    entry_point: EntryPoint = "server"
    prefill: tuple[int, ...] = ()
    """Prompt lengths to time, each alone on an idle engine."""
    decode: tuple[tuple[int, int], ...] = ()
    """(batch, mean context) of decode steps to time."""
    arrival: Arrival | None = None
    checkpoint: Checkpoint | None = None
    """What the headers of the weights' files tell, where those are at hand."""
    checkpoint_bytes: int | None = None
    """Of the whole checkpoint, where only its index tells."""
    checkpoint_problem: str = ""
    """Why they tell nothing, where there are files."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one accelerator; of the container on the CPU row."""

    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    """As `Model loading took`: LoRA slots and a draft model are in it."""
    activation_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    cuda_graph_charged_bytes: int
    kv_cache_bytes: int
    outside_budget_bytes: int


@dataclass(frozen=True, kw_only=True)
class KvCache:
    """The pool of one rank as the engine prints it."""

    tokens: int
    blocks: int
    block_size: int
    bytes_per_token: int
    max_concurrency: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the engine will say of itself."""

    memory: Memory
    kv_cache: KvCache
    fits: bool
    shortfall_bytes: int
    warnings: tuple[str, ...]
    explain: Mapping[str, Any]
    """The keys of `memory` and `kv_cache` → where each number is from."""
    settings: Mapping[str, Any]
    """What the engine resolves its arguments to."""
    speed: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The document that the command prints; `speed` only where it was asked for."""
        values: dict[str, Any] = {
            "memory": asdict(self.memory),
            "kv_cache": asdict(self.kv_cache),
            "fits": self.fits,
            "shortfall_bytes": self.shortfall_bytes,
            "warnings": list(self.warnings),
        }
        if self.speed is not None:
            values["speed"] = dict(self.speed)
        return values | {"settings": dict(self.settings), "explain": dict(self.explain)}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """An account in the terms of the printed document."""

    memory: Mapping[str, int]
    kv_cache: Mapping[str, Any]
    max_model_len: int
    """The length that is served: with `auto` the one that fits; 0: none does."""
    problems: tuple[str, ...]
    """Why the start fails; empty: it doesn't."""
    shortfall_bytes: int
    warnings: tuple[str, ...]
    explain: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The part `speed` of the printed document, and what is to be said of it."""

    document: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
