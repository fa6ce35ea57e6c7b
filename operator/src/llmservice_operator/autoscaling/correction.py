"""The capacity model held against what replicas really do.

Four kinds of evidence, each over one window in which the number of ready replicas did not change:

- *Missed*: the objectives are missed while each replica serves x requests a second. The capacity is below x: what a
  saturated replica gets done is above what it gets done within its objectives, so this bound holds while a queue drains
  too, and does not fall further with it. Replicas must have been busy for the whole window: of a burst between pauses
  the mean says nothing.
- *Held*: the objectives are kept at more than the capacity is thought to be. It is that much.
- *Faster*: tokens come faster than the model says for the batch that runs. Prompts between them can only make it
  slower, so this is proof of a slow model; the opposite is none.
- *Nothing*: what was once taken off comes back over hours.

Down at once but 20 % at most a window, up a fifth of the way: too few replicas cost the objective, too many only money.
"""

from dataclasses import dataclass

from llmservice_operator.autoscaling.signals import SignalState
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.view import WINDOWS, View

_MOST_FALL = 0.80
"""Of what it was, a window."""
_UNDER = 0.90
"""Missed at x: the capacity is this share of it. What replicas get done with a queue is some 10 % above what
they get done within the objectives."""
_RISE = 0.2
"""Of the way up, a window."""
_HELD_RATIO = 0.9
"""A p95 at this share of its objective is kept with room."""
_IDLE_SHARE = 0.3
"""Missed below this share of the capacity, with no queue: more replicas would not help."""
_BUSY_SHARE = 0.6
"""Missed below this share, with a queue that comes and goes: a burst, of which the mean of a window tells nothing."""
_FORGET_SECONDS = 3 * 3600.0
_FASTER = 1.05
"""Within 5 % is noise."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What is observed over what the model says."""

    factor: float
    at: float
    """When it last changed by evidence."""
    note: str
    is_load: bool = True
    """False: the objectives are missed, but not for load."""


def correct(view: View, state: ScalerState, *, elapsed_seconds: float) -> Correction:
    """The correction after this look, so long after the last one."""
    factor, policy = state.correction, view.inputs.policy
    factor = min(policy.most_correction, max(policy.least_correction, factor))
    reason = _unusable(view, state)
    if reason:
        return Correction(factor, state.corrected_at, reason)
    ratio, model = view.latency_ratio or 0.0, view.capacity.requests_per_second
    surely, served = served_per_replica(view)
    if ratio > 1.0:
        if not view.is_queueing and served < _IDLE_SHARE * factor * model:
            words = f"p95 is {ratio:.2f} of its objective at {served:.2f} requests/s a replica: not for load"
            return Correction(factor, state.corrected_at, words, is_load=False)
        if not view.is_saturated(state) and served < _BUSY_SHARE * factor * model:
            words = f"p95 is {ratio:.2f} of its objective, for a burst"
            return Correction(factor, state.corrected_at, words)
        bound = max(_MOST_FALL * factor, _UNDER * served / model, policy.least_correction)
        if bound < factor:
            words = f"p95 is {ratio:.2f} of its objective at {served:.2f} requests/s a replica"
            return Correction(bound, view.now, words)
        return Correction(factor, state.corrected_at, "missed beyond the capacity, as it should be")
    held = surely / model if ratio <= _HELD_RATIO and not view.is_queueing else 0.0
    shown = min(policy.most_correction, max(held, _faster(view) if held else 0.0))
    if shown > factor * _FASTER:
        words = f"p95 is {ratio:.2f} of its objective at {surely:.2f} requests/s a replica"
        return Correction(factor + _RISE * (shown - factor), view.now, words)
    if factor < 1.0:
        share = min(1.0, max(0.0, elapsed_seconds) / _FORGET_SECONDS)
        return Correction(factor + (1.0 - factor) * share, state.corrected_at, "no evidence")
    return Correction(factor, state.corrected_at, "no evidence")


def served_per_replica(view: View) -> tuple[float, float]:
    """(at least, at most): requests a second that each ready replica gets done, by prompts, answers and ends.

    In a steady state they are the same. While a batch builds up, answers lag behind by a request's duration and prompts
    don't; so the most that can be is what a miss is held against, and the least that must be is what counts as held.
    """
    signals, mix = view.inputs.signals, view.mix
    rates = (
        signals.completions_per_second.or_zero(),
        signals.input_tokens_per_second.or_zero() / mix.input_tokens,
        signals.generated_tokens_per_second.or_zero() / mix.output_tokens,
    )
    ready = max(1, view.inputs.fleet.ready)
    return min(rates) / ready, max(rates) / ready


def _unusable(view: View, state: ScalerState) -> str:
    """Why nothing can be learnt from this look; empty: it can."""
    signals, ready = view.inputs.signals, view.inputs.fleet.ready
    measured = (signals.completions_per_second, signals.input_tokens_per_second, signals.input_tokens_mean)
    if view.latency_ratio is None:
        return "too few requests to tell"
    if any(signal.state is not SignalState.OK for signal in measured):
        return "not everything is measured"
    if view.capacity.unreachable or view.capacity.requests_per_second <= 0:
        return "the objectives can't be reached"
    if ready < 1 or not view.is_settled(state):
        return "the number of ready replicas changed"
    if 0.0 <= view.now - state.corrected_at < WINDOWS.latency_seconds:
        return "corrected less than a window ago"
    return ""


def _faster(view: View) -> float:
    """How many times faster tokens come than the model says for this batch; 0: not known."""
    signals = view.inputs.signals
    itl, rate = signals.itl_mean_seconds.value, signals.generated_tokens_per_second.value
    if not itl or not rate:
        return 0.0
    # Little: sequences that decode are tokens a second times the seconds to the next.
    batch = rate / max(1, view.inputs.fleet.ready) * itl
    expected = view.inputs.capacity.itl_seconds(batch, view.mix)
    return expected / itl if expected else 0.0
