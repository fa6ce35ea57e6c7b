"""How tests read decisions."""

import math

from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs
from llmservice_operator.autoscaling.signals import Signal
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.samples import NOW, inputs, signals


def step(decision: Decision, name: str) -> float | None:
    return next(step.replicas for step in decision.steps if step.name == name)


def offered(replicas: float | None) -> float:
    """What so many replicas hold by square-root staffing, in replicas' capacity: 0.2 sqrt(n) of n stay free."""
    assert replicas is not None
    return replicas - 0.2 * math.sqrt(replicas)


def settled(given: Inputs, state: ScalerState, seconds: float = 700.0) -> Decision:
    """The decision after so many seconds in which nothing changes but what is decided is not carried out."""
    decision, now = decide(given, state, NOW), NOW
    while now < NOW + seconds:
        now += 5
        decision = decide(given, decision.state, now)
        if decision.desired < given.fleet.wanted:
            break
    return decision


def low(**changes: Signal) -> Inputs:
    """A load that one replica holds."""
    return inputs(signals=signals(1.0, **changes))
