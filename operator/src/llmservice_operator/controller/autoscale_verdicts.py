"""The conditions that the scaling loop decides: MetricsAvailable, ScalingActive, SLOMet. Pure.

Each is a chain of questions, the first that applies answers. `Settled` keeps an answer from flapping: it is told once
it has lasted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from llmservice_operator.api.conditions import Reason
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.guards import required
from llmservice_operator.autoscaling.policy import BALANCED
from llmservice_operator.autoscaling.signals import Signal, Signals, SignalState
from llmservice_operator.autoscaling.view import WINDOWS
from llmservice_operator.controller.autoscale_subject import Role, Subject
from llmservice_operator.controller.verdict import Verdict

STARTING_SECONDS = 30.0
"""After so long every rate should be known."""
LEAST_SAMPLES = BALANCED.least_samples
"""A p95 of fewer is a maximum."""
_MOST_TOLD = 4
PAUSED = 'the annotation llmservice.dev/paused is "true"; remove it to go on'
_STATE_REASONS = {
    SignalState.RESET: Reason.METRICS_RESET,
    SignalState.STALE: Reason.METRICS_STALE,
    SignalState.INVALID: Reason.METRICS_INVALID,
    SignalState.MISSING: Reason.METRICS_MISSING,
}
_WEIGHT = tuple(_STATE_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What verdicts are made from."""

    subject: Subject
    signals: Signals
    now: float
    watched_seconds: float
    """For how long the loop has looked at this service."""
    failures: tuple[str, ...] = ()
    """Why pods gave no page, in words that begin with the pod's name."""
    decision: Decision | None = None
    policy_problem: Verdict | None = None
    unreachable: str = ""
    """Which objective no replica reaches, and by how much."""


def metrics_available(found: Findings) -> Verdict:
    """Is everything known that a decision for fewer replicas rests on?"""
    ready = found.subject.count(Role.READY)
    if not ready:
        return Verdict(
            status="Unknown",
            reason=Reason.NO_READY_REPLICAS,
            message="no replica is ready, so none is asked for metrics",
        )
    needed = required(found.signals, found.subject.objectives)
    bad = [(name, signal) for name, signal in needed if not signal.is_trusted]
    if not bad:
        words = f"every signal that a decision needs is measured on {_count(ready)}"
        return Verdict(status="True", reason=Reason.METRICS_FRESH, message=words)
    words = _told(bad, found.failures)
    newest = min(found.now - since for since in found.subject.ready.values())
    is_new = min(found.watched_seconds, newest) < STARTING_SECONDS
    if is_new and all(signal.state is SignalState.MISSING for _, signal in bad) and not found.failures:
        return Verdict(status="Unknown", reason=Reason.METRICS_STARTING, message=words)
    worst = max((signal.state for _, signal in bad), key=_WEIGHT.index)
    if found.subject.bounds is not None:
        words += "; until then no replica is taken"
    return Verdict(status="False", reason=_STATE_REASONS[worst], message=words)


def slo_met(found: Findings, available: Verdict) -> Verdict | None:
    """Is what clients see within spec.slo? None where there is none."""
    pairs = list(_objectives(found))
    if not pairs:
        return None
    requests = found.signals.completions_per_second.or_zero() * WINDOWS.latency_seconds
    told = [(name, signal.value, limit) for name, signal, limit in pairs if signal.value is not None]
    is_missed = any(value > limit for _, value, limit in told)
    is_enough = bool(told) and requests >= LEAST_SAMPLES
    if found.unreachable and (is_missed or not is_enough):
        # Requests that are within the objectives say more than a model that says they can't be.
        words = f"{found.unreachable}; change spec.slo, or allow a faster accelerator"
        return Verdict(status="False", reason=Reason.OBJECTIVES_UNREACHABLE, message=words)
    if available.status != "True" and not told:
        return Verdict(status="Unknown", reason=available.reason, message=available.message)
    if not told and requests < 1:
        return Verdict(status="Unknown", reason=Reason.NO_TRAFFIC, message="no request was served lately")
    words = ", ".join(f"{name} p95 {_seconds(value)} of {_seconds(limit)}" for name, value, limit in told)
    if not is_enough:
        return Verdict(
            status="Unknown",
            reason=Reason.TOO_FEW_REQUESTS,
            message=f"{requests:.0f} requests in {WINDOWS.latency_seconds:.0f} s, and {LEAST_SAMPLES} make a p95",
        )
    if is_missed:
        return Verdict(status="False", reason=Reason.OBJECTIVES_MISSED, message=words)
    return Verdict(status="True", reason=Reason.OBJECTIVES_MET, message=words)


def scaling_active(found: Findings) -> Verdict | None:
    """Does the operator set the number of replicas, and is it free to? None where it isn't asked to."""
    decision, bounds = found.decision, found.subject.bounds
    if bounds is None or decision is None:
        return None
    if found.policy_problem is not None:
        return found.policy_problem
    if decision.problems:
        words = "; ".join(decision.problems)
        return Verdict(
            status="False", reason=Reason.SCALING_INPUT_INVALID, message=f"{words}; {_held(found)}"
        )
    if found.subject.paused:
        return Verdict(status="False", reason=Reason.PAUSED, message=f"{PAUSED}; {_held(found)}")
    if not decision.is_written:
        return Verdict(status="False", reason=Reason.REPLICAS_OWNED_BY_OTHER, message=decision.reason)
    words = f"{decision.ruling}: {decision.reason}"
    return Verdict(status="True", reason=_room(found, decision.ruling), message=words)


class Settled:
    """Tells another verdict only once it has lasted; its words are always the newest."""

    def __init__(self) -> None:
        self._told: Verdict | None = None
        self._other = ("", "")
        self._since = 0.0

    @property
    def status(self) -> str:
        """Of the last answer; empty: there was none."""
        return "" if self._told is None else self._told.status

    def tell(self, verdict: Verdict, now: float, patience_seconds: float) -> Verdict:
        """What is to be told at this time, if another answer must have lasted for so long."""
        answer = (verdict.status, verdict.reason)
        if self._told is None or answer == (self._told.status, self._told.reason):
            self._told, self._other = verdict, ("", "")
            return verdict
        # A clock that was set back would make it last for as long as it was set back by.
        if answer != self._other or now < self._since:
            self._other, self._since = answer, now
        if now - self._since >= patience_seconds:
            self._told, self._other = verdict, ("", "")
        return self._told


def _objectives(found: Findings) -> Iterator[tuple[str, Signal, float]]:
    goal, signals = found.subject.objectives, found.signals
    for name, signal, limit in (
        ("TTFT", signals.ttft_p95_seconds, goal.ttft_p95_seconds),
        ("TPOT", signals.tpot_p95_seconds, goal.tpot_p95_seconds),
    ):
        if limit is not None:
            yield name, signal, limit


def _told(bad: list[tuple[str, Signal]], failures: tuple[str, ...]) -> str:
    """The signals by state, and the pods behind it."""
    by_state: dict[SignalState, list[str]] = {}
    for name, signal in bad:
        by_state.setdefault(signal.state, []).append(name)
    words = "; ".join(
        f"{state}: {', '.join(names[:_MOST_TOLD])}"
        + (f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else "")
        for state, names in by_state.items()
    )
    return words + (f" ({'; '.join(failures[:2])})" if failures else "")


def _room(found: Findings, ruling: str) -> Reason:
    """What keeps fewer replicas than are needed, if something does."""
    if ruling == "max":
        return Reason.AT_MAXIMUM
    subject = found.subject
    if subject.refused or subject.count(Role.UNSCHEDULABLE) > 0:
        return Reason.UNSCHEDULABLE
    if ruling == "starts" or subject.count(Role.FAILING) > 0:
        return Reason.CRASH_LOOPING
    return Reason.SCALING_ACTIVE


def _held(found: Findings) -> str:
    return f"the number of replicas is held at {found.subject.wanted}"


def _count(ready: int) -> str:
    return f"{ready} ready replica" + ("" if ready == 1 else "s")


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"
