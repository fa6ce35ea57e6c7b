"""How the fake behaves: latencies and sizes, from a JSON file and single variables.

`FAKE_ENGINE_PARAMETERS` names a JSON object with any of the fields below; `FAKE_ENGINE_<FIELD>` (upper case) sets one
and wins. A wrong name or value ends the start with a message, so that no test runs on a default by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path


@dataclass(frozen=True)
class Parameters:
    """Seconds, bytes, tokens. None: worked out from the model, as vLLM would."""

    device: str = "cpu"  # cpu or cuda: which form of log lines, which memory rules
    version: str = "0.32.0"
    import_seconds: float = 0.05
    load_seconds: float = 0.1
    load_shards: int = 1
    compile_seconds: float = 0.0
    profile_seconds: float = 0.0
    capture_seconds: float = 0.0
    warmup_seconds: float = 0.0
    ttft_seconds: float = 0.01
    prefill_tokens_per_second: float = 0.0  # 0: the prompt's length costs nothing
    tpot_seconds: float = 0.005
    tpot_seconds_per_running: float = 0.0
    # Continuous batching by a law of a step's time instead of the four above; 0: not used. See `vllm/fake/steps.py`.
    step_seconds: float = 0.0
    step_least_token_seconds: float = 0.0
    step_seconds_per_token: float = 0.0
    step_seconds_per_sequence: float = 0.0
    step_seconds_per_context_token: float = 0.0
    step_seconds_per_attended_token: float = 0.0
    total_bytes: int = 24 * 1024**3  # of the device, or of the memory node
    activation_bytes: int = 300 * 1024**2
    non_torch_bytes: int = 240 * 1024**2
    cuda_graph_bytes: int = 500 * 1024**2
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_cache_tokens: int | None = None
    max_model_len: int | None = None
    read_bytes_per_step: float = 0.0  # for the bandwidth counters with --enable-mfu-metrics
    flops_per_token: float = 0.0
    answer: str = "The capital of France is Paris."
    worker_process: bool = False  # a child process as EngineCore, to be left behind or not


class ParameterError(ValueError):
    """A parameter that does not exist or does not fit its type."""


def read(environment: Mapping[str, str]) -> Parameters:
    """The parameters of this run.

    Raises:
        ParameterError: names the parameter and its value.

    """
    given: dict[str, object] = {}
    path = environment.get("FAKE_ENGINE_PARAMETERS")
    if path:
        given.update(json.loads(Path(path).read_text(encoding="utf-8")))
    names = {field.name for field in fields(Parameters)}
    for name in names:
        value = environment.get(f"FAKE_ENGINE_{name.upper()}")
        if value is not None:
            given[name] = value
    unknown = sorted(set(given) - names)
    if unknown:
        raise ParameterError(
            f"FAKE_ENGINE_PARAMETERS has unknown fields {unknown}; there are {sorted(names)}"
        )
    return replace(Parameters(), **{name: _typed(name, value) for name, value in given.items()})  # type: ignore[arg-type]


def _typed(name: str, value: object) -> object:
    kind = str(next(field.type for field in fields(Parameters) if field.name == name))
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if kind == "str":
            return str(value)
        if kind == "float":
            return float(str(value))
        return None if value is None else int(str(value))
    except (ValueError, KeyError) as error:
        raise ParameterError(
            f"the fake engine's parameter {name} is {value!r}; it must be a {kind}"
        ) from error
