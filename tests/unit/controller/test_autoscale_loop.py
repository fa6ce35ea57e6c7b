"""The scaling loop: what it asks, when, and what follows for replicas. Fake time, pages of fake engines."""

import json
from dataclasses import replace

import pytest

from fakes.clock import FakeClock
from fakes.scaling_rig import KEY, PER_REPLICA, Rig, ready_pod, subject
from llmservice_operator.api.conditions import ConditionType, Reason
from llmservice_operator.autoscaling.decision import Objectives
from llmservice_operator.controller.autoscale_loop import LoopTimes
from llmservice_operator.controller.autoscale_subject import Bounds, EnginePod, Role
from llmservice_operator.controller.verdict import Verdict

QUIET = 0.5 * PER_REPLICA
"""What one replica takes with room."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def told(rig: Rig, kind: ConditionType) -> Verdict:
    """What the loop says of this condition."""
    assert rig.outcome is not None
    return rig.outcome.verdicts[kind]


async def test_load_beyond_what_one_replica_takes_brings_another(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=2.5 * PER_REPLICA)

    await rig.run(60)

    assert rig.replicas >= 3


async def test_replicas_go_once_the_load_has_been_low_for_long_enough(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)

    await rig.run(900)

    assert rig.wanted[-1] == 1
    assert rig.wanted == sorted(rig.wanted, reverse=True)


async def test_engines_that_do_not_answer_keep_every_replica(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)
    rig.engines.down |= {f"10.0.0.{number}" for number in range(1, 5)}

    await rig.run(1200)

    assert rig.wanted == []
    verdict = told(rig, ConditionType.METRICS_AVAILABLE)
    assert (verdict.status, verdict.reason) == ("False", Reason.METRICS_MISSING)
    assert "chat-10.0.0.1" in verdict.message


async def test_one_engine_of_four_that_does_not_answer_keeps_every_replica(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)
    rig.engines.down.add("10.0.0.3")

    await rig.run(1200)

    assert rig.wanted == []


async def test_numbers_that_are_none_keep_every_replica(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)
    for totals in rig.engines.totals.values():
        totals.overrides = {"vllm:num_requests_running": "NaN"}

    await rig.run(1200)

    assert rig.wanted == []
    assert told(rig, ConditionType.METRICS_AVAILABLE).reason == Reason.METRICS_INVALID


async def test_pages_that_stand_still_keep_every_replica(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)
    await rig.run(20)
    rig.engines.is_frozen = True

    await rig.run(1200)

    assert rig.wanted == []
    assert told(rig, ConditionType.METRICS_AVAILABLE).reason == Reason.METRICS_STALE


async def test_a_restart_takes_no_replica_until_it_has_watched_for_the_whole_window(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=4, rate=QUIET)
    await rig.run(110)
    rig.begin()

    await rig.run(110)

    assert rig.wanted == []


async def test_what_was_learnt_outlives_a_restart(clock: FakeClock) -> None:
    memory = json.dumps(
        {
            "v": 1,
            "at": clock.now() - 30,
            "watchedSince": 1.0,
            "correction": 0.6,
            "starts": [200.0, 210.0, 205.0],
        }
    )
    rig = Rig(clock, replicas=2, rate=QUIET, memory=memory)

    await rig.run(15)

    assert rig.outcome is not None
    assert rig.outcome.decision is not None
    assert rig.outcome.decision.correction == pytest.approx(0.6, abs=0.01)
    assert rig.outcome.start_seconds == pytest.approx(205.0)


async def test_memory_that_can_not_be_read_counts_as_none(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=QUIET, memory='{"v": 1, "starts": "many", ')

    await rig.run(15)

    assert rig.outcome is not None
    assert rig.outcome.start_seconds == 60.0


async def test_a_policy_that_is_not_there_holds_the_replicas_and_is_named(clock: FakeClock) -> None:
    rig = Rig(
        clock, replicas=1, rate=4 * PER_REPLICA, bounds=Bounds(min_replicas=1, max_replicas=8, policy="swift")
    )

    await rig.run(60)

    assert rig.wanted == []
    verdict = told(rig, ConditionType.SCALING_ACTIVE)
    assert (verdict.status, verdict.reason) == ("False", Reason.POLICY_NOT_FOUND)
    assert "swift" in verdict.message
    assert "balanced" in verdict.message


async def test_a_policy_of_the_cluster_is_used_from_the_next_decision_on(clock: FakeClock) -> None:
    rig = Rig(
        clock, replicas=1, rate=4 * PER_REPLICA, bounds=Bounds(min_replicas=1, max_replicas=8, policy="swift")
    )
    await rig.run(15)
    rig.store.put(
        "ScalingPolicy",
        {"metadata": {"name": "swift", "uid": "u", "resourceVersion": "7"}, "spec": {"scaleOutStep": 1}},
    )

    await rig.run(15)

    assert rig.wanted
    assert told(rig, ConditionType.SCALING_ACTIVE).status == "True"


async def test_a_policy_that_can_not_be_meant_holds_the_replicas(clock: FakeClock) -> None:
    rig = Rig(
        clock, replicas=1, rate=4 * PER_REPLICA, bounds=Bounds(min_replicas=1, max_replicas=8, policy="swift")
    )
    rig.store.put(
        "ScalingPolicy",
        {
            "metadata": {"name": "swift", "uid": "u", "resourceVersion": "7"},
            "spec": {"drainSeconds": 0},
        },
    )

    await rig.run(60)

    assert rig.wanted == []
    verdict = told(rig, ConditionType.SCALING_ACTIVE)
    assert verdict.reason == Reason.POLICY_INVALID
    assert "drainSeconds" in verdict.message


async def test_what_another_manager_sets_is_left_alone_and_the_manager_is_named(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=2, rate=6 * PER_REPLICA, other_writer="kube-controller-manager (scale)")

    await rig.run(60)

    assert rig.outcome is not None
    assert rig.outcome.desired is None
    verdict = told(rig, ConditionType.SCALING_ACTIVE)
    assert (verdict.status, verdict.reason) == ("False", Reason.REPLICAS_OWNED_BY_OTHER)
    assert "kube-controller-manager (scale)" in verdict.message


async def test_a_pause_is_named_and_changes_nothing(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=2, rate=6 * PER_REPLICA, paused=True)

    await rig.run(60)

    assert rig.wanted == []
    assert told(rig, ConditionType.SCALING_ACTIVE).reason == Reason.PAUSED


async def test_a_change_counts_once_however_long_it_takes_to_be_applied(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=0.0)
    rig.follows = False
    rig.engines.totals["10.0.0.1"].waiting = 400.0
    rig.engines.rate = 1.2 * PER_REPLICA

    await rig.run(60)

    (scaler,) = rig.loop.scalers()
    assert sum(scaler.decisions.values()) <= 2


async def test_a_service_with_objectives_alone_is_measured_and_not_scaled(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=2, rate=QUIET, bounds=None)

    await rig.run(120)

    assert rig.outcome is not None
    assert rig.outcome.desired is None
    assert told(rig, ConditionType.SLO_MET).reason == Reason.OBJECTIVES_MET
    assert ConditionType.SCALING_ACTIVE not in rig.outcome.verdicts


async def test_an_objective_that_is_missed_is_told_with_both_numbers(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=2, rate=QUIET, objectives=Objectives(ttft_p95_seconds=0.05), bounds=None)

    await rig.run(180)

    verdict = told(rig, ConditionType.SLO_MET)
    assert verdict.reason == Reason.OBJECTIVES_MISSED
    assert "of 50 ms" in verdict.message


async def test_at_the_maximum_it_is_said_how_many_would_be_needed(clock: FakeClock) -> None:
    rig = Rig(
        clock,
        replicas=1,
        rate=6 * PER_REPLICA,
        bounds=Bounds(min_replicas=1, max_replicas=2, policy="balanced"),
    )

    await rig.run(90)

    assert rig.replicas == 2
    verdict = told(rig, ConditionType.SCALING_ACTIVE)
    assert (verdict.status, verdict.reason) == ("True", Reason.AT_MAXIMUM)
    assert "maxReplicas is 2" in verdict.message


async def test_pods_on_their_way_out_are_asked_too_and_those_that_start_are_not(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=QUIET)
    rig.follows = False
    pods = (
        ready_pod("a", "10.0.0.1", clock.now() - 600),
        replace(ready_pod("b", "10.0.0.2", 0.0), role=Role.LEAVING),
        replace(ready_pod("c", "10.0.0.3", 0.0), role=Role.STARTING),
    )
    for host in ("10.0.0.2", "10.0.0.3"):
        rig.engines.add(host)
    rig.board.observe(KEY, subject(pods))

    await rig.run(10)

    assert set(rig.engines.asked) == {"10.0.0.1:8000", "10.0.0.2:8000"}


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.internal", "0.0.0.0", "224.0.0.1", "fe80::1"])
async def test_what_is_no_address_of_a_pod_is_not_asked(clock: FakeClock, host: str) -> None:
    rig = Rig(clock, replicas=1)
    rig.board.observe(KEY, subject((ready_pod("a", host, clock.now() - 600),)))

    await rig.run(60)

    assert rig.engines.asked == []
    assert host in told(rig, ConditionType.METRICS_AVAILABLE).message


async def test_a_service_without_requests_is_asked_half_as_often(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=0.0)
    await rig.run(60)
    rig.engines.asked.clear()

    await rig.run(120)

    assert len(rig.engines.asked) == 120 / LoopTimes().idle_seconds


async def test_a_service_that_is_gone_is_not_asked_any_more(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=QUIET)
    await rig.run(20)
    rig.board.observe(KEY, None)
    await clock.advance(1.0)
    rig.engines.asked.clear()

    await rig.run(60)

    assert rig.engines.asked == []
    assert rig.outcome is None


async def test_steady_load_is_worth_a_reconcile_at_most_once_a_minute(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=2, rate=PER_REPLICA)
    await rig.run(200)
    rig.enqueued.clear()

    await rig.run(600)

    assert len(rig.enqueued) <= 3


async def test_starts_that_are_seen_become_the_start_time(clock: FakeClock) -> None:
    rig = Rig(clock, replicas=1, rate=QUIET)
    rig.follows = False
    serving = ready_pod("a", "10.0.0.1", clock.now() - 600)
    begun = clock.now()
    rig.board.observe(KEY, subject((serving, starting("b", begun))))
    await rig.run(240)
    rig.engines.add("10.0.0.2")
    joined = replace(ready_pod("b", "10.0.0.2", clock.now()), created_at=begun)
    rig.board.observe(KEY, subject((serving, joined)))

    await rig.run(10)

    assert rig.outcome is not None
    assert rig.outcome.start_seconds == pytest.approx(240.0, abs=2.0)
    assert json.loads(rig.outcome.memory)["starts"] == [pytest.approx(240.0, abs=2.0)]


def starting(name: str, created_at: float) -> EnginePod:
    """A pod whose engine starts."""
    return EnginePod(name=name, role=Role.STARTING, host="", incarnation=f"{name}/0", created_at=created_at)
