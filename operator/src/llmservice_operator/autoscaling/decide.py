"""`decide`: from signals and a little memory to a number of replicas, and every step on the way. Pure.

observe → needed by the load that comes → needed by the queue → floors → guards → pace → limits

More replicas are taken from whichever measure asks for most. Fewer are taken only if every measure has asked for fewer
for longer than a replica takes to come back, everything that says so is trusted, and the rest would hold the load with
room. What isn't known never argues for fewer.
"""

import math
from dataclasses import dataclass, replace

from llmservice_operator.autoscaling import needs
from llmservice_operator.autoscaling.correction import Correction, correct
from llmservice_operator.autoscaling.decision import Decision, Inputs, Step
from llmservice_operator.autoscaling.guards import objections, remember_peak, untrusted
from llmservice_operator.autoscaling.recurrence import holds_for, remember_high
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.view import View, look

_ROUNDING = 0.05
"""A twentieth of a replica too little is within the head-room: not worth one more."""
_LARGEST_NEED = 1e6
_SCALE_IN_RESERVE = 1.5
"""What must stay free after a scale-in over what must at any time: 80 instead of 86 % used of two replicas."""


def decide(inputs: Inputs, state: ScalerState, now: float) -> Decision:
    """How many replicas the service shall have.

    `now`: seconds since the Unix epoch. The same arguments give the same decision. Nothing is raised for inputs that
    cannot be meant: the decision holds what there is and says what is wrong.
    """
    inputs = replace(inputs, signals=inputs.signals.believable())
    before, state = state, _continued(inputs, state, now)
    if problems := inputs.problems():
        return _held(inputs, _distrusted(state, now), "input", problems[0], problems=problems)
    if inputs.other_writer:
        words = f"{inputs.other_writer} writes the number of replicas too; it is left alone"
        return replace(_held(inputs, _distrusted(state, now), "other-writer", words), is_written=False)
    watched = state.watched_since == before.watched_since
    elapsed_seconds = now - before.at if watched else 0.0
    view = look(inputs, state, now, elapsed_seconds=elapsed_seconds)
    state = replace(state, queueing_since=(state.queueing_since or now) if view.is_queueing else 0.0)
    correction = correct(view, state, elapsed_seconds=elapsed_seconds)
    rates = needs.remember_rate(view, state)
    steps = _needs(view, state, correction, rates)
    needed_after = _needed_after_scale_in(view, correction, steps)
    first_minute, highs = remember_high(
        state.first_minute, state.highs, now, max(_asked(step) for step in steps if step.name != "latency")
    )
    state = replace(
        state,
        pace=correction.pace,
        correction=correction.rest,
        corrected_at=correction.at,
        rates=rates,
        mix=view.mix if inputs.signals.input_tokens_mean.is_trusted else state.mix,
        peaks=remember_peak(view, state, needed_after),
        first_minute=first_minute,
        highs=highs,
        caution=1.0 + (state.caution - 1.0) * max(0.0, 1.0 - elapsed_seconds / inputs.policy.caution_seconds),
    )
    choice = _limited(view, state, _choose(view, state, correction, steps))
    return Decision(
        desired=choice.replicas,
        current=inputs.fleet.wanted,
        ruling=choice.ruling,
        reason=choice.reason,
        steps=(*steps, *choice.steps),
        state=_paced(view, state, choice.replicas),
        capacity_requests_per_second=view.capacity.requests_per_second,
        correction=correction.factor,
        start_seconds=view.start_seconds,
        metrics_available=not untrusted(view),
        slo_met=None if view.latency_ratio is None else view.latency_ratio <= 1.0,
        unreachable=view.capacity.unreachable,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """A number of replicas on its way through the steps."""

    replicas: int
    ruling: str
    reason: str
    steps: tuple[Step, ...] = ()

    def then(self, name: str, replicas: int, note: str) -> "_Choice":
        """With another number, which this step rules."""
        return _Choice(replicas, name, note, (*self.steps, Step(name, replicas, note)))


# ── what is needed ──


def _needs(
    view: View, state: ScalerState, correction: Correction, rates: tuple[tuple[float, float], ...]
) -> tuple[Step, ...]:
    """Each measure's number, in the order of the steps."""
    return (
        needs.forward(view, correction.factor, needs.forecast(view, rates)),
        needs.backlog(view, state, correction.factor),
        needs.latency(view, state, is_load=correction.is_load),
        Step("correction", None, f"{correction.factor:.2f}: {correction.note}"),
        needs.kv_demand(view, view.inputs.policy.kv_limit),
        needs.concurrency(view),
        needs.bandwidth(view),
    )


def _asked(step: Step) -> float:
    return 0.0 if step.replicas is None else min(step.replicas, _LARGEST_NEED)


def _needed_after_scale_in(view: View, correction: Correction, steps: tuple[Step, ...]) -> float:
    """As few replicas as would hold everything with the room that a scale-in must leave."""
    if untrusted(view) or view.load is None:
        return float(view.inputs.fleet.wanted)
    policy = view.inputs.policy
    offered = needs.replicas_for(needs.highest_load(view), view.usable(correction.factor))
    load = needs.staffed(offered, policy.scale_in_utilization, _SCALE_IN_RESERVE * policy.small_fleet_reserve)
    kv = needs.kv_demand(view, policy.kv_limit_after).replicas or 0.0
    others = [step.replicas for step in steps if step.replicas is not None]
    return min(_LARGEST_NEED, max([load, kv, *others]))


# ── the choice ──


def _choose(view: View, state: ScalerState, correction: Correction, steps: tuple[Step, ...]) -> _Choice:
    """More if any measure asks for it, fewer if nothing objects, else as it is."""
    wanted = view.inputs.fleet.wanted
    strongest = max(steps, key=_asked)
    needed = _whole(strongest.replicas or 0.0)
    if needed > wanted:
        return _Choice(needed, strongest.name, strongest.note)
    peak = max(value for _, value in state.peaks)
    target = max(view.inputs.min_replicas, _whole(peak))
    if target >= wanted:
        return _Choice(wanted, "hold", _holding(view, strongest, peak))
    for guard, why in objections(view, state, correction, target):
        return _Choice(wanted, f"guard-{guard}", f"{peak:.2f} replicas would do, but {why}")
    share = max(1, int(wanted * view.inputs.policy.scale_in_share))
    fewest = max(target, wanted - share)
    while fewest < wanted and (seconds := holds_for(state.highs, fewest, _ROUNDING)):
        fewest += 1
    if fewest == wanted:
        words = f"{peak:.2f} replicas would do, but the load came back before: kept for {seconds:.0f} s more"
        return _Choice(wanted, "guard-recurrence", words)
    words = f"{peak:.2f} replicas at most were needed for {view.stabilization_seconds:.0f} s"
    return _Choice(fewest, "scale-in", words)


def _holding(view: View, strongest: Step, peak: float) -> str:
    if strongest.replicas is None:
        return "nothing is known that asks for more, and nothing unknown asks for fewer"
    words = f"{strongest.name} needs {strongest.replicas:.2f}: {strongest.note}"
    if view.inputs.fleet.wanted > _whole(strongest.replicas):
        words += f"; {peak:.2f} were needed within {view.stabilization_seconds:.0f} s, with room"
    return words


def _limited(view: View, state: ScalerState, choice: _Choice) -> _Choice:
    """The choice within what starts, pace, policy bounds and quota allow, each named where it changes the number."""
    inputs = view.inputs
    wanted, policy, fleet = inputs.fleet.wanted, inputs.policy, inputs.fleet
    if choice.replicas > wanted and (fleet.unschedulable or fleet.failing):
        words = f"{choice.replicas} are needed, but {fleet.unschedulable} can't be scheduled and {fleet.failing} fail"
        choice = choice.then("starts", wanted, words)
    base = state.out_base if _is_in_period(state, policy.scale_out_period_seconds, view.now) else wanted
    most = max(wanted, math.ceil(base * policy.scale_out_factor), base + policy.scale_out_step)
    if choice.replicas > most:
        words = f"{choice.replicas} are needed, {most} at most within {policy.scale_out_period_seconds:.0f} s"
        choice = choice.then("pace", most, words)
    if inputs.quota_replicas is not None and choice.replicas > max(wanted, inputs.quota_replicas):
        words = f"{choice.replicas} are needed, and the quota has room for {inputs.quota_replicas}"
        choice = choice.then("quota", max(wanted, inputs.quota_replicas), words)
    if choice.replicas > inputs.max_replicas:
        words = f"{choice.reason}; {choice.replicas} are needed, and maxReplicas is {inputs.max_replicas}"
        choice = choice.then("max", inputs.max_replicas, words)
    if choice.replicas < inputs.min_replicas:
        choice = choice.then("min", inputs.min_replicas, f"minReplicas is {inputs.min_replicas}")
    if view.capacity.unreachable:
        choice = replace(choice, reason=f"{choice.reason}; {view.capacity.unreachable}")
    return choice


# ── memory ──


def _continued(inputs: Inputs, state: ScalerState, now: float) -> ScalerState:
    """The state at this time: what depends on having watched without a gap begins anew after one.

    A restart, a clock that jumped and a leader that came back are all gaps.
    """
    ready = inputs.fleet.ready
    is_continuous = 0.0 <= now - state.at <= inputs.policy.gap_seconds
    # Every decision leaves a peak: without one, what was needed until now isn't known.
    if not state.at or not state.peaks or not is_continuous:
        state = replace(
            _distrusted(state, now),
            rates=(),
            ready_since=now,
            queueing_since=0.0,
            out_since=min(state.out_since, now),
            out_at=min(state.out_at, now),
            in_at=min(state.in_at, now),
            corrected_at=min(state.corrected_at, now),
        )
    if ready != state.ready:
        state = replace(state, ready=ready, ready_since=now)
    return replace(state, at=now)


def _distrusted(state: ScalerState, now: float) -> ScalerState:
    """The state without what argues for fewer replicas."""
    return replace(state, watched_since=now, peaks=())


def _paced(view: View, state: ScalerState, desired: int) -> ScalerState:
    """The state after the decision: when the period that limits the pace began, and when replicas were last taken.

    A scale-in that is undone within two of its windows was one too many: the next takes twice the time.
    """
    wanted, policy, now = view.inputs.fleet.wanted, view.inputs.policy, view.now
    if desired < wanted:
        return replace(state, in_at=now)
    if desired == wanted:
        return state
    state = replace(state, out_at=now)
    if state.in_at and now - state.in_at < 2.0 * view.stabilization_seconds:
        state = replace(state, in_at=0.0, caution=min(policy.most_caution, 2.0 * state.caution))
    if not _is_in_period(state, policy.scale_out_period_seconds, now):
        state = replace(state, out_since=now, out_base=wanted)
    return state


def _is_in_period(state: ScalerState, seconds: float, now: float) -> bool:
    return bool(state.out_since) and 0.0 <= now - state.out_since < seconds


def _held(
    inputs: Inputs, state: ScalerState, ruling: str, reason: str, *, problems: tuple[str, ...] = ()
) -> Decision:
    wanted = inputs.fleet.wanted
    return Decision(
        desired=wanted,
        current=wanted,
        ruling=ruling,
        reason=reason,
        steps=(Step(ruling, wanted, reason),),
        state=state,
        correction=state.correction,
        problems=problems,
    )


def _whole(needed: float) -> int:
    return math.ceil(min(needed, _LARGEST_NEED) - _ROUNDING)
