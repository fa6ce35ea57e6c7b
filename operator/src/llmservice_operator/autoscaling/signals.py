"""What the autoscaler knows of a service, each value with its time and its state."""

import math
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any


class SignalState(StrEnum):
    """How far a value can be trusted."""

    __hash__ = str.__hash__  # an Enum's own is Python code

    OK = "ok"
    IDLE = "idle"
    """Measured, but there was no traffic: a quantile is undefined then, not zero."""
    RESET = "reset"
    """A counter began anew, or jumped, within the window: what was lost isn't known."""
    STALE = "stale"
    """Older than it should be, or of an engine that has work and shows no progress."""
    INVALID = "invalid"
    """NaN, negative or absurd."""
    MISSING = "missing"
    """Not there, or not for long enough yet."""


_SEVERITY = {state: rank for rank, state in enumerate(SignalState)}


def worst(states: "list[SignalState]") -> SignalState:
    """The least trustworthy of these states; `missing` where there are none."""
    return max(states, key=_SEVERITY.__getitem__, default=SignalState.MISSING)


@dataclass(frozen=True, slots=True)
class Signal:
    """One value. A value beside a state that isn't `ok` is an estimate from what is left: it may argue for more."""

    value: float | None
    state: SignalState
    at: float = 0.0
    """When the oldest part of it was taken, seconds since the Unix epoch; 0: never."""

    @property
    def is_trusted(self) -> bool:
        """Whether it may argue for fewer replicas."""
        return self.state is SignalState.OK or self.state is SignalState.IDLE

    def or_zero(self) -> float:
        """The value; 0 where there is none."""
        return self.value or 0.0


ABSENT = Signal(None, SignalState.MISSING)
NOTHING = Signal(0.0, SignalState.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """A service's signals, over all replicas unless said otherwise. Rates are per second."""

    arrivals_per_second: Signal = ABSENT
    """Requests that came, over the short window: those that ended, were refused, or were added to the engines' work."""
    sustained_arrivals_per_second: Signal = ABSENT
    """The same over the long window."""
    completions_per_second: Signal = ABSENT
    input_tokens_per_second: Signal = ABSENT
    """Of requests that got their first token."""
    generated_tokens_per_second: Signal = ABSENT
    input_tokens_mean: Signal = ABSENT
    input_tokens_p95: Signal = ABSENT
    output_tokens_mean: Signal = ABSENT
    output_tokens_p95: Signal = ABSENT
    prefix_hit_share: Signal = ABSENT
    """0 to 1, of prompt tokens."""
    running: Signal = ABSENT
    waiting: Signal = ABSENT
    uncached_tokens_waiting: Signal = ABSENT
    """Only where the engine exports it."""
    kv_use_total: Signal = ABSENT
    """In replicas: 1.5 is one and a half replicas' cache."""
    kv_use_highest: Signal = ABSENT
    """Of one replica, 0 to 1."""
    preemptions_per_second: Signal = ABSENT
    ttft_p50_seconds: Signal = ABSENT
    ttft_p95_seconds: Signal = ABSENT
    ttft_attainment: Signal = ABSENT
    """Share of first tokens within the objective."""
    tpot_p50_seconds: Signal = ABSENT
    tpot_p95_seconds: Signal = ABSENT
    tpot_attainment: Signal = ABSENT
    itl_mean_seconds: Signal = ABSENT
    bandwidth_use: Signal = ABSENT
    """Bytes read and written a second over the card's peak, mean of the replicas."""
    step_bytes: Signal = ABSENT
    """Bytes that one step moves on one GPU, mean."""
    dram_active: Signal = ABSENT
    """DCGM's, 0 to 1, where Prometheus has it."""
    sm_active: Signal = ABSENT
    held_requests: Signal = NOTHING
    """Requests that wait outside of the engines, for replicas to come."""
    span_seconds: float = math.inf
    """How much of a window was looked at: less than the long one after a restart of the operator."""

    def items(self) -> list[tuple[str, Signal]]:
        """(name, signal) of each."""
        return [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != "span_seconds"]

    def believable(self) -> "Signals":
        """These, but that a value that is no finite number from 0 on is `invalid`, and none."""
        absurd: dict[str, Any] = {
            name: Signal(None, SignalState.INVALID, each.at)
            for name, each in self.items()
            if each.value is not None and not 0.0 <= each.value < math.inf
        }
        return replace(self, **absurd) if absurd else self
