"""What chance can explain changes nothing; what it can't counts at once."""

import math
from dataclasses import replace

import pytest

from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.state import ScalerState
from unit.autoscaling.decisions import step
from unit.autoscaling.samples import NOW, fleet, idle, inputs, ok, signals, watched

SHORT = LengthMix(input_tokens=1000.0, output_tokens=200.0)


def missing(share: float, load: float = 5.0) -> Decision:
    """A decision at a p95 of 1.1 of its objective, with this share of the requests within it."""
    seen = signals(load, ttft_p95_seconds=ok(1.1), ttft_attainment=ok(share))
    return decide(inputs(signals=seen), watched(), NOW)


def test_a_few_more_misses_than_one_in_twenty_are_chance() -> None:
    """5/s for 60 s are 300 requests: 1.645 deviations of their share are 2.1 points."""
    assert step(missing(0.95 - 0.020), "latency") is None


def test_more_of_them_are_not() -> None:
    assert step(missing(0.95 - 0.022), "latency") == 4.0


def test_the_more_requests_the_less_is_chance() -> None:
    """60 requests may miss 4.6 points more."""
    assert step(missing(0.91, load=1.0), "latency") is None


def learnt(prompt: float, load: float, elapsed_seconds: float = 60.0) -> float:
    """The prompt length that is reckoned with after a look, where the last was 1,000 tokens."""
    before = replace(watched(), at=NOW - elapsed_seconds, mix=SHORT)
    decision = decide(inputs(signals=signals(load, input_tokens_mean=ok(prompt)), fleet=fleet()), before, NOW)
    assert decision.state.mix is not None
    return decision.state.mix.input_tokens


def test_a_mean_of_few_requests_counts_little() -> None:
    """1/s for 120 s are 120 requests, which count against 200: after half a window 1 - (200/320)^(1/2) of it."""
    share = 1.0 - math.sqrt(200.0 / 320.0)

    assert learnt(1200.0, 1.0) == pytest.approx(1000.0 + share * 200.0)


def test_a_mean_that_chance_does_not_explain_counts_at_once() -> None:
    """3/sqrt(120) of the logarithm is a factor of 1.315."""
    assert learnt(1300.0, 1.0) < 1250.0
    assert learnt(1330.0, 1.0) == 1330.0


def test_lengths_of_which_the_last_ones_were_absurd_are_taken_as_they_are() -> None:
    """1e17 + (1330 - 1e17) is 1328 in floating point, and of shorter prompts 0."""
    before = replace(watched(), mix=LengthMix(input_tokens=1e17, output_tokens=200.0))
    decision = decide(inputs(signals=signals(1.0, input_tokens_mean=ok(7.0))), before, NOW)

    assert decision.state.mix is not None
    assert decision.state.mix.input_tokens == 7.0


def test_the_first_lengths_are_taken_as_they_are() -> None:
    decision = decide(inputs(signals=signals(1.0, input_tokens_mean=ok(1200.0))), ScalerState(), NOW)

    assert decision.state.mix is not None
    assert decision.state.mix.input_tokens == 1200.0


# ── answers longer than any that ended ──


def stuck(**changes: float) -> Decision:
    """A queue that lasts, at a load that the known capacity holds, of answers of which none ended."""
    seen = signals(
        1.5,
        waiting=ok(30.0),
        completions_per_second=ok(0.0),
        ttft_p95_seconds=idle(),
        tpot_p95_seconds=idle(),
        generated_tokens_per_second=ok(changes.get("generated", 100.0)),
    )
    given = inputs(signals=seen, fleet=fleet(1, ready=1))
    return decide(given, watched(queueing_since=NOW - 90.0, ready=1), NOW)


def test_a_queue_in_which_no_answer_ends_asks_for_one_more() -> None:
    assert step(stuck(), "backlog") == 2.0


def test_engines_that_make_no_tokens_hang_and_are_no_reason_for_more() -> None:
    """Then the queue asks for what drains it by the known capacity: 18 too many within a minute, at 1.6/s a replica."""
    assert step(stuck(generated=0.0), "backlog") == pytest.approx((1.5 + 18.5 / 60.0) / 1.6, abs=0.01)
