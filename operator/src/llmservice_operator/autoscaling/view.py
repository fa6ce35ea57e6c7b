"""What a decision sees, worked out once: load, lengths, latency and queue."""

import math
from dataclasses import dataclass

from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decision import Inputs
from llmservice_operator.autoscaling.signals import Signal
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.track import Windows

WINDOWS = Windows()
"""Those that the signals are measured over."""
_QUEUE_OF_REPLICA = 2.0
"""Waiting requests of one replica that are no queue: prompts that come together at 70 % of what a server can take are
behind one other on average (M/D/1)."""
_LEAST_PATIENCE_SECONDS = 1.0
_FREE_PATIENCE_SECONDS = 10.0
"""How long requests may wait where there is no objective."""
_KEEP_STARTS = 3.0
"""A replica serves three times as long as it took to start, or is not worth its start."""
_PROMISED_SHARE = 0.95
"""Of requests, that an objective's p95 speaks of."""
_CHANCE_DEVIATIONS = 1.645
"""Beyond them chance is once in twenty looks."""
_LENGTH_SAMPLES = 200.0
"""Requests that tell a mean length: prompts of code (p95 five times the median) have one that is then known to 9 %."""
_LENGTH_DEVIATIONS = 3.0
"""Over the root of the requests: what chance moves a mean by once in 300 windows, if lengths spread as exponential
ones do."""
_LONGEST_SECONDS = 600.0
"""Of a request's duration that is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Numbers that several steps use. Rates are requests a second, of the whole service."""

    inputs: Inputs
    now: float
    load: float | None
    """None: nothing is known."""
    mix: LengthMix
    capacity: Capacity
    """Of one replica, by the model."""
    latency_ratio: float | None
    """The worse p95 over its objective; None without enough requests to tell, or without objectives."""
    is_missed: bool
    """Whether an objective is missed by more than chance: of a hundred requests seven are late now and then, though
    five would be in the long run."""
    queue: float
    """Requests that wait, in engines and outside."""
    is_queueing: bool
    """Whether they are more than a busy replica has waiting now and then."""
    is_even: bool
    """Whether requests come at the rate of the long window, within noise: neither a burst nor the calm after one."""
    patience_seconds: float
    """How long a request may wait."""
    start_seconds: float
    """How long a replica that is ordered now takes."""
    stabilization_seconds: float
    keep_seconds: float
    """How long after a scale-out no replica is taken."""

    def is_settled(self, state: ScalerState) -> bool:
        """Whether latency and throughput tell of the ready replicas that there are now.

        A request that ends now began a request's duration ago, under what there was then. A queue that has lasted for
        the window tells at once: replicas did all that they could.
        """
        is_same = self.inputs.fleet.ready == state.ready
        since = self.now - state.ready_since
        if not is_same or since < WINDOWS.latency_seconds:
            return False
        duration_seconds = self.mix.output_tokens * self.inputs.signals.itl_mean_seconds.or_zero()
        settling = min(duration_seconds, _LONGEST_SECONDS)
        return self.is_saturated(state) or since >= WINDOWS.latency_seconds + settling

    def is_saturated(self, state: ScalerState) -> bool:
        """Whether requests queued for the whole window, so that what was done in it is all that could be done."""
        return bool(state.queueing_since) and self.now - state.queueing_since >= WINDOWS.latency_seconds

    def usable(self, correction: float) -> float:
        """Requests a second of one replica within the objectives, as corrected."""
        return self.capacity.requests_per_second * correction


def look(inputs: Inputs, state: ScalerState, now: float, *, elapsed_seconds: float) -> View:
    """Work out the view, so long after the last one."""
    signals, policy = inputs.signals, inputs.policy
    load = _load(signals.arrivals_per_second, signals.sustained_arrivals_per_second, inputs)
    mix = _mix(inputs, state, elapsed_seconds)
    queue, ratio = _queue(inputs, mix), _latency_ratio(inputs)
    limit_seconds = inputs.objectives.ttft_p95_seconds or _FREE_PATIENCE_SECONDS
    start_seconds = inputs.fleet.start_seconds(now)
    return View(
        inputs=inputs,
        now=now,
        load=load,
        mix=mix,
        capacity=inputs.capacity.capacity(mix),
        latency_ratio=ratio,
        is_missed=ratio is not None and ratio > 1.0 and _is_beyond_chance(inputs),
        queue=queue,
        is_queueing=queue > max(1.0, _QUEUE_OF_REPLICA * inputs.fleet.ready),
        is_even=_is_even(signals.arrivals_per_second, signals.sustained_arrivals_per_second, inputs),
        patience_seconds=max(_LEAST_PATIENCE_SECONDS, limit_seconds),
        start_seconds=start_seconds,
        keep_seconds=min(policy.most_stabilization_seconds, _KEEP_STARTS * start_seconds),
        stabilization_seconds=min(policy.most_caution, state.caution)
        * min(
            policy.most_stabilization_seconds,
            max(policy.least_stabilization_seconds, policy.stabilization_starts * start_seconds),
        ),
    )


def _load(short: Signal, long: Signal, inputs: Inputs) -> float | None:
    """Requests a second. The short window counts instead of the long one if it shows a burst.

    A burst is beyond the noise that a Poisson stream of the long window's rate has in it: sqrt(rate / window).
    """
    if short.value is None or long.value is None:
        return long.value if short.value is None else short.value
    return short.value if short.value > long.value + _noise(long.value, inputs) else long.value


def _is_even(short: Signal, long: Signal, inputs: Inputs) -> bool:
    if short.value is None or long.value is None:
        return False
    return abs(short.value - long.value) <= _noise(long.value, inputs)


def _noise(rate: float, inputs: Inputs) -> float:
    """What chance may add to the short window's rate of a Poisson stream."""
    return inputs.policy.burst_deviations * math.sqrt(rate / WINDOWS.short_seconds)


def _mix(inputs: Inputs, state: ScalerState, elapsed_seconds: float) -> LengthMix:
    """Lengths as measured, else as last measured, else as the user expects them.

    The fewer requests a window has, the less its means are worth, and the more the last ones count: a dozen long
    prompts by chance are no other traffic. What chance can't explain counts at once.
    """
    signals = inputs.signals
    prompt, answer = signals.input_tokens_mean.value, signals.output_tokens_mean.value
    if prompt is None or answer is None or prompt < 1 or answer < 1:
        return state.mix or inputs.expected_mix
    cached, last = min(0.99, signals.prefix_hit_share.or_zero()), state.mix
    if last is None:
        return LengthMix(input_tokens=prompt, output_tokens=answer, cached_share=cached)
    samples = signals.completions_per_second.or_zero() * WINDOWS.long_seconds
    moved = max(abs(math.log(prompt / last.input_tokens)), abs(math.log(answer / last.output_tokens)))
    if moved * math.sqrt(samples) > _LENGTH_DEVIATIONS:
        return LengthMix(input_tokens=prompt, output_tokens=answer, cached_share=cached)
    of_window = samples / (samples + _LENGTH_SAMPLES)
    share = 1.0 - (1.0 - of_window) ** (elapsed_seconds / WINDOWS.long_seconds)
    return LengthMix(
        input_tokens=last.input_tokens + share * (prompt - last.input_tokens),
        output_tokens=last.output_tokens + share * (answer - last.output_tokens),
        cached_share=last.cached_share + share * (cached - last.cached_share),
    )


def _queue(inputs: Inputs, mix: LengthMix) -> float:
    signals = inputs.signals
    waiting = signals.waiting.or_zero()
    # Few long prompts can be more work than many short ones: where their tokens are told, those count.
    by_tokens = signals.uncached_tokens_waiting.or_zero() / mix.computed_input_tokens
    return max(waiting, by_tokens) + signals.held_requests.or_zero()


def _is_beyond_chance(inputs: Inputs) -> bool:
    """Whether more requests miss an objective than chance has of those that are promised to be within it."""
    signals = inputs.signals
    requests = max(1.0, signals.completions_per_second.or_zero() * WINDOWS.latency_seconds)
    deviation = math.sqrt(_PROMISED_SHARE * (1.0 - _PROMISED_SHARE) / requests)
    shares = [
        each.value for each in (signals.ttft_attainment, signals.tpot_attainment) if each.value is not None
    ]
    return not shares or min(shares) < _PROMISED_SHARE - _CHANCE_DEVIATIONS * deviation


def _latency_ratio(inputs: Inputs) -> float | None:
    signals, objectives = inputs.signals, inputs.objectives
    requests = signals.completions_per_second.or_zero() * WINDOWS.latency_seconds
    if requests < inputs.policy.least_samples:
        return None
    ratios = [
        signal.value / limit
        for signal, limit in (
            (signals.ttft_p95_seconds, objectives.ttft_p95_seconds),
            (signals.tpot_p95_seconds, objectives.tpot_p95_seconds),
        )
        if signal.value is not None and limit is not None
    ]
    return max(ratios, default=None)
