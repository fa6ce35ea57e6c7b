"""How many replicas are needed, by each measure: fractions of replicas, so that a note can show how close it was."""

import math
from collections.abc import Sequence
from itertools import pairwise

from llmservice_operator.autoscaling.decision import Step
from llmservice_operator.autoscaling.state import MOST_RATES, ScalerState
from llmservice_operator.autoscaling.view import WINDOWS, View

_PARTS = 4
_LEAST_LOOK_BACK_SECONDS, _MOST_LOOK_BACK_SECONDS = 120.0, 600.0


def replicas_for(load: float, usable: float) -> float:
    """Replicas for a load; none for no load, endless for one that no replica takes."""
    if load <= 0:
        return 0.0
    return load / usable if usable > 0 else math.inf


def staffed(offered: float, utilization: float, reserve: float) -> float:
    """Replicas for an offered load in replicas: n with n x utilization >= offered and n - reserve x sqrt(n) >= offered.

    Square-root staffing (Halfin and Whitt): what must stay free against chance grows with the root of what there is.
    """
    if offered <= 0:
        return 0.0
    root = (reserve + math.sqrt(reserve * reserve + 4.0 * offered)) / 2.0
    return max(offered / utilization, root * root)


def remember_rate(view: View, state: ScalerState) -> tuple[tuple[float, float], ...]:
    """The rates for the forecast with this one: sixteen in the look-back, each of the short window."""
    horizon = view.now - _look_back_seconds(view)
    kept = [pair for pair in state.rates if horizon <= pair[0] <= view.now]
    arrivals = view.inputs.signals.arrivals_per_second
    is_due = not kept or view.now - kept[-1][0] >= _look_back_seconds(view) / (4 * _PARTS)
    if arrivals.is_trusted and arrivals.value is not None and is_due:
        kept.append((view.now, arrivals.value))
    return tuple(kept[-MOST_RATES:])


def forecast(view: View, rates: Sequence[tuple[float, float]]) -> float:
    """What the load is expected to be above now, when a replica ordered now is ready; requests a second.

    The look-back's four parts are compared. The rise from the first to the last must be beyond the noise of a Poisson
    stream, and the smallest of its three steps goes on: a step of the load shows in two of them at most, so it is no
    slope. Never more than the policy's share of the load, and never less than 0: a fall in sight is no reason for
    fewer replicas.
    """
    load, part_seconds = view.load, _look_back_seconds(view) / _PARTS
    if not load:
        return 0.0
    parts: list[list[float]] = [[] for _ in range(_PARTS)]
    for at, rate in rates:
        parts[_PARTS - 1 - min(_PARTS - 1, int((view.now - at) / part_seconds))].append(rate)
    if not all(parts):
        return 0.0
    means = [sum(part) / len(part) for part in parts]
    policy = view.inputs.policy
    if means[-1] - means[0] <= policy.burst_deviations * math.sqrt((means[0] + means[-1]) / part_seconds):
        return 0.0
    slope = max(0.0, min(later - earlier for earlier, later in pairwise(means))) / part_seconds
    return min(slope * view.start_seconds, policy.most_forecast_growth * load)


def highest_load(view: View) -> float:
    """What the load may be, but for chance: what a Poisson stream seen over each window can be at most.

    The lower of the two bounds: a load that fell is known after the short window, and a steady one best by the long
    one. Without it noise takes a replica and brings it back.
    """
    signals, deviations = view.inputs.signals, view.inputs.policy.scale_in_deviations
    bounds = [
        signal.value + deviations * math.sqrt(signal.value / min(seconds, max(1.0, signals.span_seconds)))
        for signal, seconds in (
            (signals.arrivals_per_second, WINDOWS.short_seconds),
            (signals.sustained_arrivals_per_second, WINDOWS.long_seconds),
        )
        if signal.value is not None
    ]
    return min(bounds, default=0.0)


def forward(view: View, correction: float, growth: float) -> Step:
    """Feed-forward: the load that comes over what one replica can take."""
    if view.load is None:
        return Step("forward", None, "the arrival rate isn't known")
    usable, policy = view.usable(correction), view.inputs.policy
    offered = replicas_for(view.load + growth, usable)
    return Step(
        "forward",
        staffed(offered, policy.target_utilization, policy.small_fleet_reserve),
        f"{view.load:.2f} requests/s and {growth:.2f} forecast, of {view.mix.input_tokens:.0f} + "
        f"{view.mix.output_tokens:.0f} tokens, are {offered:.2f} times the {usable:.2f} that a replica takes",
    )


def backlog(view: View, state: ScalerState, correction: float) -> Step:
    """Feedback: what it takes to be rid of the queue soon after a replica ordered now is ready.

    Until then the queue grows or shrinks with what is ready and what joins, each at its time: what is on its way is not
    ordered twice.
    """
    if view.load is None or not view.is_queueing:
        return Step("backlog", None, f"{view.queue:.0f} requests wait")
    policy, usable = view.inputs.policy, view.usable(correction)
    if view.is_saturated(state) and _nothing_ends(view):
        # Answers longer than any that ended tell of no capacity yet: the queue alone says that it is too small.
        fleet = view.inputs.fleet
        more = float(fleet.ready) if fleet.starting else fleet.ready + 1.0
        return Step("backlog", more, f"{view.queue:.0f} requests wait, and no answer ended for a minute")
    # Little: load x patience is a queue in which requests wait as long as they may.
    left = queue_at(view, usable) - view.load * view.patience_seconds
    if left <= 0:
        return Step("backlog", None, f"{view.queue:.0f} requests wait, none for too long")
    load_replicas = staffed(
        replicas_for(view.load, usable), policy.target_utilization, policy.small_fleet_reserve
    )
    most = max(load_replicas + 1.0, load_replicas * (1.0 + policy.most_backlog_growth))
    drain_seconds = max(policy.drain_seconds, view.patience_seconds)
    needed = min(most, replicas_for(view.load + left / drain_seconds, usable))
    return Step(
        "backlog",
        needed,
        f"{view.queue:.0f} requests wait, {left:.0f} too many would in {view.start_seconds:.0f} s",
    )


def _nothing_ends(view: View) -> bool:
    """Whether tokens are made and no answer ended in the window."""
    signals = view.inputs.signals
    return not signals.completions_per_second.or_zero() and signals.generated_tokens_per_second.or_zero() > 0


def latency(view: View, state: ScalerState, *, is_load: bool) -> Step:
    """Feedback: one more while the objectives are missed for load and all replicas there are have shown what they do.

    The correction of the capacity tells how many in the end; this is for the time until it can tell.
    """
    ratio, fleet = view.latency_ratio, view.inputs.fleet
    if ratio is None:
        return Step("latency", None, "too few requests, or no objective")
    words = f"p95 is {ratio:.2f} of its objective"
    if not view.is_missed or not is_load or view.capacity.unreachable:
        return Step("latency", None, words)
    if fleet.starting or not view.is_settled(state):
        return Step("latency", float(fleet.ready), f"{words}, and what was added has not shown yet")
    return Step("latency", fleet.ready + 1.0, words)


def queue_at(view: View, usable: float) -> float:
    """Requests that wait when a replica ordered now is ready, with those that serve and those that join by then."""
    fleet, load = view.inputs.fleet, view.load or 0.0
    left, serving, time = view.queue, fleet.ready, 0.0
    for joins_in in (*fleet.joins_in(view.now), math.inf):
        until = min(joins_in, view.start_seconds)
        left = max(0.0, left + (load - serving * usable) * (until - time))
        if joins_in >= view.start_seconds:
            break
        serving, time = serving + 1, until
    return left


def kv_demand(view: View, limit: float) -> Step:
    """Floor: the KV cache that running requests hold."""
    use = view.inputs.signals.kv_use_total
    if use.value is None:
        return Step("kv", None, "KV use isn't known")
    return Step(
        "kv", use.value / limit, f"{use.value:.2f} replicas' KV cache is in use, {limit:.2f} each at most"
    )


def concurrency(view: View) -> Step:
    """Floor: requests that run, over what one replica holds; never more than there are.

    While a service rolls, replicas of the old plan may hold more than those of the new one.
    """
    running, limit = view.inputs.signals.running.value, view.inputs.concurrency_limit
    if running is None or not limit:
        return Step("concurrency", None, "running requests, or how many one replica holds, aren't known")
    needed = min(running / limit, float(view.inputs.fleet.wanted))
    return Step("concurrency", needed, f"{running:.0f} requests run, {limit:.0f} a replica at most")


def bandwidth(view: View) -> Step:
    """Floor: as few replicas as leave memory bandwidth below its limit; never more than there are.

    Of a step's bytes the weights are read whatever the batch, so only the rest grows when fewer replicas have larger
    batches: with n replicas at a use of b, of which the share s isn't weights, m replicas are at b (1 - s + s n / m).
    An engine that decodes one sequence reads near the peak too; counting that as load would forbid every scale-in.
    """
    signals, policy, ready = view.inputs.signals, view.inputs.policy, view.inputs.fleet.ready
    use, limit = signals.bandwidth_use.value, policy.bandwidth_limit
    if use is None:
        use, limit = signals.dram_active.value, policy.dram_active_limit
    if use is None or ready < 1:
        return Step("bandwidth", None, "bandwidth isn't known")
    share = load_share(view)
    fixed = use * (1.0 - share)
    if fixed >= limit:
        return Step("bandwidth", None, f"{use:.2f} of the peak, nearly all for weights: no number changes it")
    needed = min(float(ready), ready * share * use / (limit - fixed))
    # What load per replica would saturate it: a check of the capacity model, not a rule.
    words = f"{use:.2f} of the peak, {share:.0%} of it grows with load"
    if share * use > 0:
        words += f": saturated at {(limit - fixed) / (share * use):.1f} times the load"
    return Step("bandwidth", needed, words)


def load_share(view: View) -> float:
    """The share of the bytes moved that grows with load; 1 where the weights' part isn't known."""
    weights, step = view.inputs.weights_bytes_per_step, view.inputs.signals.step_bytes.value
    if not weights or not step:
        return 1.0
    return min(1.0, max(0.0, 1.0 - weights / step))


def _look_back_seconds(view: View) -> float:
    return min(_MOST_LOOK_BACK_SECONDS, max(_LEAST_LOOK_BACK_SECONDS, 2.0 * view.start_seconds))
