"""Inputs of a decision, in a steady state unless a test says otherwise."""

from dataclasses import replace
from typing import Any

from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.decision import Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.signals import ABSENT, Signal, Signals, SignalState
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.world import FixedCapacity

NOW = 1_790_000_000.0
MIX = LengthMix(input_tokens=1000, output_tokens=200)


def ok(value: float) -> Signal:
    return Signal(value, SignalState.OK, NOW)


def idle() -> Signal:
    return Signal(None, SignalState.IDLE, NOW)


def signals(load: float = 5.0, **changes: Signal) -> Signals:
    """All is well at this load; of more than 6 a second three replicas get no more done."""
    served = min(load, 6.0)
    return replace(
        Signals(
            arrivals_per_second=ok(load),
            sustained_arrivals_per_second=ok(load),
            completions_per_second=ok(served),
            input_tokens_per_second=ok(served * 1000),
            generated_tokens_per_second=ok(served * 200),
            input_tokens_mean=ok(1000.0),
            input_tokens_p95=ok(1000.0),
            output_tokens_mean=ok(200.0),
            output_tokens_p95=ok(200.0),
            prefix_hit_share=ok(0.0),
            running=ok(served * 4),
            waiting=ok(0.0),
            uncached_tokens_waiting=ABSENT,
            kv_use_total=ok(0.3),
            kv_use_highest=ok(0.1),
            preemptions_per_second=ok(0.0),
            ttft_p50_seconds=ok(0.2),
            ttft_p95_seconds=ok(0.5),
            ttft_attainment=ok(1.0),
            tpot_p50_seconds=ok(0.02),
            tpot_p95_seconds=ok(0.03),
            tpot_attainment=ok(1.0),
            itl_mean_seconds=ok(0.02),
        ),
        **changes,
    )


def unknown(state: SignalState = SignalState.MISSING) -> Signals:
    """Nothing is known."""
    return Signals(**{name: Signal(None, state) for name, _ in Signals().items()})


def fleet(wanted: int = 3, **changes: Any) -> Fleet:
    return replace(Fleet(wanted=wanted, ready=wanted, planned_start_seconds=100.0), **changes)


def inputs(**changes: Any) -> Inputs:
    """Three replicas of 2 requests/s each, at 5 requests/s."""
    return replace(
        Inputs(
            signals=signals(),
            fleet=fleet(),
            capacity=FixedCapacity(2.0),
            expected_mix=MIX,
            objectives=Objectives(ttft_p95_seconds=1.0, tpot_p95_seconds=0.05),
            max_replicas=10,
        ),
        **changes,
    )


def watched(seconds: float = 1000.0, **changes: Any) -> ScalerState:
    """A state that has watched for so long, with three replicas ready and little load."""
    return replace(
        ScalerState(
            at=NOW - 5,
            watched_since=NOW - seconds,
            ready=3,
            ready_since=NOW - seconds,
            peaks=((NOW - 5, 0.1),),
        ),
        **changes,
    )
