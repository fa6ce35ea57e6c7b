"""The supervisor's own metrics, `llmservice_runtime_*`, in the Prometheus text format. Pure."""

from __future__ import annotations

from typing import Iterable, Mapping

from llmservice_runtime import __version__
from llmservice_runtime.config import Config
from llmservice_runtime.memory_facts import EngineFacts
from llmservice_runtime.state import DRAINING, FAILED, READY, STARTING, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PHASES = (STARTING, READY, DRAINING, FAILED)


def render(config: Config, snapshot: Snapshot, now_wall: float) -> str:
    """Every series at this moment; a value that is not known has no series."""
    lines = [*_now(config, snapshot), *_start(config, snapshot, now_wall), *_engine(snapshot.facts)]
    return "\n".join(lines) + "\n"


def _now(config: Config, snapshot: Snapshot) -> list[str]:
    version = snapshot.facts.version or "unknown"
    build = {"version": __version__, "engine": config.engine, "engine_version": version}
    failure = snapshot.failure
    failed = [({"class": failure.failure_class}, 1.0)] if failure is not None else []
    return [
        *_gauge("build_info", "Constant 1; labels: versions of the supervisor and the engine.", [(build, 1)]),
        *_gauge(
            "phase",
            "1 for the phase that the engine is in; label: phase.",
            [({"phase": phase}, float(phase == snapshot.phase)) for phase in _PHASES],
        ),
        *_gauge("engine_healthy", "1 while the engine's /health answers 200.", _one(float(snapshot.healthy))),
        *_gauge(
            "engine_hung", "1 while requests run and no token comes.", _one(float(snapshot.hung is not None))
        ),
        *_gauge("failure", "1 with the class of the failure; label: class.", failed),
        "# HELP llmservice_runtime_log_lines_total Lines of the engine's log passed through.",
        "# TYPE llmservice_runtime_log_lines_total counter",
        f"llmservice_runtime_log_lines_total {snapshot.lines}",
    ]


def _start(config: Config, snapshot: Snapshot, now_wall: float) -> list[str]:
    end = now_wall if snapshot.ready_at is None else snapshot.ready_at
    seconds = max(0.0, end - snapshot.started_at)
    steps = [({"step": name}, value) for name, value in snapshot.steps]
    return [
        *_gauge("start_seconds", "Seconds from the engine's start to ready, or until now.", _one(seconds)),
        *_gauge("start_budget_seconds", "Seconds that a start may take.", _one(config.start_budget_seconds)),
        *_gauge("start_step_seconds", "Seconds in each step of the start; label: step.", steps),
        *_gauge("weights_total_bytes", "Bytes of weights to load.", _one(snapshot.weights.total_bytes)),
        *_gauge("weights_loaded_bytes", "Bytes of weights loaded.", _one(snapshot.weights.loaded_bytes)),
    ]


def _engine(facts: EngineFacts) -> list[str]:
    memory = {
        "total": facts.total_bytes,
        "requested": facts.requested_bytes,
        "free": facts.free_bytes,
        "weights": facts.weights_bytes,
        "activation": facts.activation_bytes,
        "non_torch": facts.non_torch_bytes,
        "cuda_graph": facts.cuda_graph_bytes,
        "cuda_graph_estimate": facts.cuda_graph_estimate_bytes,
        "kv_cache": facts.kv_cache_bytes,
    }
    return [
        *_gauge(
            "engine_memory_bytes",
            "What the engine said of its memory per device; label: term.",
            [({"term": term}, value) for term, value in memory.items()],
        ),
        *_gauge("kv_cache_tokens", "Tokens that the engine's KV cache holds.", _one(facts.kv_cache_tokens)),
        *_gauge("max_model_len", "The engine's longest request in tokens.", _one(facts.max_model_len)),
    ]


def _one(value: float | None) -> list[tuple[Mapping[str, str], float | None]]:
    """A series without labels."""
    return [({}, value)]


def _gauge(name: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> list[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return []
    full = f"llmservice_runtime_{name}"
    return [f"# HELP {full} {help_text}", f"# TYPE {full} gauge"] + [
        f"{full}{_labels(labels)} {_number(value)}" for labels, value in known
    ]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
