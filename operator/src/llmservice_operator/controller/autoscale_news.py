"""When what the loop found is worth a reconcile: a change at once, numbers alone seldom. Pure."""

from llmservice_operator.controller.autoscale_outcome import Outcome

VALUES_SECONDS = 60.0
"""Numbers that moved are told at most this often for one service."""
REMEMBER_SECONDS = 610.0
"""What a decision remembers is told of this often all the same: a little later than it is worth a write."""
AGAIN_SECONDS = 30.0
"""How soon replicas that are wanted and not asked for yet are told of again."""
MOVED_FRACTION = 0.2
_CORRECTION_WEIGHT = 4
"""A twentieth of a correction is as much as a fifth of the load."""


class Allowance:
    """How many services may be told of for their numbers alone: so many a second over all, a few at once."""

    def __init__(self, *, per_second: float = 5.0, most: float = 25.0) -> None:
        self._per_second, self._most = per_second, most
        self._left, self._at = most, 0.0

    def take(self, now: float) -> bool:
        """Whether one more may be told of at this time; then it is counted."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class News:
    """What was told last of one service."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._facts: object = None
        self._values: tuple[float, ...] = ()
        self._at = 0.0

    def is_due(self, outcome: Outcome, wanted: int, now: float) -> bool:
        """Whether to tell now; if so it counts as told. `wanted`: replicas that the Deployment asks for."""
        facts = (
            outcome.desired,
            outcome.bounds,
            {kind: (each.status, each.reason) for kind, each in outcome.verdicts.items()},
        )
        values = _values(outcome)
        self._at = min(self._at, now)  # or a clock that was set back would have it waited for
        since = now - self._at
        unmet = outcome.desired is not None and outcome.desired != wanted
        due = (
            facts != self._facts
            or (unmet and since >= AGAIN_SECONDS)
            or (
                (since >= REMEMBER_SECONDS or (since >= VALUES_SECONDS and _moved(self._values, values)))
                and self._allowance.take(now)
            )
        )
        if due:
            self._facts, self._values, self._at = facts, values, now
        return due


def _values(outcome: Outcome) -> tuple[float, ...]:
    """Numbers that matter and don't jitter: of windows long enough that noise stays below a fifth."""
    correction = outcome.decision.correction if outcome.decision is not None else 1.0
    return (
        outcome.signals.sustained_arrivals_per_second.or_zero(),
        outcome.capacity_requests_per_second,
        # Learnt slowly, and lost with the process unless it is written.
        correction**_CORRECTION_WEIGHT,
        outcome.start_seconds,
    )


def _moved(old: tuple[float, ...], new: tuple[float, ...]) -> bool:
    return any(
        abs(after - before) > MOVED_FRACTION * abs(before) for before, after in zip(old, new, strict=True)
    )
