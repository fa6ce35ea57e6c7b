"""A service that promises nothing still has its requests served: a queue that lasts shows what a replica takes."""

from dataclasses import replace

from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Inputs, Objectives
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.samples import NOW, fleet, inputs, ok, signals
from unit.autoscaling.world import FixedCapacity


def overloaded(**changes: object) -> Inputs:
    """Two requests a second come, one is served, and a replica is believed to take 3.9."""
    seen = replace(
        signals(2.0),
        completions_per_second=ok(1.0),
        input_tokens_per_second=ok(1000.0),
        generated_tokens_per_second=ok(200.0),
        running=ok(8.0),
        waiting=ok(40.0),
    )
    given = inputs(signals=seen, fleet=fleet(1), capacity=FixedCapacity(3.9), objectives=Objectives())
    return replace(given, **changes)


def test_a_queue_that_lasts_brings_the_capacity_down_to_what_is_served() -> None:
    state = ScalerState()
    for second in range(0, 900, 15):
        decision = decide(overloaded(), state, NOW + second)
        state = decision.state
    assert decision.capacity_requests_per_second * decision.correction < 2.0


def test_it_orders_what_serves_all_that_comes() -> None:
    """Two replicas serve 0.6 a second each of 2 that come: four are needed, where 1.5 were believed of each."""
    seen = replace(
        overloaded().signals,
        completions_per_second=ok(1.2),
        input_tokens_per_second=ok(1200.0),
        generated_tokens_per_second=ok(240.0),
    )
    given = overloaded(fleet=fleet(2), signals=seen, capacity=FixedCapacity(1.5))
    state = ScalerState()
    for second in range(0, 900, 15):
        decision = decide(given, state, NOW + second)
        state = decision.state
    assert decision.desired >= 4
