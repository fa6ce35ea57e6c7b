"""A run over time."""

from dataclasses import replace

import numpy as np
import pytest

from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.score import Objective
from llmservice_operator.simulation.timeline import Timeline, timeline
from unit.simulation.machines import even_load, tables

OBJECTIVE = Objective(ttft_seconds=1.0, tpot_seconds=0.05)


def two_minutes(replicas: int = 2) -> Timeline:
    """One replica of two is there from the begin, the other after 30 s; 4 requests a second for 120 s."""
    settings = FleetSettings(
        initial_replicas=1, start_seconds=(("start", 30.0),), start_jitter=0.0, tail_seconds=60.0
    )
    rule = replace(Static(replicas), period_seconds=5.0)
    return timeline(simulate(tables(), even_load(4.0, 120.0), rule, settings), OBJECTIVE, 12)


def test_each_stretch_has_its_rate() -> None:
    assert two_minutes().requests_per_second == pytest.approx(np.full(12, 4.0))


def test_replicas_are_pending_until_they_are_ready() -> None:
    line = two_minutes()

    assert line.pending[:3].tolist() == [1.0, 1.0, 1.0]
    assert line.ready[4:].tolist() == [2.0] * 8
    assert (line.desired == 2.0).all()


def test_nobody_waits_where_nothing_is_missed() -> None:
    line = two_minutes()

    assert line.missed.tolist() == [0.0] * 12
    assert (line.ttft_p95_seconds < 1.0).all()


def test_what_is_aborted_waited_for_ever() -> None:
    settings = FleetSettings(initial_replicas=0, start_seconds=(("start", 1e6),), tail_seconds=0.0)
    line = timeline(simulate(tables(), even_load(4.0, 120.0), Static(0), settings), OBJECTIVE, 3)

    assert line.ttft_p95_seconds.tolist() == [np.inf] * 3
    assert line.missed.tolist() == [1.0] * 3
