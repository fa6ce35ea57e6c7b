"""Time, passed in: everything that decides takes `now`, everything that waits takes a Clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: one that never jumps (for durations) and one that people can read."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
