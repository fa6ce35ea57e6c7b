"""What a decision remembers for the next: small, in the service's status, and nothing that a restart could misread."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.recurrence import MOST_MINUTES

SCHEMA = 1
MOST_PEAKS = 24
MOST_RATES = 24
_LARGEST_TIME = 1e11
_LARGEST_COUNT = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerState:
    """Times are seconds since the Unix epoch; 0: never."""

    at: float = 0.0
    """Of the last decision."""
    watched_since: float = 0.0
    """Since when decisions followed each other without a gap."""
    pace: float = 1.0
    """How many times as fast as the model says steps are."""
    correction: float = 1.0
    """What is observed over what the capacity model says of steps at that pace."""
    corrected_at: float = 0.0
    ready: int = 0
    ready_since: float = 0.0
    """Since when so many replicas are ready: a window of latency must not mix two fleets."""
    queueing_since: float = 0.0
    """Since when requests queue without a break; 0: they don't."""
    peaks: tuple[tuple[float, float], ...] = ()
    """(time, replicas needed) of the highest needs not yet out of the stabilisation window, falling."""
    first_minute: int = 0
    """Of `highs`, since the Unix epoch."""
    highs: tuple[float, ...] = ()
    """The highest need of each minute of the last hour."""
    rates: tuple[tuple[float, float], ...] = ()
    """(time, arrivals a second), for the forecast."""
    out_since: float = 0.0
    """Begin of the period that limits how fast replicas are added, and the number at its begin."""
    out_base: int = 0
    out_at: float = 0.0
    """Of the last scale-out."""
    in_at: float = 0.0
    """Of the last scale-in."""
    caution: float = 1.0
    """How many times as long as usual the load must have been low: scale-ins were undone."""
    mix: LengthMix | None = None
    """Lengths when there last was traffic."""

    def to_json(self) -> dict[str, Any]:
        """As JSON, at most 2 KiB."""
        return {
            "v": SCHEMA,
            "at": round(self.at, 1),
            "watchedSince": round(self.watched_since, 1),
            "pace": round(self.pace, 4),
            "correction": round(self.correction, 4),
            "correctedAt": round(self.corrected_at, 1),
            "ready": [self.ready, round(self.ready_since, 1)],
            "queueingSince": round(self.queueing_since, 1),
            "peaks": [[round(at, 1), round(value, 3)] for at, value in self.peaks],
            "highs": [self.first_minute, [round(value, 1) for value in self.highs]],
            "rates": [[round(at, 1), round(value, 4)] for at, value in self.rates],
            "out": [round(self.out_since, 1), self.out_base],
            "outAt": round(self.out_at, 1),
            "inAt": round(self.in_at, 1),
            "caution": round(self.caution, 3),
            "mix": None
            if self.mix is None
            else [
                round(self.mix.input_tokens, 1),
                round(self.mix.output_tokens, 1),
                round(self.mix.cached_share, 4),
            ],
        }


def read_state(data: Any) -> ScalerState:
    """The state in this JSON. What can't be read is left at its beginning: that never argues for fewer replicas."""
    if not isinstance(data, Mapping) or data.get("v") != SCHEMA:
        return ScalerState()
    ready, out = _pair(data.get("ready")), _pair(data.get("out"))
    first_minute, highs = _highs(data.get("highs"))
    state = ScalerState(
        at=_number(data.get("at"), _LARGEST_TIME),
        watched_since=_number(data.get("watchedSince"), _LARGEST_TIME),
        pace=_number(data.get("pace"), _LARGEST_COUNT) or 1.0,
        correction=_number(data.get("correction"), _LARGEST_COUNT) or 1.0,
        corrected_at=_number(data.get("correctedAt"), _LARGEST_TIME),
        ready=int(ready[0]),
        ready_since=ready[1],
        queueing_since=_number(data.get("queueingSince"), _LARGEST_TIME),
        peaks=_pairs(data.get("peaks"), MOST_PEAKS),
        first_minute=first_minute,
        highs=highs,
        rates=_pairs(data.get("rates"), MOST_RATES),
        out_since=out[0],
        out_base=int(min(out[1], _LARGEST_COUNT)),
        out_at=_number(data.get("outAt"), _LARGEST_TIME),
        in_at=_number(data.get("inAt"), _LARGEST_TIME),
        caution=max(1.0, _number(data.get("caution"), _LARGEST_COUNT)),
        mix=_mix(data.get("mix")),
    )
    # Without the time of the last decision nothing else can be put into time.
    return state if state.at and state.watched_since else replace(state, at=0.0, peaks=(), rates=())


def _number(value: Any, largest: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return float(min(max(0.0, value), largest))


def _pair(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        return (0.0, 0.0)
    return (_number(value[0], _LARGEST_TIME), _number(value[1], _LARGEST_TIME))


def _pairs(value: Any, most: int) -> tuple[tuple[float, float], ...]:
    rows = [_pair(each) for each in value[-most:]] if isinstance(value, list) else []
    pairs = [row for row in rows if row[0]]
    return tuple(pairs) if pairs == sorted(pairs, key=lambda row: row[0]) else ()


def _highs(value: Any) -> tuple[int, tuple[float, ...]]:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        return (0, ())
    first = int(_number(value[0], _LARGEST_TIME))
    return (
        (first, tuple(_number(each, _LARGEST_COUNT) for each in value[1][-MOST_MINUTES:]))
        if first
        else (0, ())
    )


def _mix(value: Any) -> LengthMix | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    inputs, outputs, cached = (_number(each, 1e9) for each in value)
    if not inputs or not outputs or cached > 1:
        return None
    return LengthMix(input_tokens=inputs, output_tokens=outputs, cached_share=cached)
