"""Quantiles of bucketed samples; expected values are worked by hand."""

import math

import pytest

from llmservice_operator.autoscaling.histograms import NONE, Samples, merged

# 10 samples up to 1, 10 more up to 2, 5 more above.
SAMPLES = Samples((1.0, 2.0, math.inf), (10.0, 20.0, 25.0), 40.0)


@pytest.mark.parametrize(
    ("share", "value"), [(0.2, 0.5), (0.4, 1.0), (0.6, 1.5), (0.8, 2.0), (0.95, 2.0), (0.0, 0.0)]
)
def test_quantile(share: float, value: float) -> None:
    assert SAMPLES.quantile(share) == pytest.approx(value)


@pytest.mark.parametrize(
    ("limit", "share"), [(0.5, 0.2), (1.0, 0.4), (1.5, 0.6), (2.0, 0.8), (100.0, 0.8), (0.0, 0.0)]
)
def test_share_within(limit: float, share: float) -> None:
    assert SAMPLES.share_within(limit) == pytest.approx(share)


def test_mean() -> None:
    assert SAMPLES.mean == 1.6


@pytest.mark.parametrize("samples", [NONE, Samples((1.0, math.inf), (0.0, 0.0), 0.0)])
def test_no_samples_have_no_figures(samples: Samples) -> None:
    assert math.isnan(samples.mean)
    assert math.isnan(samples.quantile(0.5))
    assert math.isnan(samples.share_within(1.0))


def test_samples_of_like_engines_are_added() -> None:
    both = merged([SAMPLES, SAMPLES])

    assert (list(both.counts), both.total) == ([20.0, 40.0, 50.0], 80.0)


def test_engines_with_other_buckets_are_left_out() -> None:
    other = Samples((5.0, math.inf), (1.0, 1.0), 1.0)

    assert merged([other, SAMPLES]) == SAMPLES


def test_nothing_merged_is_nothing() -> None:
    assert merged([NONE]) == NONE
