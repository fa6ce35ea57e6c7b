"""The loop on real engines: what it saw on H200s while it took a service from one replica to two, back and up again.

Replayed (tests/truth/h200/scaling) with room for eight replicas, the rule decides anew on each look, with the pods that
there were then. One replica had kept the objectives at 6.1 requests a second and missed them at 8.3
(tests/truth/h200/ramps).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpu.cases import planned_service
from gpu.recorded import page_of_json, pods_of_json, read_archive
from gpu.scale import subject_of
from llmservice_operator.autoscaling.capacity import Capacity, LengthMix
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.policy import BALANCED
from llmservice_operator.controller.autoscale_capacity import CapacityCase, ReadyCapacity, modelled_capacity
from llmservice_operator.controller.autoscale_outcome import Outcome
from llmservice_operator.controller.autoscale_scrape import Scraped
from llmservice_operator.controller.autoscale_service import Activity, PolicyAnswer, ServiceScaler
from llmservice_operator.controller.autoscale_subject import Bounds

TESTS = Path(__file__).parents[2]
KEPT_REQUESTS_PER_SECOND, MISSED_REQUESTS_PER_SECOND = 6.1, 8.3
RISE_SECONDS, FALL_SECONDS, STEP_SECONDS = 120.0, 390.0, 680.0
"""When the load passes 4.5 requests a second on its way to 9.5, falls to 2.5, and steps to 8.5."""


class RecordedCapacity(ReadyCapacity):
    """The speed model's answers as they were then: a table of them takes a second for each pair of lengths."""

    def __init__(self, case: CapacityCase) -> None:
        super().__init__(case)
        self.grid, self.weights_bytes_per_step = modelled_capacity(case)
        self.requests_per_second = 1.0

    def capacity(self, mix: LengthMix) -> Capacity:
        return Capacity(requests_per_second=self.requests_per_second)


@cache
def archive() -> dict[str, Any]:
    return read_archive(TESTS / "truth" / "h200" / "scaling" / "qwen3-8b.tar.xz")


@cache
def looks() -> tuple[tuple[float, Outcome], ...]:
    """(seconds since the load began, what is found) at each decision of the record."""
    return tuple(_replayed())


def _replayed() -> Iterator[tuple[float, Outcome]]:
    record, pages = archive()["record"], iter(archive()["pages"])
    planned = planned_service(record["service"], TESTS / "data" / "models", "tokenizer", "0.26.0")
    bounds = Bounds(min_replicas=1, max_replicas=8, policy="balanced")
    subject = replace(subject_of(planned, (), 1, ""), bounds=bounds)
    scaler = ServiceScaler(subject, archive()["outcomes"][0]["at"])
    capacity = RecordedCapacity(subject.capacity)
    page = next(pages)
    for row in archive()["outcomes"]:
        subject = replace(subject, pods=pods_of_json(row["pods"]), wanted=row["wanted"])
        hosts = {pod.host: pod for pod in subject.pods}
        scraped = []
        while page is not None and page["at"] <= row["at"]:
            if page["host"] in hosts:
                scraped.append(Scraped(pod=hosts[page["host"]], at=page["at"], page=page_of_json(page)))
            page = next(pages, None)
        capacity.requests_per_second = row["decision"]["capacity_requests_per_second"]
        scaler.take(subject, scraped)
        found = scaler.decide(
            row["at"], capacity=capacity, policy=PolicyAnswer(policy=BALANCED), activity=Activity()
        )
        yield row["at"] - record["began"], found


def decisions(begin: float, end: float) -> list[tuple[float, Decision]]:
    return [(at, found.decision) for at, found in looks() if begin <= at < end and found.decision is not None]


def two_needed(begin: float) -> float:
    """When more than one replica was needed first, whether or not there was another by then."""
    asks = [(at, found.asked) for at, found in decisions(begin, 1e9)]
    return next(
        at for at, asked in asks if max(asked.get(step, 0.0) for step in ("forward", "latency")) > 1.05
    )


def test_a_second_replica_is_ordered_before_one_alone_misses() -> None:
    """The load passes what one replica was seen to keep at 150 s, and what it was seen to miss at 240 s."""
    assert 150.0 <= two_needed(0.0) < 240.0


def test_a_step_of_the_load_is_followed_within_its_window_and_a_decision() -> None:
    """Half a minute of arrivals, and a quarter between two decisions."""
    assert two_needed(STEP_SECONDS) <= STEP_SECONDS + 45.0


def test_no_replica_is_given_up_while_the_load_is_high() -> None:
    assert all(found.desired >= found.current for _, found in decisions(0.0, FALL_SECONDS))


def test_the_second_replica_is_given_up_before_the_load_comes_back() -> None:
    fallen = decisions(FALL_SECONDS, STEP_SECONDS)

    assert any(found.desired < found.current for _, found in fallen)


def test_not_more_are_ordered_than_were_enough() -> None:
    """Two kept the objectives at 9.5 requests a second, and worked off the queue of 47 in 15 s."""
    assert max(found.desired for _, found in decisions(0.0, 1e9)) == 2


def test_the_capacity_as_corrected_is_between_what_was_kept_and_what_was_missed() -> None:
    """All through, within a tenth: what is learnt with little to do must hold at the limit."""
    found = [
        decision.capacity_requests_per_second * decision.correction for _, decision in decisions(60.0, 1e9)
    ]

    assert min(found) >= 0.9 * KEPT_REQUESTS_PER_SECOND
    assert max(found) <= 1.1 * MISSED_REQUESTS_PER_SECOND


@pytest.mark.parametrize(("begin", "end"), [(150.0, FALL_SECONDS), (520.0, STEP_SECONDS)])
def test_what_arrives_is_what_was_sent_while_replicas_come_and_go(begin: float, end: float) -> None:
    sent = [row["at"] for row in archive()["requests"]]
    seen = [
        (at, found.signals.sustained_arrivals_per_second.value) for at, found in looks() if begin <= at < end
    ]
    expected = [sum(at - 120.0 <= each < at for each in sent) / 120.0 for at, _ in seen]

    assert [value for _, value in seen] == pytest.approx(expected, rel=0.1)


def test_starts_are_learnt_as_they_happen() -> None:
    """The middle one of three; pods' times are whole seconds."""
    starts = sorted(event["seconds"] for event in archive()["events"] if event["event"] == "ready")

    assert looks()[-1][1].start_seconds == pytest.approx(starts[1], abs=1.0)
