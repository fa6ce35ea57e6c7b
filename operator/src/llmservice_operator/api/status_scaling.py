"""`status.scaling`: how many replicas the operator wants, and what that rests on."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from llmservice_operator.api.base import StatusModel
from llmservice_operator.api.wording import Sentence

DECISIONS_MAX_ITEMS = 5
SIGNALS_MAX_ITEMS = 40
STATE_MAX_LENGTH = 4_096
_STEPS_MAX_ITEMS = 24
_SIGNIFICANT_DIGITS = 4


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}") if isinstance(value, int | float) else value


def _rounded_each(values: Any) -> Any:
    return (
        {name: _rounded(value) for name, value in values.items()} if isinstance(values, Mapping) else values
    )


Measured = Annotated[float, BeforeValidator(_rounded)]
"""A number that was measured or reckoned: four digits of it say all that it knows, and keep the status small."""


class SignalStatus(StatusModel):
    """One signal, over all replicas unless its name says otherwise."""

    name: str = Field(min_length=1, max_length=63)
    """What was measured, with its unit: arrivals_per_second, ttft_p95_seconds, kv_use_highest, ..."""
    state: str = Field(min_length=1, max_length=15)
    """ok; idle: there was no traffic; reset: a counter began anew; stale; invalid; or missing. Only ok and idle
    may argue for fewer replicas."""
    value: Measured | None = None
    """The value; absent where there is none. Beside a state other than ok it is an estimate."""
    at: datetime | None = None
    """When the oldest part of it was taken."""


class DecisionStatus(StatusModel):
    """One change of the number of replicas."""

    at: datetime
    """When it was decided."""
    from_replicas: int = Field(alias="from", ge=0)
    """Replicas wanted before."""
    to_replicas: int = Field(alias="to", ge=0)
    """Replicas wanted since."""
    ruling: str = Field(default="", max_length=63)
    """The step that ruled."""
    reason: Sentence = ""
    """Why, in words and numbers."""
    steps: Annotated[
        dict[str, Measured], Field(max_length=_STEPS_MAX_ITEMS), BeforeValidator(_rounded_each)
    ] = Field(default_factory=dict)
    """Replicas that each step asked for or allowed."""


class ScalingStatus(StatusModel):
    """How many replicas the operator wants, and what that rests on."""

    desired_replicas: int | None = Field(default=None, ge=0)
    """Replicas wanted by the last decision; absent: there was none."""
    ruling: str = Field(default="", max_length=63)
    """The step of the last decision that ruled."""
    reason: Sentence = ""
    """The last decision in words: also why nothing was changed."""
    capacity_requests_per_second: Measured | None = None
    """What one replica takes within spec.slo at the lengths that are seen, by the model."""
    correction: Measured | None = None
    """What is observed over what the model says: the capacity is multiplied by it."""
    start_seconds: Measured | None = None
    """How long a replica takes until it serves, as seen or as planned."""
    signals: tuple[SignalStatus, ...] = Field(
        default=(),
        max_length=SIGNALS_MAX_ITEMS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """What was measured, with its time and how far it is trusted."""
    decisions: tuple[DecisionStatus, ...] = Field(default=(), max_length=DECISIONS_MAX_ITEMS)
    """The last five changes, newest first."""
    state: str = Field(default="", max_length=STATE_MAX_LENGTH)
    """What the next decision remembers, as JSON: for the operator alone."""
