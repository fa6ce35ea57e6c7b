"""What stands against fewer replicas. Each guard names itself; the first that objects is told."""

from collections.abc import Iterator

from llmservice_operator.autoscaling.correction import Correction
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.autoscaling.signals import Signal, Signals, SignalState
from llmservice_operator.autoscaling.state import MOST_PEAKS, ScalerState
from llmservice_operator.autoscaling.view import WINDOWS, View


def untrusted(view: View) -> list[str]:
    """Signals that a scale-in needs and that aren't trusted, in words."""
    return [
        f"{name} is {signal.state}"
        for name, signal in required(view.inputs.signals, view.inputs.objectives)
        if not signal.is_trusted
    ]


def objections(
    view: View, state: ScalerState, correction: Correction, needed: int
) -> Iterator[tuple[str, str]]:
    """(guard, why fewer replicas are not tried now though `needed` would do), the weightiest first."""
    signals, fleet = view.inputs.signals, view.inputs.fleet
    unknown = untrusted(view)
    if unknown:
        yield "metrics", ", ".join(unknown[:3])
    watched = view.now - state.watched_since
    if watched < view.stabilization_seconds:
        yield "watched", f"watched for {watched:.0f} s of {view.stabilization_seconds:.0f} s"
    span, enough = signals.span_seconds, min(WINDOWS.long_seconds, view.stabilization_seconds)
    if span < enough:
        # Decisions went on, by what is in the status; but the pages before a restart are gone, and few tell little.
        yield "seen", f"engines were looked at for {span:.0f} s of {enough:.0f} s"
    if (
        view.latency_ratio is not None
        and view.latency_ratio > 1.0
        and correction.is_load
        and not view.capacity.unreachable
    ):
        yield "slo", f"p95 is {view.latency_ratio:.2f} of its objective"
    if view.is_queueing:
        yield "queue", f"{view.queue:.0f} requests wait"
    if signals.preemptions_per_second.or_zero() > 0:
        yield "preemptions", "requests are preempted for lack of KV cache"
    if fleet.ready < needed:
        # Those that start are taken before those that serve, so what is ready stays; but it must be enough by itself.
        yield "ready", f"only {fleet.ready} are ready"
    since = view.now - state.out_at
    if state.out_at and since < view.keep_seconds:
        # Its start cost more than it has served: what asked for it may come back as soon as it is gone.
        yield "kept", f"the last scale-out was {since:.0f} s ago; {view.keep_seconds:.0f} s are waited"
    since = view.now - state.in_at
    if state.in_at and since < view.inputs.policy.scale_in_period_seconds:
        yield "pace", f"the last scale-in was {since:.0f} s ago"


def remember_peak(view: View, state: ScalerState, needed: float) -> tuple[tuple[float, float], ...]:
    """The highest needs of the stabilisation window with this one: later and lower ones only, which is all it takes."""
    horizon = view.now - view.stabilization_seconds
    kept = [(min(at, view.now), value) for at, value in state.peaks if at >= horizon and value > needed]
    kept.append((view.now, needed))
    while len(kept) > MOST_PEAKS:
        # Two into one that is neither lower nor older than either: it holds longer, never shorter.
        kept[-2:] = [(kept[-1][0], kept[-2][1])]
    return tuple(kept)


def required(signals: Signals, objectives: Objectives) -> Iterator[tuple[str, Signal]]:
    """The signals that a scale-in rests on, by their names in words."""
    yield "arrivals", signals.arrivals_per_second
    yield "sustained arrivals", signals.sustained_arrivals_per_second
    yield "running", signals.running
    yield "waiting", signals.waiting
    yield "KV use", signals.kv_use_total
    yield "preemptions", signals.preemptions_per_second
    yield "held requests", signals.held_requests
    if objectives.ttft_p95_seconds is not None:
        yield "TTFT", signals.ttft_p95_seconds
    if objectives.tpot_p95_seconds is not None:
        yield "TPOT", signals.tpot_p95_seconds
    # Not every engine exports these: where they are absent they say nothing.
    for name, signal in (
        ("bandwidth", signals.bandwidth_use),
        ("DRAM activity", signals.dram_active),
        ("uncached tokens", signals.uncached_tokens_waiting),
    ):
        if signal.state is not SignalState.MISSING:
            yield name, signal
