"""The autoscaler of one service: from pages to an outcome. No I/O; time is an argument.

What was seen is kept in memory and begins anew with the process; what a decision remembers is in the service's status.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmservice_operator.api.conditions import ConditionType, Reason
from llmservice_operator.autoscaling.cadence import Work, is_pressing, work_of
from llmservice_operator.autoscaling.capacity import Capacity
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.policy import ScalingPolicy
from llmservice_operator.autoscaling.signals import ABSENT, Signal, Signals
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.controller.autoscale_capacity import ReadyCapacity, Scaled
from llmservice_operator.controller.autoscale_memory import (
    LEAST_SCALE,
    MOST_SCALE,
    read_memory,
    write_memory,
)
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_scrape import Scraped
from llmservice_operator.controller.autoscale_slo import SloCounter
from llmservice_operator.controller.autoscale_starts import Starts
from llmservice_operator.controller.autoscale_subject import Role, Subject
from llmservice_operator.controller.autoscale_verdicts import (
    PAUSED,
    Findings,
    Settled,
    metrics_available,
    scaling_active,
    slo_met,
)
from llmservice_operator.controller.verdict import Verdict

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
"""How long a condition of the loop must last before it is told: half a window of latency."""
FAULT_PATIENCE_SECONDS = 10.0
"""The same for metrics that fail: two decisions one after the other."""
UNKNOWN_PATIENCE_SECONDS = 120.0
"""How long a service without enough requests keeps its last verdict: as long as signals look back."""
_NEAR = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What Prometheus says of the service's cards."""

    dram_active: Signal = ABSENT
    sm_active: Signal = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    """The policy that a service is scaled by, or why it can't be."""

    policy: ScalingPolicy
    problem: Verdict | None = None


class ServiceScaler:
    """See the module."""

    def __init__(self, subject: Subject, now: float) -> None:
        memory = read_memory(subject.memory)
        self.starts = memory.starts
        self.subject = subject
        self.outcome: Outcome | None = None
        self.decisions: Counter[tuple[str, str]] = Counter()
        """Changes by (direction, ruling)."""
        self.slo = SloCounter()
        self._began = now
        self._told_desired = subject.wanted
        self._failures: tuple[str, ...] = ()
        self._work = self._decided_on = Work()
        self._decided_for: object = None
        self._state = memory.state
        self._scale = memory.scale
        self._observer = ServiceObserver()
        self._settled = {kind: Settled() for kind in ConditionType}

    def take(self, subject: Subject, scraped: Sequence[Scraped]) -> None:
        """Take pages in."""
        self.subject = subject
        self.starts.look(subject.pods)
        self._failures = tuple(f"{each.pod.name}: {each.words}" for each in scraped if each.page is None)
        self._work = work_of(each.page for each in scraped if each.page is not None)
        for each in scraped:
            if each.page is not None:
                pod = each.pod
                self._observer.record(pod.name, each.page, at=each.at, incarnation=pod.incarnation)
                self.slo.record(pod.name, pod.incarnation, each.page, subject.objectives)
        self.slo.forget(frozenset(pod.name for pod in subject.pods))

    def is_pressing(self) -> bool:
        """Whether what was taken in since the last decision shouldn't wait for the next: a queue, more work, other
        replicas, or other words of the user's.
        """
        return (
            self.outcome is None
            or (self.subject.generation, self.subject.ready.keys()) != self._decided_for
            or is_pressing(self._work, self._decided_on)
        )

    def decide(
        self, now: float, *, capacity: ReadyCapacity, policy: PolicyAnswer, activity: Activity
    ) -> Outcome:
        """Decide on what was taken in. `now`: seconds since the Unix epoch."""
        subject = self.subject
        self._decided_on = self._work
        self._decided_for = (subject.generation, subject.ready.keys())
        signals = self._observer.signals(subject.ready, now, _context(subject, activity))
        fleet = fleet_of(subject, self.starts, now)
        decision = None
        if subject.bounds is not None:
            decision = self._decide(subject, signals, fleet, now, capacity=capacity, policy=policy)
        self.outcome = self._conclude(
            subject, signals, fleet, now, decision=decision, capacity=capacity, policy=policy
        )
        return self.outcome

    def _decide(
        self,
        subject: Subject,
        signals: Signals,
        fleet: Fleet,
        now: float,
        *,
        capacity: ReadyCapacity,
        policy: PolicyAnswer,
    ) -> Decision:
        bounds = subject.bounds
        if bounds is None:
            raise ValueError(f"{subject.key} isn't scaled")
        held = PAUSED if subject.paused else policy.problem.message if policy.problem is not None else ""
        decision = decide(
            Inputs(
                signals=signals,
                fleet=fleet,
                capacity=Scaled(capacity, self._scale) if capacity.is_rough else capacity,
                expected_mix=subject.expected_mix,
                objectives=subject.objectives,
                min_replicas=bounds.min_replicas,
                max_replicas=bounds.max_replicas,
                policy=policy.policy,
                weights_bytes_per_step=capacity.weights_bytes_per_step,
                concurrency_limit=float(subject.capacity.knobs.max_num_seqs),
                other_writer=subject.other_writer or held,
            ),
            self._state,
            now,
        )
        if held and not subject.other_writer:
            decision = replace(decision, ruling="held", reason=held, steps=())
        self._state = self._rescaled(decision.state, policy.policy) if capacity.is_rough else decision.state
        self._count(decision)
        return decision

    def _count(self, decision: Decision) -> None:
        """Each change once, however long it takes until it is applied."""
        is_change = decision.is_written and decision.desired != decision.current
        if is_change and decision.desired != self._told_desired:
            direction = "out" if decision.desired > decision.current else "in"
            self.decisions[direction, decision.ruling] += 1
            logger.info(
                "replicas",
                extra={
                    "service": str(self.subject.key),
                    "from": decision.current,
                    "to": decision.desired,
                    "ruling": decision.ruling,
                    "reason": decision.reason,
                },
            )
        self._told_desired = decision.desired

    def _rescaled(self, state: ScalerState, policy: ScalingPolicy) -> ScalerState:
        """The state after a rough prediction was moved to where the correction has come to an end of its bounds.

        The bounds are for a model of a known card. A prediction for some processor, or none, may be off by far more.
        """
        factor = state.correction
        is_at_end = factor <= policy.least_correction * _NEAR or factor >= policy.most_correction / _NEAR
        if not is_at_end or not LEAST_SCALE <= self._scale * factor <= MOST_SCALE:
            return state
        self._scale *= factor
        return replace(state, correction=1.0)

    def _conclude(
        self,
        subject: Subject,
        signals: Signals,
        fleet: Fleet,
        now: float,
        *,
        decision: Decision | None,
        capacity: ReadyCapacity,
        policy: PolicyAnswer,
    ) -> Outcome:
        room = (
            capacity.capacity(self._state.mix or subject.expected_mix)
            if decision is None
            else Capacity(
                requests_per_second=decision.capacity_requests_per_second, unreachable=decision.unreachable
            )
        )
        found = Findings(
            subject=subject,
            signals=signals,
            now=now,
            watched_seconds=now - self._began,
            failures=self._failures,
            decision=decision,
            policy_problem=policy.problem,
            unreachable=room.unreachable,
        )
        bounds = subject.bounds
        return Outcome(
            uid=subject.uid,
            at=now,
            signals=signals,
            decision=decision,
            bounds=None if bounds is None else (bounds.min_replicas, bounds.max_replicas),
            verdicts=self._verdicts(found),
            memory="" if decision is None else write_memory(self._state, self.starts, self._scale),
            start_seconds=fleet.start_seconds(now),
            capacity_requests_per_second=room.requests_per_second,
        )

    def _verdicts(self, found: Findings) -> dict[ConditionType, Verdict]:
        available = metrics_available(found)
        made = {
            ConditionType.METRICS_AVAILABLE: available,
            ConditionType.SCALING_ACTIVE: scaling_active(found),
            ConditionType.SLO_MET: slo_met(found, available),
        }
        return {
            kind: self._settled[kind].tell(
                verdict, found.now, _patience_seconds(kind, verdict, self._settled[kind].status)
            )
            for kind, verdict in made.items()
            if verdict is not None
        }


def fleet_of(subject: Subject, starts: Starts, now: float) -> Fleet:
    """The replicas as `decide` counts them.

    Pods that the Deployment asks for and that aren't there yet start now; where the API server refuses them they are
    as good as pods without a node.
    """
    there = sum(pod.role is not Role.LEAVING for pod in subject.pods)
    absent = max(0, subject.wanted - there)
    starting = [
        pod.created_at for pod in subject.pods if pod.role is Role.STARTING and not starts.has_served(pod)
    ]
    return Fleet(
        wanted=subject.wanted,
        ready=subject.count(Role.READY),
        starting=(*starting, *([] if subject.refused else [now] * absent)),
        unschedulable=subject.count(Role.UNSCHEDULABLE) + (absent if subject.refused else 0),
        failing=subject.count(Role.FAILING),
        recent_starts=starts.seconds,
        planned_start_seconds=subject.planned_start_seconds,
    )


def _context(subject: Subject, activity: Activity) -> Context:
    return Context(
        ttft_p95_seconds=subject.objectives.ttft_p95_seconds,
        tpot_p95_seconds=subject.objectives.tpot_p95_seconds,
        peak_bytes_per_second=subject.peak_bytes_per_second,
        dram_active=activity.dram_active,
        sm_active=activity.sm_active,
    )


def _patience_seconds(kind: ConditionType, verdict: Verdict, told: str) -> float:
    """How long this must last after a verdict of that status. Whether replicas are scaled is told at once."""
    if kind is ConditionType.SCALING_ACTIVE and verdict.status != told:
        return 0.0
    if kind is ConditionType.METRICS_AVAILABLE and verdict.status == "False":
        return FAULT_PATIENCE_SECONDS
    thin = verdict.reason in (Reason.NO_TRAFFIC, Reason.TOO_FEW_REQUESTS)
    return UNKNOWN_PATIENCE_SECONDS if thin else PATIENCE_SECONDS
