"""What the scaling loop found of a service: a value that a reconcile takes into what it writes."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmservice_operator.api.conditions import ConditionType
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.controller.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the loop last found of a service."""

    uid: str
    at: float
    """When, in seconds since the Unix epoch."""
    signals: Signals
    decision: Decision | None
    """None: the service isn't scaled, it is only measured."""
    bounds: tuple[int, int] | None
    """(least, most) replicas that were decided within."""
    verdicts: Mapping[ConditionType, Verdict]
    memory: str
    """What the next decision is to remember, as text for `status.scaling.state`."""
    start_seconds: float
    capacity_requests_per_second: float

    @property
    def desired(self) -> int | None:
        """Replicas wanted; None where that isn't the operator's to say."""
        decision = self.decision
        return decision.desired if decision is not None and decision.is_written else None
