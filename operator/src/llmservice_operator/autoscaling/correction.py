"""The capacity model held against what replicas really do.

First the *pace* of steps. Of each second that replicas decode, prompts take what the model says they add, and the rest
is steps of the batch that runs. How far the time from one token to the next is from that is how far the model is off,
at any load: one that is too fast is found out long before an objective is missed, and one that is too slow as soon.
Engines keep less of the model's pace under load, though (an H200: 0.96 of it idle, 0.90 full), so a higher pace is
believed the slower the less there is to do.

Then the rest, by five kinds of evidence, each over one window in which the number of ready replicas did not change:

- *Missed*: the objectives are missed while each replica serves x requests a second. The capacity is below x: what a
  saturated replica gets done is above what it gets done within its objectives, so this bound holds while a queue drains
  too, and does not fall further with it. Replicas must have been busy for the whole window, or the load have been even:
  of a burst between pauses the mean says nothing. Without objectives a queue that lasts is a miss.
- *Held*: the objectives are kept at more than the capacity is thought to be. It is that much.
- *By the curve*: how the p95 rises with the load is known to the model. One that is lower than it should be at this
  load is that of a higher capacity, and the other way round; where the curve is flat it tells nothing.
- *Not for load*: the objectives are missed with no queue and little to do. More replicas would not help.
- *Nothing*: what was once taken off comes back over hours.

Down at once but 20 % at most a window, up a fifth of the way: too few replicas cost the objective, too many only money.
"""

import math
from dataclasses import dataclass

from llmservice_operator.autoscaling.signals import SignalState
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.view import WINDOWS, View

_MOST_FALL = 0.80
"""Of what it was, a window of replicas that were busy throughout."""
_MOST_EVEN_FALL = 0.90
"""The same while a queue comes and goes under an even load."""
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
"""Missed below this share with a queue that comes and goes: long prompts stand in each other's way. More replicas help,
and what replicas take on the whole is not less for it."""
_LEAST_BY_CURVE, _MOST_BY_CURVE = 0.9, 1.3
"""What latency below the objective may teach: prompts that are spread well over many replicas stand in each other's
way less than the model's single replica has it, and those that come in lumps more."""
_FORGET_SECONDS = 3 * 3600.0
_HIGHER = 1.05
"""Within 5 % is noise."""
_PACE_SECONDS = 120.0
"""In which the pace follows what is measured."""
_LEAST_TOKENS = 200.0
"""In a window, to tell the pace."""
_PACE_NOISE = 0.05
"""The law of the pace is that close to simulated engines under chat, from a tenth to nine tenths of their capacity."""
_SLOWER_POWER, _FASTER_POWER = 1.5, 1.0
"""Capacity over pace. Steps that take twice as long halve what is served, and leave half the room within the same
objectives. By the speed model the exponent is 1.0 where the throughput is the limit, 1.6 for chat and 1.8 for code;
of faster ones the least is believed."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What is observed over what the model says."""

    pace: float
    rest: float
    at: float
    """When the rest last changed by evidence."""
    note: str
    factor: float
    """Both as one, on the capacity."""
    is_load: bool = True
    """False: the objectives are missed, but not for load."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """The part that isn't the pace."""

    factor: float
    at: float
    note: str
    is_load: bool = True


def correct(view: View, state: ScalerState, *, elapsed_seconds: float) -> Correction:
    """The correction after this look, so long after the last one."""
    policy = view.inputs.policy
    pace, shown = _pace(view, state, elapsed_seconds)
    by_pace = _capacity_at(pace)
    rest = _rest(view, state, by_pace, elapsed_seconds)
    return Correction(
        pace=pace,
        rest=rest.factor,
        at=rest.at,
        note=f"steps at {pace:.2f} of the model's pace{shown}; {rest.note}",
        factor=min(policy.most_correction, max(policy.least_correction, by_pace * rest.factor)),
        is_load=rest.is_load,
    )


def _capacity_at(pace: float) -> float:
    """The capacity at this pace over what the model says."""
    if pace < 1.0:
        return math.pow(min(1.0, pace * (1.0 + _PACE_NOISE)), _SLOWER_POWER)
    return math.pow(max(1.0, pace / (1.0 + _PACE_NOISE)), _FASTER_POWER)


def measured_pace(view: View) -> float | None:
    """How many times as fast as the model says steps are; None: can't be told.

    In a second of decoding a replica makes 1/ITL steps of the batch b and takes in p prompts, and with s the model's
    time over the real one: 1 = (d(b)/ITL + p P)/s, with d a step's and P a prompt's seconds by the model.
    Little's law tells the batch: tokens a second times the seconds to the next.
    """
    signals, ready = view.inputs.signals, view.inputs.fleet.ready
    measured = (
        signals.itl_mean_seconds,
        signals.generated_tokens_per_second,
        signals.input_tokens_per_second,
    )
    if ready < 1 or any(signal.state is not SignalState.OK or not signal.value for signal in measured):
        return None
    itl, generated, taken = (signal.or_zero() for signal in measured)
    if generated * WINDOWS.latency_seconds < _LEAST_TOKENS:
        return None
    model = view.inputs.capacity
    step_seconds = model.itl_seconds(max(1.0, generated / ready * itl), view.mix)
    prompt_seconds = model.prompt_seconds(view.mix)
    if step_seconds is None or prompt_seconds is None:
        return None
    return step_seconds / itl + taken / ready / view.mix.input_tokens * prompt_seconds


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


def _pace(view: View, state: ScalerState, elapsed_seconds: float) -> tuple[float, str]:
    """The pace after this look, and what was measured in words."""
    policy = view.inputs.policy
    pace = min(policy.most_correction, max(policy.least_correction, state.pace))
    if view.inputs.fleet.ready != state.ready or view.now - state.ready_since < WINDOWS.latency_seconds:
        return pace, ""
    measured = measured_pace(view)
    if measured is None:
        return pace, ""
    share = min(1.0, max(0.0, elapsed_seconds) / _PACE_SECONDS)
    bounded = min(policy.most_correction, max(policy.least_correction, measured))
    if bounded > pace:
        share *= _used(view, pace) ** 2
    return pace + share * (bounded - pace), f" ({measured:.2f} now)"


def _used(view: View, pace: float) -> float:
    """The load over what ready replicas take at this pace; 1 at most."""
    usable = view.inputs.fleet.ready * view.usable(_capacity_at(pace))
    return min(1.0, (view.load or 0.0) / usable) if usable > 0 else 0.0


def _rest(view: View, state: ScalerState, by_pace: float, elapsed_seconds: float) -> _Rest:
    policy = view.inputs.policy
    factor = min(policy.most_correction, max(policy.least_correction, state.correction))
    reason = _unusable(view, state)
    if reason:
        return _Rest(factor, state.corrected_at, reason)
    ratio, model = view.latency_ratio or 0.0, view.capacity.requests_per_second * by_pace
    surely, served = served_per_replica(view)
    if view.is_missed or view.latency_ratio is None:
        return _missed(view, state, factor, served / model)
    held = surely / model if ratio <= _HELD_RATIO and not view.is_queueing else 0.0
    shown = min(policy.most_correction, held)
    words = f"p95 is {ratio:.2f} of its objective at {surely:.2f} requests/s a replica"
    if shown > factor * _HIGHER:
        return _Rest(factor + _RISE * (shown - factor), view.now, words)
    share = None if view.is_queueing or not view.is_even else view.capacity.share_at(ratio)
    if share is not None:
        shown = min(_MOST_BY_CURVE, max(_LEAST_BY_CURVE, surely / model / share))
        if not factor / _HIGHER <= shown <= factor * _HIGHER:
            words += f", as the model has it at {share:.2f} of the capacity"
            return _Rest(factor + _RISE * (shown - factor), view.now, words)
    if factor < 1.0:
        share = min(1.0, max(0.0, elapsed_seconds) / _FORGET_SECONDS)
        return _Rest(factor + (1.0 - factor) * share, state.corrected_at, "no evidence")
    return _Rest(factor, state.corrected_at, "no evidence")


def _missed(view: View, state: ScalerState, factor: float, served: float) -> _Rest:
    """What a miss teaches at so much served a replica, as a share of the model's capacity."""
    ratio, is_saturated = view.latency_ratio, view.is_saturated(state)
    seen = "requests queue" if ratio is None else f"p95 is {ratio:.2f} of its objective"
    if not view.is_queueing and served < _IDLE_SHARE:
        words = f"{seen} at {served:.2f} of the capacity: not for load"
        return _Rest(factor, state.corrected_at, words, is_load=False)
    if not is_saturated and (not view.is_even or served < _BUSY_SHARE):
        return _Rest(factor, state.corrected_at, f"{seen}, for a burst")
    fall = _MOST_FALL if is_saturated else _MOST_EVEN_FALL
    bound = max(fall * factor, _UNDER * served, view.inputs.policy.least_correction)
    if bound < factor:
        return _Rest(bound, view.now, f"{seen} at {served:.2f} of the capacity")
    return _Rest(factor, state.corrected_at, "missed beyond the capacity, as it should be")


def _unusable(view: View, state: ScalerState) -> str:
    """Why nothing can be learnt from this look; empty: it can."""
    signals, ready = view.inputs.signals, view.inputs.fleet.ready
    measured = (signals.completions_per_second, signals.input_tokens_per_second, signals.input_tokens_mean)
    if view.latency_ratio is None and not view.is_saturated(state):
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
