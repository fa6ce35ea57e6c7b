"""When a stopping engine may be told to go. Pure: readings and the time are passed in.

In vLLM's own drain a new request gets HTTP 500 at once while /health still says 200 (measured on vLLM-CPU
0.32.0, `--shutdown-timeout 60`). So the engine is told last: it serves on until the cluster has stopped
sending and nothing runs or waits.
"""

from __future__ import annotations

from dataclasses import dataclass

IDLE_READS_APART_SECONDS = 1.0


@dataclass(frozen=True)
class DrainDecision:
    """`done`: tell the engine to go, because of `reason`. Else look again at `look_again_at`."""

    done: bool
    reason: str
    look_again_at: float


class Drain:
    """One stop, from the moment it was asked for.

    Done when `minimum_seconds` have passed and two readings, a second or more apart and with no busy or
    unknown one between them, found nothing running and nothing waiting; or after `timeout_seconds` whatever
    runs.
    """

    def __init__(self, asked_at: float, *, minimum_seconds: float, timeout_seconds: float) -> None:
        self._earliest = asked_at + min(minimum_seconds, timeout_seconds)
        self._deadline = asked_at + timeout_seconds
        self._idle_since: float | None = None
        self._idle_confirmed = False
        self._in_flight: float | None = None

    @property
    def deadline(self) -> float:
        return self._deadline

    @property
    def in_flight(self) -> float | None:
        """Requests running or waiting at the last reading; None when it could not be read."""
        return self._in_flight

    def read(self, now: float, in_flight: float | None) -> None:
        """A reading of the engine's own count. None: it could not be read, which is not nothing."""
        self._in_flight = in_flight
        if in_flight is None or in_flight > 0:
            self._idle_since, self._idle_confirmed = None, False
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_READS_APART_SECONDS:
            self._idle_confirmed = True

    def decide(self, now: float) -> DrainDecision:
        if now >= self._deadline:
            left = "an unknown number of" if self._in_flight is None else f"{self._in_flight:g}"
            return DrainDecision(True, f"drain timeout passed with {left} requests in flight", now)
        if now >= self._earliest and self._idle_confirmed:
            return DrainDecision(True, "nothing runs or waits", now)
        look = self._earliest if now < self._earliest else now + IDLE_READS_APART_SECONDS
        return DrainDecision(False, "", min(look, self._deadline))
