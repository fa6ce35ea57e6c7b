"""What a decision remembers, read back from JSON."""

import pytest

from llmservice_operator.autoscaling.capacity import LengthMix
from llmservice_operator.autoscaling.state import ScalerState, read_state

WHOLE = ScalerState(
    at=1_790_000_000.0,
    watched_since=1_789_999_000.0,
    correction=0.8125,
    corrected_at=1_789_999_500.0,
    ready=3,
    ready_since=1_789_999_100.0,
    queueing_since=1_789_999_980.0,
    caution=2.0,
    peaks=((1_789_999_900.0, 2.5), (1_789_999_990.0, 2.0)),
    rates=((1_789_999_900.0, 4.0),),
    out_since=1_789_999_200.0,
    out_base=2,
    in_at=1_789_999_300.0,
    mix=LengthMix(input_tokens=1000.0, output_tokens=200.0, cached_share=0.25),
)


def test_a_whole_state_is_read_back() -> None:
    assert read_state(WHOLE.to_json()) == WHOLE


@pytest.mark.parametrize("data", [None, [], "x", 7, {}, {"v": 2}, {"v": 1}])
def test_anything_else_is_a_fresh_state(data: object) -> None:
    assert read_state(data) == ScalerState()


@pytest.mark.parametrize("peaks", [None, "x", [[2.0, 1.0], [1.0, 1.0]], [["a", 1]], {}])
def test_peaks_that_cannot_be_read_are_none(peaks: object) -> None:
    assert read_state({**WHOLE.to_json(), "peaks": peaks}).peaks == ()


@pytest.mark.parametrize("correction", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_correction_that_cannot_be_read_is_none(correction: object) -> None:
    assert read_state({**WHOLE.to_json(), "correction": correction}).correction == 1.0
