"""The time per token of long answers, told from histograms that mix them with short ones."""

import math
import random

import pytest

from llmservice_operator.autoscaling.histograms import Samples
from llmservice_operator.autoscaling.short_answers import LongAnswers, narrower_of

LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, math.inf)
SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, math.inf)


def counted(values: list[float], bounds: tuple[float, ...]) -> list[float]:
    return [float(sum(value <= bound for value in values)) for bound in bounds]


def test_answers_that_are_all_long_are_taken_as_they_are() -> None:
    assert narrower_of(LENGTHS, counted([120.0] * 50, LENGTHS)) == 1.0


def test_without_a_long_answer_nothing_is_narrowed() -> None:
    assert narrower_of(LENGTHS, counted([8.0] * 50, LENGTHS)) == 1.0


def test_without_lengths_nothing_is_narrowed() -> None:
    assert narrower_of((), ()) == 1.0


def test_answers_of_one_token_have_no_gap_and_count_for_nothing() -> None:
    mixed = counted([1.0] * 900 + [120.0] * 100, LENGTHS)

    assert narrower_of(LENGTHS, mixed) == 1.0


def code_completion(seed: int) -> tuple[list[float], list[float]]:
    """Lengths and times per token.

    Log-normal lengths (median 13, p95 90), gaps of 15 ms of which one in 25 has a prompt in it, and a batch that
    differs from answer to answer.
    """
    drawn = random.Random(seed)
    lengths, times = [], []
    for _ in range(4_000):
        length = max(2, round(13 * math.exp(1.18 * drawn.gauss(0.0, 1.0))))
        busy = math.exp(0.25 * drawn.gauss(0.0, 1.0))
        gaps = [0.015 * busy + (0.2 * busy if drawn.random() < 0.04 else 0.0) for _ in range(length - 1)]
        lengths.append(float(length))
        times.append(sum(gaps) / len(gaps))
    return lengths, times


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_p95_of_long_answers_is_found_among_many_short_ones(seed: int) -> None:
    """That of all answers is a quarter higher and more."""
    lengths, times = code_completion(seed)
    long = sorted(time for length, time in zip(lengths, times, strict=True) if length >= 32)
    true = long[int(0.95 * len(long))]
    tokens = sum(length - 1 for length in lengths)
    mean_gap = sum((length - 1) * time for length, time in zip(lengths, times, strict=True)) / tokens
    every = Samples(SECONDS, counted(times, SECONDS), sum(times))

    told = LongAnswers(every, mean_gap, narrower_of(LENGTHS, counted(lengths, LENGTHS)))

    assert told.quantile(0.95) == pytest.approx(true, rel=0.2)
    assert every.quantile(0.95) > 1.25 * true


def test_the_share_within_a_limit_is_the_quantiles_inverse() -> None:
    lengths, times = code_completion(4)
    told = LongAnswers(
        Samples(SECONDS, counted(times, SECONDS), sum(times)),
        0.023,
        narrower_of(LENGTHS, counted(lengths, LENGTHS)),
    )

    assert told.share_within(told.quantile(0.9)) == pytest.approx(0.9, abs=0.01)


def test_gaps_of_no_time_leave_every_answer_within_its_objective_that_a_bucket_has() -> None:
    """An engine whose sum of gaps is next to nothing: 60 s over 1e-300 s to the power of 2 is no number."""
    told = LongAnswers(Samples((1.0, math.inf), (3.0, 4.0), 3.0), center_seconds=1e-300, narrower=0.5)

    assert told.share_within(60.0) == 0.75
