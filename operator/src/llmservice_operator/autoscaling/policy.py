"""The policy `balanced`: one setting for every load. Each value says why it is what it is."""

from dataclasses import dataclass, fields

_POSITIVE = 1e-9
_ORDERED = (
    ("scale_in_utilization", "target_utilization"),
    ("kv_limit_after", "kv_limit"),
    ("least_stabilization_seconds", "most_stabilization_seconds"),
    ("least_correction", "most_correction"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """Head-room, windows, rates and guards."""

    target_utilization: float = 0.95
    """Of the capacity at the objectives' p95, of a large fleet: at that capacity itself 5 of 100 requests miss."""
    scale_in_utilization: float = 0.90
    """What the rest may have at most after a scale-in. The gap to the target keeps it from being undone at once."""
    small_fleet_reserve: float = 0.2
    """Replicas kept free in a fleet of n, over the square root of n: chance is evened out among many, and not among
    few. With 0.2 a fleet of 1, 2, 4, 8 and 16 has 80, 86, 90, 93 and 95 % of its capacity used."""
    kv_limit: float = 0.92
    """KV use above which there must be more replicas: preemption is near."""
    kv_limit_after: float = 0.80
    """KV use that the rest may have after a scale-in."""
    bandwidth_limit: float = 0.90
    """Of the peak, by the engine's own count of bytes."""
    dram_active_limit: float = 0.80
    """Of DCGM's DRAM_ACTIVE, whose practical ceiling this is."""
    drain_seconds: float = 60.0
    """How soon a queue should be gone once there are enough replicas."""
    most_backlog_growth: float = 0.5
    """What a queue may add to the replicas that the load needs, as a share of them."""
    burst_deviations: float = 4.0
    """A short window's rate above the long one's counts if Poisson noise would show it once in 30,000 windows: traffic
    is burstier than that, and a burst of half a minute is over before a replica for it is there."""
    scale_in_deviations: float = 2.0
    """What noise may add to the load before fewer replicas are tried: once in 40 windows it adds more."""
    most_forecast_growth: float = 0.3
    """What a forecast may add to the rate."""
    scale_out_factor: float = 2.0
    scale_out_step: int = 4
    """At most the larger of the two per period: as Kubernetes' own autoscaler does."""
    scale_out_period_seconds: float = 60.0
    scale_in_share: float = 0.5
    """Of the replicas at once; always one at least."""
    scale_in_period_seconds: float = 60.0
    """Between two scale-ins: the window in which the first shows in the latency."""
    stabilization_starts: float = 1.0
    """The load must have been low for so many start times: what is given up takes one to come back."""
    least_stabilization_seconds: float = 120.0
    most_stabilization_seconds: float = 600.0
    most_caution: float = 6.0
    """What scale-ins that were undone make of that time: each doubles it, up to this."""
    caution_seconds: float = 7200.0
    """In which the caution goes again."""
    least_samples: int = 20
    """A p95 of fewer is a maximum."""
    least_correction: float = 0.5
    most_correction: float = 2.0
    """Bounds of what is observed over what the capacity model says."""
    gap_seconds: float = 60.0
    """Between decisions further apart than this nothing was watched: what was learnt for a scale-in begins anew."""

    def problems(self) -> tuple[str, ...]:
        """What cannot be meant, in words; none for a policy that can be used."""
        found = [
            f"{each.name} is {getattr(self, each.name)}; a positive number is expected"
            for each in fields(self)
            if not _POSITIVE < getattr(self, each.name) < 1e9
        ]
        shares = ("target_utilization", "kv_limit", "kv_limit_after", "bandwidth_limit", "scale_in_share")
        found += [
            f"{name} is {getattr(self, name)}; it is a share, at most 1"
            for name in shares
            if getattr(self, name) > 1
        ]
        found += [
            f"{low} is {getattr(self, low)} and {high} is {getattr(self, high)}: {low} must not be above {high}"
            for low, high in _ORDERED
            if getattr(self, low) > getattr(self, high)
        ]
        if self.most_caution < 1:
            found.append(f"most_caution is {self.most_caution}; at least 1 is expected")
        if not self.least_correction <= 1 <= self.most_correction:
            found.append("least_correction and most_correction must have 1 between them")
        return tuple(found)


BALANCED = ScalingPolicy()
