"""Loads from text, and what is said of text that is none."""

import numpy as np
import pytest

from llmservice_operator.errors import InvalidInputError
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.simulation.trace_text import (
    builtin_trace,
    counts_load,
    ramp_load,
    requests_load,
    share_of_peak,
)

LENGTHS = Lengths(input_p50=1000, input_p95=4000, output_p50=200)


def test_a_ramp_has_its_rates() -> None:
    load = ramp_load("2x1000,8x1000", LENGTHS, longest=16_000, seed=1)

    first = int((load.arrival_seconds < 1000.0).sum())
    assert first == pytest.approx(2000, rel=0.1)
    assert len(load) - first == pytest.approx(8000, rel=0.05)
    assert load.seconds == 2000.0


def test_lengths_are_the_workload_s() -> None:
    load = ramp_load("10x1000", LENGTHS, longest=100_000, seed=1)

    assert np.quantile(load.prompt_tokens, (0.5, 0.95)) == pytest.approx((1000, 4000), rel=0.06)
    assert set(load.answer_tokens) == {200}


def test_a_request_fits_the_context() -> None:
    load = ramp_load("10x1000", LENGTHS, longest=2_000, seed=1)

    assert (load.prompt_tokens + load.answer_tokens).max() <= 2_000
    assert load.answer_tokens.min() >= 1


def test_counts_lie_in_their_windows() -> None:
    load = counts_load("counts", "3 0\n5", LENGTHS, share=1.0, longest=16_000, seed=1)

    assert np.histogram(load.arrival_seconds, bins=[0, 10, 20, 30])[0].tolist() == [3, 0, 5]


def test_a_share_thins_by_chance() -> None:
    load = counts_load("counts", "100 " * 100, LENGTHS, share=0.25, longest=16_000, seed=1)

    assert len(load) == pytest.approx(2500, rel=0.06)


def test_recorded_requests_are_taken_as_they_are() -> None:
    lines = ["milliseconds,prompt_tokens,answer_tokens,cached_tokens", "5000,10,3,4", "2000,7,1,0"]
    load = requests_load("trace.csv", lines)

    assert load.arrival_seconds.tolist() == [0.0, 3.0]
    assert load.prompt_tokens.tolist() == [7, 10]
    assert load.cached_tokens.tolist() == [0, 4]


@pytest.mark.parametrize(
    "text", ["", "2", "2x", "x3", "2x0", "-1x3", "2x3,,", "nanx3", "0x5", "1e9x9", "0.001x9000000,1x9000000"]
)
def test_what_is_no_ramp_is_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"stage|requests|lasts"):
        ramp_load(text, LENGTHS, longest=16_000, seed=1)


@pytest.mark.parametrize("text", ["", "3 -1", "3 x", "3.5", "²", "9" * 400])
def test_what_is_no_count_is_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match="count"):
        counts_load("counts", text, LENGTHS, share=1.0, longest=16_000, seed=1)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["seconds,prompt_tokens"],
        ["seconds,prompt_tokens,answer_tokens"],
        ["seconds,prompt_tokens,answer_tokens", "1,a,2"],
        ["seconds,prompt_tokens,answer_tokens", "nan,1,2"],
        ["seconds,prompt_tokens,answer_tokens", "1,-5,2"],
        ["seconds,prompt_tokens,answer_tokens", "1"],
        ["seconds,prompt_tokens,answer_tokens", f"1,{10**27},2"],
        ["seconds,prompt_tokens,answer_tokens", f"1,{'9' * 200_000},2"],
        ["seconds,prompt_tokens,answer_tokens", "1,1,2", "1e300,1,2"],
    ],
)
def test_what_is_no_record_is_named(lines: list[str]) -> None:
    with pytest.raises(InvalidInputError, match=r"^t\.csv"):
        requests_load("t.csv", lines)


def test_a_day_without_its_date_is_the_wednesday() -> None:
    assert builtin_trace("azure2024-conv") == builtin_trace("azure2024-conv-2024-05-15")


def test_a_day_of_the_package_has_all_its_counts() -> None:
    """Ten seconds each."""
    assert len(builtin_trace("azure2024-code-2024-05-12").split()) == 8640


def test_the_share_brings_the_busiest_five_minutes_to_a_rate() -> None:
    """300 requests in ten seconds of the second five minutes are 1 a second of them; half of that is wanted."""
    counts = ["10"] * 30 + ["300"] + ["0"] * 29

    assert share_of_peak(" ".join(counts), 0.5) == pytest.approx(0.5)
