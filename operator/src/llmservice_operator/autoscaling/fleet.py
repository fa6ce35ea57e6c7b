"""The replicas of a service as the cluster has them: what serves, what comes when, and what won't."""

import statistics
from dataclasses import dataclass

_RECENT_STARTS = 5
"""The newest ones: caches are warm after the first."""
_OVERDUE_SHARE = 0.25
"""A start that is over its time is expected after another quarter of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What there is of a service's replicas."""

    wanted: int
    """`spec.replicas` as it stands."""
    ready: int
    starting: tuple[float, ...] = ()
    """When each replica that is scheduled and not ready yet was created, seconds since the Unix epoch."""
    unschedulable: int = 0
    failing: int = 0
    """Replicas whose engine ended, or ends again and again, before it was ready."""
    recent_starts: tuple[float, ...] = ()
    """Seconds that starts took from creation to ready, the newest last."""
    planned_start_seconds: float = 120.0
    """Used until a start was measured."""

    def start_seconds(self, now: float) -> float:
        """How long a start takes: as the newest ones did, but never less than one that still goes on."""
        known = self.recent_starts[-_RECENT_STARTS:]
        usual = statistics.median_high(known) if known else self.planned_start_seconds
        return max([usual, *(now - created for created in self.starting)])

    def joins_in(self, now: float) -> tuple[float, ...]:
        """In how many seconds each starting replica is expected to be ready, soonest first."""
        known = self.recent_starts[-_RECENT_STARTS:]
        usual = statistics.median_high(known) if known else self.planned_start_seconds
        return tuple(sorted(max(created + usual - now, _OVERDUE_SHARE * usual) for created in self.starting))

    def problems(self) -> tuple[str, ...]:
        """What cannot be, in words."""
        counts = {
            "wanted": self.wanted,
            "ready": self.ready,
            "unschedulable": self.unschedulable,
            "failing": self.failing,
        }
        found = [f"{name} is {count}; at least 0 is expected" for name, count in counts.items() if count < 0]
        if not 0 < self.planned_start_seconds < 1e6:
            found.append(
                f"planned_start_seconds is {self.planned_start_seconds}; a positive number is expected"
            )
        return tuple(found)
