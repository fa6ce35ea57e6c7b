"""What holds for every decision, whatever it is made from."""

import json
import math
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Inputs
from llmservice_operator.autoscaling.signals import Signal, Signals, SignalState
from llmservice_operator.autoscaling.state import ScalerState, read_state
from unit.autoscaling.samples import NOW, fleet, inputs, signals
from unit.autoscaling.world import FixedCapacity

steady = settings(derandomize=True, deadline=None, max_examples=100)

states = st.sampled_from(list(SignalState))
values = st.one_of(st.none(), st.floats(0, 1e4))
any_signal = st.builds(Signal, values, states, st.floats(0, NOW))
any_signals = st.builds(Signals, **{name: any_signal for name, _ in Signals().items()})
times = st.floats(NOW - 2000, NOW + 100)


@st.composite
def fleets(draw: st.DrawFn) -> Any:
    wanted = draw(st.integers(0, 12))
    ready = draw(st.integers(0, wanted))
    starting = draw(st.lists(st.floats(NOW - 900, NOW), max_size=wanted - ready))
    return fleet(
        wanted,
        ready=ready,
        starting=tuple(starting),
        unschedulable=draw(st.integers(0, 2)),
        failing=draw(st.integers(0, 2)),
        recent_starts=tuple(draw(st.lists(st.floats(1, 900), max_size=3))),
    )


any_state = st.builds(
    ScalerState,
    at=times,
    watched_since=times,
    pace=st.floats(0.01, 10),
    correction=st.floats(0.01, 10),
    corrected_at=times,
    ready=st.integers(0, 12),
    ready_since=times,
    peaks=st.lists(st.tuples(times, st.floats(0, 20)), max_size=5).map(lambda rows: tuple(sorted(rows))),
    rates=st.lists(st.tuples(times, st.floats(0, 50)), max_size=12).map(lambda rows: tuple(sorted(rows))),
    first_minute=st.integers(int(NOW // 60) - 90, int(NOW // 60) + 2),
    highs=st.lists(st.floats(0, 120), max_size=60).map(tuple),
    out_at=times,
    out_since=times,
    out_base=st.integers(0, 12),
    in_at=times,
    queueing_since=st.one_of(st.just(0.0), times),
    caution=st.floats(1, 10),
)


@st.composite
def any_inputs(draw: st.DrawFn) -> Inputs:
    low = draw(st.integers(1, 5))
    return inputs(
        signals=draw(any_signals),
        fleet=draw(fleets()),
        capacity=FixedCapacity(
            draw(st.floats(0, 20)), unreachable=draw(st.sampled_from(["", "out of reach"]))
        ),
        min_replicas=low,
        max_replicas=draw(st.integers(low, 15)),
        quota_replicas=draw(st.one_of(st.none(), st.integers(0, 15))),
        concurrency_limit=draw(st.one_of(st.none(), st.floats(1, 500))),
        weights_bytes_per_step=draw(st.one_of(st.none(), st.floats(1, 1e4))),
    )


@steady
@given(any_inputs(), any_state)
def test_a_decision_is_within_its_bounds(given_inputs: Inputs, state: ScalerState) -> None:
    decision = decide(given_inputs, state, NOW)

    assert given_inputs.min_replicas <= decision.desired <= given_inputs.max_replicas
    assert 0.5 <= decision.correction <= 2.0


@steady
@given(any_inputs(), any_state)
def test_what_is_not_known_never_argues_for_fewer(given_inputs: Inputs, state: ScalerState) -> None:
    decision = decide(given_inputs, state, NOW)

    if not decision.metrics_available:
        assert decision.desired >= min(given_inputs.fleet.wanted, given_inputs.max_replicas)


@steady
@given(any_inputs(), any_state)
def test_none_is_added_while_some_cannot_start(given_inputs: Inputs, state: ScalerState) -> None:
    decision = decide(given_inputs, state, NOW)

    if given_inputs.fleet.unschedulable or given_inputs.fleet.failing:
        assert decision.desired <= max(given_inputs.fleet.wanted, given_inputs.min_replicas)


@steady
@given(any_inputs(), any_state, st.floats(0, 30), st.floats(0, 30))
def test_more_load_never_means_fewer(
    given_inputs: Inputs, state: ScalerState, one: float, other: float
) -> None:
    def desired(load: float) -> int:
        loaded = replace(
            given_inputs.signals,
            arrivals_per_second=Signal(load, SignalState.OK, NOW),
            sustained_arrivals_per_second=Signal(load, SignalState.OK, NOW),
        )
        return decide(replace(given_inputs, signals=loaded), state, NOW).desired

    assert desired(min(one, other)) <= desired(max(one, other))


@steady
@given(any_inputs(), any_state)
def test_the_state_survives_json(given_inputs: Inputs, state: ScalerState) -> None:
    after = decide(given_inputs, state, NOW).state
    text = json.dumps(after.to_json())

    assert read_state(json.loads(text)).to_json() == after.to_json()
    assert len(text) <= 2048


@steady
@given(any_inputs(), any_state, st.floats(61, 1e6))
def test_a_restart_is_never_a_reason_for_fewer(
    given_inputs: Inputs, state: ScalerState, away_seconds: float
) -> None:
    decision = decide(given_inputs, state, max(state.at, NOW) + away_seconds)

    assert decision.desired >= min(given_inputs.fleet.wanted, given_inputs.max_replicas)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["v", "at", "x"]), inner)
    ),
    max_leaves=8,
)
keys = (
    *("at", "watchedSince", "pace", "correction", "correctedAt", "ready", "peaks", "highs", "rates"),
    *("out", "outAt", "inAt", "mix"),
)


@steady
@given(st.dictionaries(st.sampled_from(keys), json_values))
def test_a_state_that_cannot_be_read_is_no_error_and_no_reason_for_fewer(data: dict[str, Any]) -> None:
    state = read_state({"v": 1, **data})
    decision = decide(inputs(signals=signals(0.1)), state, NOW)

    assert decision.desired >= 3
    assert math.isfinite(decision.correction)
    assert json.loads(json.dumps(decision.state.to_json(), allow_nan=False))


@steady
@given(any_inputs(), any_state)
def test_the_same_gives_the_same(given_inputs: Inputs, state: ScalerState) -> None:
    assert decide(given_inputs, state, NOW) == decide(given_inputs, state, NOW)


@steady
@given(
    signals=st.builds(
        Signals,
        **{
            name: st.builds(
                Signal, st.sampled_from([math.nan, math.inf, -1.0, 3.0]), states, st.floats(0, NOW)
            )
            for name, _ in Signals().items()
        },
    )
)
def test_no_value_that_cannot_be_makes_a_decision_that_cannot_be(signals: Signals) -> None:
    """Those of a trusted state too: none of them counts, and none argues for fewer."""
    decision = decide(inputs(signals=signals, fleet=fleet(3)), ScalerState(), NOW)

    assert decision.desired >= 3
    assert all(math.isfinite(value) and value >= 0.0 for value in decision.asked.values())
    json.dumps(decision.state.to_json(), allow_nan=False)
