"""Things that go wrong in a fleet, or in what is told of it."""

from dataclasses import dataclass
from enum import StrEnum

CLOCK_JUMP_SECONDS = 3600.0


class FaultKind(StrEnum):
    """What happens while it lasts."""

    EMPTY = "empty"
    """Scrapes have no pods."""
    NAN = "nan"
    """Every gauge is NaN, counters too."""
    FROZEN = "frozen"
    """Scrapes repeat the last one before."""
    GAP = "gap"
    """No scrape is taken."""
    RESET = "reset"
    """Once, at its begin: counters fall to zero."""
    HALF = "half"
    """Every second pod isn't scraped."""
    HANG = "hang"
    """One pod's engine stands still; the router goes on sending."""
    UNSCHEDULABLE = "unschedulable"
    """New pods find no node."""
    CRASH_LOOP = "crash-loop"
    """New pods never become ready."""
    CLOCK_JUMP = "clock-jump"
    """The policy's clock is an hour ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One of them, for a while."""

    kind: FaultKind
    at_seconds: float
    seconds: float

    def holds(self, now: float) -> bool:
        """Whether it lasts now."""
        return self.at_seconds <= now < self.at_seconds + self.seconds
