"""Quantiles of bucketed samples; expected values are worked by hand."""

import math
from statistics import NormalDist

import pytest

from llmservice_operator.autoscaling.histograms import NONE, Samples, merged

# 10 samples up to 1, 10 more up to 2, 5 more above. Their sum can't be so low: they are spread evenly.
SAMPLES = Samples((1.0, 2.0, math.inf), (10.0, 20.0, 25.0), 5.0)


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
    assert Samples((1.0, 2.0, math.inf), (10.0, 20.0, 25.0), 40.0).mean == 1.6


@pytest.mark.parametrize(("total", "mean"), [(-5.0, 0.5), (1e15, 1.5)])
def test_a_sum_that_cannot_be_of_these_counts_is_the_nearest_that_can(total: float, mean: float) -> None:
    """Ten samples from 0 to 1 and ten from 1 to 2 have a mean from 0.5 to 1.5."""
    assert Samples((1.0, 2.0, math.inf), (10.0, 20.0, 20.0), total).mean == mean


@pytest.mark.parametrize("samples", [NONE, Samples((1.0, math.inf), (0.0, 0.0), 0.0)])
def test_no_samples_have_no_figures(samples: Samples) -> None:
    assert math.isnan(samples.mean)
    assert math.isnan(samples.quantile(0.5))
    assert math.isnan(samples.share_within(1.0))


def test_samples_of_like_engines_are_added() -> None:
    both = merged([SAMPLES, SAMPLES])

    assert (list(both.counts), both.total) == ([20.0, 40.0, 50.0], 10.0)


def test_engines_with_other_buckets_are_left_out() -> None:
    other = Samples((5.0, math.inf), (1.0, 1.0), 1.0)

    assert merged([other, SAMPLES]) == SAMPLES


def test_nothing_merged_is_nothing() -> None:
    assert merged([NONE]) == NONE


# A log-normal of median 20 and p95 30, cut at bounds as vLLM has them: its deviation is ln(1.5) / 1.6449 = 0.2465.
MIDDLE, DEVIATION = math.log(20.0), math.log(1.5) / NormalDist().inv_cdf(0.95)
BOUNDS = (10.0, 25.0, 50.0, 75.0, math.inf)


def drawn(count: float) -> Samples:
    normal = NormalDist(MIDDLE, DEVIATION)
    counts = [count * normal.cdf(math.log(bound)) for bound in BOUNDS[:-1]]
    return Samples(BOUNDS, (*counts, count), count * math.exp(MIDDLE + DEVIATION**2 / 2))


@pytest.mark.parametrize(("share", "value"), [(0.5, 20.0), (0.95, 30.0)])
def test_the_mean_tells_where_in_a_wide_bucket_a_quantile_is(share: float, value: float) -> None:
    assert drawn(2000.0).quantile(share) == pytest.approx(value, rel=0.03)


def test_the_mean_tells_how_many_are_within_a_limit_inside_of_a_bucket() -> None:
    assert drawn(2000.0).share_within(30.0) == pytest.approx(0.95, abs=0.01)


def test_few_samples_are_taken_to_be_wider_than_many() -> None:
    assert drawn(20.0).quantile(0.95) > drawn(2000.0).quantile(0.95)


def test_samples_of_one_bucket_lie_around_their_mean() -> None:
    """400 samples of 28 ms: all lie between 25 and 50, and if one of them were as far as 32 some would be below 25."""
    assert 28.0 < Samples(BOUNDS, (0.0, 0.0, 400.0, 400.0, 400.0), 28.0 * 400).quantile(0.95) < 32.0


@pytest.mark.parametrize("count", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("mean", [10.0001, 17.0, 24.9999])
def test_a_quantile_stays_in_its_bucket(count: float, mean: float) -> None:
    samples = Samples(BOUNDS, (0.0, count, count, count, count), mean * count)
    assert all(10.0 <= samples.quantile(share) <= 25.0 for share in (0.01, 0.5, 0.95, 1.0))
