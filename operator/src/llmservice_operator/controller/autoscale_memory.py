"""What outlives the process: the text of `status.scaling.state`. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from llmservice_operator.api.status_scaling import STATE_MAX_LENGTH
from llmservice_operator.autoscaling.state import ScalerState, read_state
from llmservice_operator.controller.autoscale_starts import LONGEST_SECONDS, Starts

LEAST_SCALE, MOST_SCALE = 1e-3, 1e3
_STARTS, _SCALE = "starts", "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of a service."""

    state: ScalerState
    starts: Starts
    scale: float
    """By how much a rough prediction of a replica's capacity was off, beyond what is corrected for."""


def write_memory(state: ScalerState, starts: Starts, scale: float) -> str:
    """The text, beside the keys of `decide`'s own state; empty where the status would not take it."""
    kept = {
        **state.to_json(),
        _STARTS: [round(each, 1) for each in starts.seconds],
        _SCALE: round(scale, 4),
    }
    text = json.dumps(kept, separators=(",", ":"))
    return text if len(text) <= STATE_MAX_LENGTH else ""


def read_memory(text: str) -> Memory:
    """What `write_memory` wrote; what can't be read is as if it never was."""
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        data = None
    found: Mapping[str, Any] = data if isinstance(data, dict) else {}
    starts, scale = found.get(_STARTS), found.get(_SCALE)
    return Memory(
        state=read_state(data),
        starts=Starts(each for each in (starts if isinstance(starts, list) else ()) if _is_start(each)),
        scale=float(scale) if _is_number(scale) and LEAST_SCALE <= scale <= MOST_SCALE else 1.0,
    )


def _is_start(value: Any) -> bool:
    return _is_number(value) and 0 < value <= LONGEST_SECONDS


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
