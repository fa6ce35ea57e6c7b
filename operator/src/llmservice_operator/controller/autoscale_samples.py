"""What the loop knows of a service, as metrics tell it. Pure."""

from collections.abc import Iterable, Iterator

from llmservice_operator.controller.autoscale_service import ServiceScaler, fleet_of
from llmservice_operator.controller.autoscale_slo import TPOT, TTFT
from llmservice_operator.telemetry.scaling import ScalingSample, SignalSample, SloSample


def scaling_samples(scalers: Iterable[ServiceScaler]) -> Iterator[ScalingSample]:
    """One sample for each service that was looked at."""
    for scaler in scalers:
        sample = sample_of(scaler)
        if sample is not None:
            yield sample


def sample_of(scaler: ServiceScaler) -> ScalingSample | None:
    """The sample of one service; None before the first look."""
    subject, outcome = scaler.subject, scaler.outcome
    if outcome is None:
        return None
    decision = outcome.decision
    fleet = fleet_of(subject, scaler.starts, outcome.at)
    return ScalingSample(
        namespace=subject.key.namespace,
        name=subject.key.name,
        ready=fleet.ready,
        pending=len(fleet.starting),
        unschedulable=fleet.unschedulable,
        signals=tuple(
            SignalSample(name, str(signal.state), signal.value, signal.at)
            for name, signal in outcome.signals.items()
        ),
        capacity_requests_per_second=outcome.capacity_requests_per_second,
        start_seconds=outcome.start_seconds,
        slo=tuple(_objectives(scaler)),
        desired=outcome.desired,
        bounds=outcome.bounds,
        correction=None if decision is None else decision.correction,
        decided_at=None if decision is None else outcome.at,
        steps=() if decision is None else tuple(decision.asked.items()),
        ruling="" if decision is None else decision.ruling,
        decisions=tuple((*what, count) for what, count in scaler.decisions.items()),
    )


def _objectives(scaler: ServiceScaler) -> Iterator[SloSample]:
    goal = scaler.subject.objectives
    for name, limit in ((TTFT, goal.ttft_p95_seconds), (TPOT, goal.tpot_p95_seconds)):
        if limit is not None:
            count = scaler.slo.counts[name]
            yield SloSample(name, limit, count.requests, count.met)
