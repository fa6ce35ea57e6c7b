"""Loads that come back: how long to keep a replica that bursts need again and again.

The highest need of each minute is kept for an hour. A number of replicas that was not enough, then was for a while, and
then wasn't again will hardly be enough for longer than it was before: it is not gone down to until it has been enough
for twice the longest such time. A load that rises and falls once, as days do, returns to nothing and waits for nothing.
"""

import math
from collections.abc import Sequence

MINUTE_SECONDS = 60.0
MOST_MINUTES = 60
_CALM_SHARE = 0.75
"""Of the replicas: a need that stays above this share has not gone away."""
_GAPS = 2.0
"""Of the longest time that so few were enough: by then what came back has most likely gone."""


def remember_high(
    first_minute: int, highs: Sequence[float], now: float, needed: float
) -> tuple[int, tuple[float, ...]]:
    """(first minute, highest need of each minute since) with this one; minutes are of the Unix epoch.

    A minute without a decision has what the one before it had: nothing is known to have been less.
    """
    minute = int(now // MINUTE_SECONDS)
    kept = list(highs)
    behind = minute - (first_minute + len(kept))
    if not kept or behind < -1 or behind >= MOST_MINUTES:
        return minute, (needed,)
    if behind == -1:
        kept[-1] = max(kept[-1], needed)
    else:
        kept += [kept[-1]] * behind + [needed]
    kept = kept[-MOST_MINUTES:]
    return minute + 1 - len(kept), tuple(kept)


def holds_for(highs: Sequence[float], replicas: int, rounding: float) -> float:
    """For how many seconds more this number of replicas should not be gone down to; 0: it may be now."""
    longest, lasted, lowest = 0, 0, math.inf
    was_short = False
    for high in highs:
        if math.ceil(high - rounding) <= replicas:
            lasted, lowest = lasted + 1, min(lowest, high)
            continue
        if was_short and lowest <= _CALM_SHARE * replicas:
            longest = max(longest, lasted)
        lasted, lowest, was_short = 0, math.inf, True
    return max(0.0, _GAPS * longest - lasted) * MINUTE_SECONDS
