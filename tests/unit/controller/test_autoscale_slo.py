"""Requests within the objectives, counted over restarts and scale-ins."""

import pytest

from fakes.engine_page import EngineTotals, page
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.controller.autoscale_slo import TPOT, TTFT, SloCounter
from llmservice_operator.engines.metrics_page import MetricsPage, parse_page

GOAL = Objectives(ttft_p95_seconds=1.0)


def told(finished: float, ttft_seconds: float = 0.2) -> MetricsPage:
    return parse_page(page(EngineTotals(finished=finished, ttft_seconds=ttft_seconds)).encode(), (0, 26, 0))


def test_what_was_there_at_the_first_look_is_not_counted() -> None:
    counter = SloCounter()

    counter.record("a", "a/0", told(100), GOAL)

    assert counter.counts[TTFT].requests == 0


def test_requests_between_two_looks_count_as_met_within_the_objective() -> None:
    counter = SloCounter()
    counter.record("a", "a/0", told(100), GOAL)

    counter.record("a", "a/0", told(130), GOAL)

    assert (counter.counts[TTFT].requests, counter.counts[TTFT].met) == (30, 30)


def test_requests_beyond_the_objective_count_and_are_not_met() -> None:
    counter = SloCounter()
    counter.record("a", "a/0", told(0, 2.0), GOAL)

    counter.record("a", "a/0", told(10, 2.0), GOAL)

    assert (counter.counts[TTFT].requests, counter.counts[TTFT].met) == (10, 0)


@pytest.mark.parametrize(("ttft_seconds", "least", "most"), [(0.9, 0, 10), (0.6, 90, 100)])
def test_an_objective_within_a_bucket_counts_by_the_mean(ttft_seconds: float, least: int, most: int) -> None:
    """A hundred requests in the bucket from 0.5 to 0.75 or 0.75 to 1 s, an objective that is not its bound."""
    counter = SloCounter()
    goal = Objectives(ttft_p95_seconds=0.7 if ttft_seconds < 0.75 else 0.8)
    counter.record("a", "a/0", told(0, ttft_seconds), goal)

    counter.record("a", "a/0", told(100, ttft_seconds), goal)

    assert least <= counter.counts[TTFT].met <= most


def test_an_engine_that_began_anew_counts_from_nothing() -> None:
    counter = SloCounter()
    counter.record("a", "a/0", told(100), GOAL)

    counter.record("a", "a/1", told(7), GOAL)

    assert counter.counts[TTFT].requests == 7


def test_a_counter_that_fell_takes_nothing_away() -> None:
    counter = SloCounter()
    counter.record("a", "a/0", told(100), GOAL)
    counter.record("a", "a/0", told(130), GOAL)

    counter.record("a", "a/0", told(3), GOAL)

    assert counter.counts[TTFT].requests == 33


def test_a_replica_that_goes_leaves_its_requests_counted() -> None:
    counter = SloCounter()
    for pod in ("a", "b"):
        counter.record(pod, f"{pod}/0", told(0), GOAL)
        counter.record(pod, f"{pod}/0", told(10), GOAL)

    counter.forget(frozenset({"a"}))

    assert counter.counts[TTFT].requests == 20


def test_what_has_no_objective_is_not_counted() -> None:
    counter = SloCounter()
    counter.record("a", "a/0", told(0), GOAL)

    counter.record("a", "a/0", told(10), GOAL)

    assert counter.counts[TPOT].requests == 0
