"""After a restart decisions go on by what is in the status, but what engines did before isn't known any more."""

from dataclasses import replace

import pytest

from llmservice_operator.autoscaling import needs
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.view import look
from unit.autoscaling.decisions import settled
from unit.autoscaling.samples import NOW, inputs, signals


def test_a_load_that_was_seen_for_a_moment_takes_no_replica() -> None:
    low = inputs(signals=replace(signals(0.5), span_seconds=15.0))

    decision = settled(low, ScalerState())

    assert (decision.desired, decision.ruling) == (3, "guard-seen")


def test_the_same_load_takes_one_once_a_window_was_seen() -> None:
    assert settled(inputs(signals=replace(signals(0.5), span_seconds=120.0)), ScalerState()).desired == 2


def test_what_chance_may_hide_is_more_the_shorter_one_looked() -> None:
    """4 requests/s seen for 25 s are 100: two deviations of that count are 20, which is 0.8 a second."""
    view = look(
        inputs(signals=replace(signals(4.0), span_seconds=25.0)), ScalerState(), NOW, elapsed_seconds=0.0
    )

    assert needs.highest_load(view) == pytest.approx(4.8)
