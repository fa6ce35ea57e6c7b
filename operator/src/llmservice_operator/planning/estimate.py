"""The engine with exactly these arguments: what its memory account says, whether it starts, how fast it is.

    estimate(EstimateInputs(config=..., card=row, engine_version="0.26.0", flags=(("tp", "2"),))) -> Estimate

No margin: the best guess of what the engine itself prints. `Estimate.to_json()` is what `llmservice estimate -o json`
prints. The plan (`planning.plan`) chooses settings instead, and keeps a margin.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmservice_operator.engines.environment import environment_notes
from llmservice_operator.engines.flags import Given, read_flags
from llmservice_operator.engines.versions import NEWEST_KNOWN, Version, VersionNote, known_version
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.accelerators import LARGEST_CARD_GIB, AcceleratorRow, with_memory
from llmservice_operator.perfmodel.config_reader import ConfigError
from llmservice_operator.perfmodel.memory import GIB
from llmservice_operator.perfmodel.reading import read_model
from llmservice_operator.perfmodel.shapes import Architecture
from llmservice_operator.planning.estimate_cpu import estimate_cpu
from llmservice_operator.planning.estimate_gpu import estimate_gpu
from llmservice_operator.planning.estimate_resolve import Resolver
from llmservice_operator.planning.estimate_settings import Settings
from llmservice_operator.planning.estimate_types import (
    Arrival,
    Estimate,
    EstimateInputs,
    KvCache,
    Memory,
    Outcome,
    Speed,
)
from llmservice_operator.planning.weights_check import WeightsCheck

__all__ = ["Arrival", "Estimate", "EstimateInputs", "KvCache", "Memory", "estimate"]

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?!\d)")
CARD_FLAGS = ("total_gib", "free_gib")
"""Not vLLM's: they describe the card. All of its memory as CUDA reports it (on the CPU row the container's limit), and
what of it is free before the engine starts."""


def estimate(inputs: EstimateInputs) -> Estimate:
    """The engine's own account at these arguments.

    Raises InvalidInputError for a flag, a value, a card or a config that can't be used.
    """
    note = _version(inputs.engine_version)
    described = _described(inputs.flags)
    given = read_flags([each for each in inputs.flags if _plain(each[0]) not in CARD_FLAGS], note.version)
    card = _card(inputs.card, described.get("total_gib"))
    model, settings = _resolve(inputs, given, note.version, card)
    free = described.get("free_gib")
    if card.is_cpu:
        outcome = estimate_cpu(model, settings)
    else:
        outcome = estimate_gpu(model, settings, free_bytes=None if free is None else int(free * GIB))
    speed = _speed(inputs, model, settings, outcome)
    warnings = (
        *outcome.problems, *outcome.warnings, *speed.warnings, note.warning, *settings.notes, *given.notes,
        *environment_notes(inputs.env),
    )  # fmt: skip
    return Estimate(
        memory=Memory(**outcome.memory),
        kv_cache=KvCache(**outcome.kv_cache),
        fits=not outcome.problems,
        shortfall_bytes=outcome.shortfall_bytes,
        warnings=tuple(each for each in warnings if each),
        explain=outcome.explain,
        settings=_shown(settings, outcome),
        speed=speed.document or None,
    )


def _version(text: str) -> VersionNote:
    """The version whose rules are used, and what is to be said of it. `0.22` is the first release of its line.

    Raises InvalidInputError for what doesn't begin with a version.
    """
    if not text.strip():
        newest = ".".join(str(part) for part in NEWEST_KNOWN)
        return VersionNote(
            version=NEWEST_KNOWN, warning=f"no engine version is given: the rules of vLLM {newest} are used"
        )
    found = _VERSION.match(text.strip())
    if found is None:
        raise InvalidInputError(
            f"--engine-version {text[:40]}: one of vLLM's versions is expected, such as 0.26.0"
        )
    return known_version(f"{found[1]}.{found[2]}.{found[3] or 0}")


def _resolve(
    inputs: EstimateInputs, given: Given, version: Version, card: AcceleratorRow
) -> tuple[Architecture, Settings]:
    config = _overridden(inputs.config, given.values)
    try:
        model, quantization = read_model(config)
    except ConfigError as error:
        raise InvalidInputError(str(error)) from error
    resolver = Resolver(
        flags=given.values,
        env=inputs.env,
        version=version,
        entry_point=inputs.entry_point,
        card=card,
        model=model,
        quantization=quantization,
    )
    settings = resolver.resolve()
    check = _weights_check(inputs, model, settings)
    notes = (*check.warnings(larger_counts=True), *settings.notes)
    return model, replace(settings, weights_share=check.larger_share, weights_told=check.told(), notes=notes)


def _weights_check(inputs: EstimateInputs, model: Architecture, settings: Settings) -> WeightsCheck:
    return WeightsCheck(
        model=model,
        quantization=settings.quantization,
        dtype=settings.dtype,
        vision=settings.multimodal,
        mtp=settings.speculation.predicts,
        checkpoint=inputs.checkpoint,
        total_bytes=inputs.checkpoint_bytes,
        problem=inputs.checkpoint_problem,
    )


def _overridden(config: Mapping[str, Any], flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """config.json with `--hf-overrides` and `--rope-scaling`; nested objects are merged."""
    changes = dict(flags.get("hf_overrides") or {})
    if "rope_scaling" in flags:
        changes["rope_scaling"] = flags["rope_scaling"]
    merged = dict(config)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


def _plain(name: str) -> str:
    return name.strip().lstrip("-").replace("-", "_")


def _described(flags: tuple[tuple[str, str | None], ...]) -> dict[str, float]:
    """total_gib and free_gib, where they are given."""
    found = {}
    for name, text in flags:
        if (flag := _plain(name)) not in CARD_FLAGS:
            continue
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not 0 < value <= LARGEST_CARD_GIB:
            raise InvalidInputError(
                f"--set {flag}={text}: GiB of memory are expected, more than 0 and at most {LARGEST_CARD_GIB:,.0f}"
            )
        found[flag] = value
    return found


def _card(row: AcceleratorRow | None, total_gib: float | None) -> AcceleratorRow:
    """The row, with the memory that is given in place of its own."""
    if row is None:
        if total_gib is None:
            raise InvalidInputError(
                "no card is named: give --accelerator NAME, or describe one by --set total_gib=GIB"
            )
        row = _UNNAMED
    if total_gib is not None:
        return with_memory(row, total_gib)
    if row.is_cpu:
        raise InvalidInputError("--accelerator cpu: give the container's memory limit by --set total_gib=GIB")
    return row


_UNNAMED = AcceleratorRow(
    name="described",
    memory_bytes=0,
    memory_bandwidth_bytes_per_second=0.0,
    bf16_flops_per_second=0.0,
    fp8_flops_per_second=None,
    compute_capability=None,
    resource_name="",
    node_labels=(),
    device_name_contains=(),
    cost_per_hour=0.0,
    sources={"memory": "--set total_gib"},
    evidence="datasheet",
)
"""A card of which only the memory is known."""


def _shown(settings: Settings, outcome: Outcome) -> dict[str, Any]:
    """The settings that people look for, by vLLM's names."""
    return {
        "engine_version": ".".join(str(part) for part in settings.version),
        "accelerator": settings.card.name,
        "max_model_len": outcome.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "gpu_memory_utilization": settings.utilization,
        "tensor_parallel_size": settings.parallel.tensor,
        "pipeline_parallel_size": settings.parallel.pipeline,
        "data_parallel_size": settings.parallel.data,
        "dtype": settings.dtype,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "quantization": settings.quantization.method,
        "enable_prefix_caching": settings.prefix_caching,
        "enforce_eager": settings.enforce_eager,
        "model_runner": "V2" if settings.v2 else "V1",
    }


def _speed(inputs: EstimateInputs, model: Architecture, settings: Settings, outcome: Outcome) -> Speed:
    """Times, where some were asked for. The speed model is imported only then."""
    if not (inputs.prefill or inputs.decode or inputs.arrival):
        return Speed(document={})
    from llmservice_operator.planning.estimate_speed import estimate_speed  # noqa: PLC0415

    return estimate_speed(inputs, model, settings, outcome)
