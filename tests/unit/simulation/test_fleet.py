"""Pods' lives, costs, faults: what a run tells of a fleet under simple rules."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.fleet import FleetSettings, Run, simulate
from llmservice_operator.simulation.loads import Wait, make_load
from llmservice_operator.simulation.observation import Observation, Scrape
from llmservice_operator.simulation.peers.hpa import Static
from llmservice_operator.simulation.score import Objective, latencies, score
from unit.simulation.machines import even_load, tables

STEADY = FleetSettings(start_seconds=(("pull", 10.0), ("load", 20.0)), start_jitter=0.0, tail_seconds=30.0)
OBJECTIVE = Objective(ttft_seconds=1.0, tpot_seconds=0.05)


@dataclass(repr=False)
class Scripted:
    """Sets replicas by time, and keeps what it saw at each step."""

    script: Callable[[float], int]
    name: str = "scripted"
    period_seconds: float = 5.0
    seen: list[Observation] = field(default_factory=list)
    latest: list[Scrape] = field(default_factory=list)

    def step(self, seen: Observation) -> int:
        self.seen.append(seen)
        latest = seen.history.latest()
        assert latest is not None
        self.latest.append(latest)
        return self.script(seen.metrics_seconds)


def play(
    script: Callable[[float], int], settings: FleetSettings = STEADY, *, rate: float = 2.0
) -> tuple[Run, Scripted]:
    policy = Scripted(script)
    return simulate(tables(), even_load(rate, 120.0), policy, settings), policy


def test_a_pod_is_ready_after_the_phases_of_its_start() -> None:
    _, policy = play(lambda _: 2)

    ready = [(each.now_seconds, each.ready) for each in policy.seen]
    assert ready[:8] == [(5.0 * step, 1 if step < 7 else 2) for step in range(1, 9)]


def test_starting_and_draining_pods_cost_too() -> None:
    """Wanted from 5 s on, ready at 35 s, given up at 60 s with nothing to do."""
    run, _ = play(lambda now: 2 if now < 60.0 else 1)

    assert run.replica_seconds - run.end_seconds == pytest.approx(55.0, abs=2.0)


def test_mean_replicas_are_of_the_scale_target() -> None:
    run, _ = play(lambda now: 3 if now < 65.0 else 1)

    mean = score(run, OBJECTIVE).mean_replicas
    assert mean * run.end_seconds == pytest.approx(run.end_seconds + 2 * 60.0, abs=1.0)


def test_a_pod_drains_before_it_goes() -> None:
    settings = FleetSettings(initial_replicas=2, start_jitter=0.0)
    run = simulate(
        tables(), even_load(8.0, 60.0, answer=800), Scripted(lambda now: 2 if now < 30.0 else 1), settings
    )

    assert score(run, OBJECTIVE).aborted == 0


def test_a_drain_that_takes_too_long_aborts() -> None:
    settings = FleetSettings(initial_replicas=2, start_jitter=0.0, drain_seconds=1.0)
    run = simulate(
        tables(), even_load(8.0, 60.0, answer=800), Scripted(lambda now: 2 if now < 30.0 else 1), settings
    )

    assert score(run, OBJECTIVE).aborted > 0


def test_jitter_stays_within_its_share() -> None:
    settings = FleetSettings(
        start_seconds=(("start", 100.0),), start_jitter=0.3, max_replicas=8, tail_seconds=300.0
    )
    policy = Scripted(lambda now: 8)
    simulate(tables(), even_load(1.0, 400.0), policy, settings)

    starts = policy.seen[-1].recent_start_seconds
    assert len(set(starts)) == 5
    assert all(70.0 <= each <= 130.0 for each in starts)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (play(lambda now: 1 + int(now / 40.0)) for _ in range(2))

    assert np.array_equal(first[0].requests["end"], second[0].requests["end"])
    assert first[0].replica_seconds == second[0].replica_seconds


def test_a_slow_answer_misses_the_objective() -> None:
    run, _ = play(lambda _: 1)
    ttft, tpot = latencies(run)

    strict = Objective(ttft_seconds=float(np.median(ttft)), tpot_seconds=1.0)
    assert score(run, strict).attainment == pytest.approx(0.5, abs=0.05)
    assert score(run, Objective(ttft_seconds=9.0, tpot_seconds=float(tpot.min()) / 2)).attainment == 0.0


def test_short_answers_are_held_to_the_tpot_only_in_the_share_of_all() -> None:
    short = make_load("short", np.arange(10.0), np.full(10, 100), np.full(10, 31), seconds=10.0)
    told = score(simulate(tables(), short, Static(1), STEADY), Objective(ttft_seconds=9.0, tpot_seconds=1e-6))

    assert (told.attainment, told.attainment_of_all) == (1.0, 0.0)


def test_what_turns_round_within_ten_minutes_is_a_reversal() -> None:
    run, _ = play(lambda now: 2 if 20.0 <= now < 40.0 or now >= 60.0 else 1)

    assert score(run, OBJECTIVE).reversals_per_hour * run.end_seconds / 3600.0 == pytest.approx(2.0)


def test_a_load_that_no_cache_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="can't hold"):
        simulate(tables(kv_cache_tokens=30_000), even_load(1.0, 5.0, prompt=40_000), Static(1), STEADY)


def test_without_ready_pods_requests_are_held_and_then_served() -> None:
    settings = FleetSettings(initial_replicas=0, start_seconds=(("start", 30.0),), start_jitter=0.0)
    policy = Scripted(lambda _: 1)
    run = simulate(tables(), even_load(1.0, 60.0), policy, settings)

    assert policy.seen[4].held_requests == 25
    assert not np.isnan(run.requests["end"]).any()


def test_a_stage_that_waits_begins_two_seconds_after_the_last_answer() -> None:
    """Its generator looks once a second, and needs two more to begin."""
    load = replace(even_load(2.0, 120.0), waits=(Wait(120, 60.0),))
    run = simulate(tables(), load, Static(1), STEADY)

    answered = float(run.requests["end"][:120].max())
    first = float(run.requests["ready"][120] - run.half_request_seconds)
    assert first - load.arrival_seconds[120] + 60.0 == pytest.approx(math.ceil(answered) + 2.0)
    assert not np.isnan(run.requests["end"]).any()


def test_what_waits_for_its_stage_is_not_held_by_the_router() -> None:
    load = replace(even_load(2.0, 120.0, answer=2000), waits=(Wait(120, 60.0),))
    policy = Scripted(lambda _: 1)
    simulate(tables(), load, policy, STEADY)

    assert {seen.held_requests for seen in policy.seen} == {0}


# ── faults ──


def faulty(kind: FaultKind, *, at: float = 30.0, seconds: float = 40.0) -> Scripted:
    settings = FleetSettings(
        initial_replicas=2,
        start_seconds=(("start", 10.0),),
        start_jitter=0.0,
        tail_seconds=0.0,
        faults=(Fault(kind=kind, at_seconds=at, seconds=seconds),),
    )
    _, policy = play(lambda now: 2 if now < at else 4, settings)
    return policy


def latest_during(kind: FaultKind) -> Scrape:
    """The newest scrape at 60 s."""
    return faulty(kind).latest[11]


def test_empty_series_have_no_pods() -> None:
    assert latest_during(FaultKind.EMPTY).pages == ()


def test_nan_is_told_as_nan() -> None:
    assert np.isnan(latest_during(FaultKind.NAN).total("running"))


def test_frozen_values_repeat() -> None:
    counts = [scrape.sums["generated_tokens"] for scrape in faulty(FaultKind.FROZEN).latest[6:13]]

    assert len(set(counts)) == 1


def test_in_a_gap_nothing_is_scraped() -> None:
    assert latest_during(FaultKind.GAP).at_seconds < 30.0


def test_half_of_the_pods_answer() -> None:
    assert len(latest_during(FaultKind.HALF).pages) == 2


def test_a_counter_reset_is_no_negative_rate() -> None:
    counts = [scrape.sums["generated_tokens"] for scrape in faulty(FaultKind.RESET).latest]

    assert counts == sorted(counts)


def test_a_reset_engine_s_page_counts_from_zero() -> None:
    before, after = (faulty(FaultKind.RESET).latest[place].records["finished"].sum() for place in (4, 6))

    assert after < before


def test_a_hung_engine_answers_nobody() -> None:
    fault = Fault(kind=FaultKind.HANG, at_seconds=30.0, seconds=10.0)
    settings = FleetSettings(initial_replicas=2, faults=(fault,), tail_seconds=30.0)
    run, _ = play(lambda _: 2, settings)

    assert score(run, OBJECTIVE).aborted > 0


@pytest.mark.parametrize("kind", [FaultKind.UNSCHEDULABLE, FaultKind.CRASH_LOOP])
def test_a_pod_that_can_t_start_is_not_ready(kind: FaultKind) -> None:
    last = faulty(kind, seconds=200.0).seen[-1]

    assert last.ready == 2
    assert last.unschedulable + last.failing == 2


@pytest.mark.parametrize("kind", [FaultKind.UNSCHEDULABLE, FaultKind.CRASH_LOOP])
def test_a_pod_starts_once_it_can(kind: FaultKind) -> None:
    """The fault ends at 70 s, a start takes 10 s."""
    seen = {each.now_seconds: each for each in faulty(kind).seen}

    assert (seen[65.0].ready, seen[75.0].ready, seen[80.0].ready) == (2, 2, 4)
    assert seen[75.0].starting_since == (70.0, 70.0)
    assert set(seen[80.0].recent_start_seconds) == {10.0}


def test_a_clock_that_jumps_is_the_policy_s_own() -> None:
    seen = faulty(FaultKind.CLOCK_JUMP).seen[11]

    assert seen.now_seconds - seen.metrics_seconds == 3600.0
