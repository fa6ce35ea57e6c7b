"""What a decision is made from, and what it says."""

import math
from dataclasses import dataclass

from llmservice_operator.autoscaling.capacity import CapacityModel, LengthMix
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.policy import BALANCED, ScalingPolicy
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.autoscaling.state import ScalerState

_LONGEST_TTFT_SECONDS, _LONGEST_TPOT_SECONDS = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What clients are promised, at p95; None: nothing."""

    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None

    def problems(self) -> tuple[str, ...]:
        """What cannot be meant, in words."""
        return tuple(
            f"slo.{name} is {value} s; more than 0 and at most {largest:g} s is expected"
            for name, value, largest in (
                ("ttft.p95", self.ttft_p95_seconds, _LONGEST_TTFT_SECONDS),
                ("tpot.p95", self.tpot_p95_seconds, _LONGEST_TPOT_SECONDS),
            )
            if value is not None and not 0 < value <= largest
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that a decision looks at, but for what it remembers."""

    signals: Signals
    fleet: Fleet
    capacity: CapacityModel
    expected_mix: LengthMix
    """Lengths until there was traffic."""
    objectives: Objectives = Objectives()
    min_replicas: int = 1
    max_replicas: int
    quota_replicas: int | None = None
    """As many as a quota allows; None: there is none."""
    policy: ScalingPolicy = BALANCED
    concurrency_limit: float | None = None
    """Requests that one replica holds at once at these lengths; None: not known."""
    weights_bytes_per_step: float | None = None
    """What each step reads on one GPU whatever its batch; None: not known."""
    other_writer: str = ""
    """Who else writes the number of replicas, such as an HPA; empty: nobody."""

    def problems(self) -> tuple[str, ...]:
        """What cannot be meant, in words; none for inputs that can be used."""
        found = [*self.policy.problems(), *self.objectives.problems(), *self.fleet.problems()]
        if not 1 <= self.min_replicas <= self.max_replicas:
            found.append(
                f"minReplicas is {self.min_replicas} and maxReplicas is {self.max_replicas}: "
                "1 <= minReplicas <= maxReplicas is expected"
            )
        if self.expected_mix.input_tokens <= 0 or self.expected_mix.output_tokens <= 0:
            found.append("workload.inputTokens and outputTokens must be above 0")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a decision: how many replicas it asks for or allows, and why."""

    name: str
    replicas: float | None
    """None: it has nothing to say."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many replicas, and every number on the way."""

    desired: int
    current: int
    ruling: str
    """The step that ruled."""
    reason: str
    """In words."""
    steps: tuple[Step, ...]
    state: ScalerState
    """For the next decision."""
    capacity_requests_per_second: float = 0.0
    """Of one replica, by the model."""
    correction: float = 1.0
    start_seconds: float = 0.0
    metrics_available: bool = True
    """Whether everything that a scale-in needs is known."""
    slo_met: bool | None = None
    """None: without traffic, or with too few requests to tell."""
    unreachable: str = ""
    """Which objective no replica reaches, and by how much."""
    problems: tuple[str, ...] = ()
    """What in the inputs can't be meant: nothing is changed until it is."""
    is_written: bool = True
    """False: somebody else writes the number of replicas."""

    @property
    def asked(self) -> dict[str, float]:
        """Replicas that each step asks for or allows; without those that say nothing, or that no number would do."""
        return {
            step.name: step.replicas
            for step in self.steps
            if step.replicas is not None and math.isfinite(step.replicas)
        }
