"""The Lease, with a clock that stands still and an API server in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.kube import FakeKube
from llmservice_operator.clients.kube import KubeUnavailableError, NotLeaderError
from llmservice_operator.controller.leader import LeaderElector, LeaseLostError

Make = Callable[..., LeaderElector]


class Scene:
    """Some electors on one API server, and the tasks that run them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube()
        self.tasks: list[asyncio.Task[Any]] = []

    def elector(self, identity: str) -> LeaderElector:
        return LeaderElector(
            kube=self.kube,
            clock=self.clock,
            random=lambda: 0.0,
            namespace="sys",
            name="lease",
            identity=identity,
        )

    def start(self, coroutine: Any) -> "asyncio.Task[Any]":
        self.tasks.append(asyncio.create_task(coroutine))
        return self.tasks[-1]

    async def lead(self, identity: str) -> tuple[LeaderElector, "asyncio.Task[Any]"]:
        """An elector that holds the Lease, and the task that keeps it."""
        elector = self.elector(identity)
        await elector.acquire()
        return elector, self.start(elector.keep())

    async def spec(self) -> dict[str, Any]:
        lease = await self.kube.get("Lease", "sys", "lease")
        assert lease is not None
        spec: dict[str, Any] = lease["spec"]
        return spec

    def fail(self, verb: str, times: int) -> None:
        error = KubeUnavailableError(0, "Unreachable", "away")
        self.kube.failures[verb, "Lease"] = [error] * times


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for task in scene.tasks:
        task.cancel()
    await asyncio.gather(*scene.tasks, return_exceptions=True)


async def test_the_first_one_leads_and_may_write(scene: Scene) -> None:
    elector, _ = await scene.lead("a")

    elector.permit_write()

    assert (await scene.spec())["holderIdentity"] == "a"


async def test_before_the_lease_is_ours_nothing_may_be_written(scene: Scene) -> None:
    with pytest.raises(NotLeaderError, match="a does not hold the Lease lease"):
        scene.elector("a").permit_write()


async def test_a_second_one_stands_by_while_the_first_renews(scene: Scene) -> None:
    await scene.lead("a")
    waiting = scene.start(scene.elector("b").acquire())

    await scene.clock.advance(120)

    assert not waiting.done()


async def test_renewals_are_at_most_twelve_a_minute(scene: Scene) -> None:
    await scene.lead("a")
    scene.kube.requests.clear()

    await scene.clock.advance(600)

    assert 0 < scene.kube.requests["update", "Lease"] <= 120


async def test_a_standby_writes_nothing(scene: Scene) -> None:
    leader, keep = await scene.lead("a")
    keep.cancel()
    scene.start(scene.elector("b").acquire())
    scene.kube.requests.clear()

    await scene.clock.advance(14)

    assert {verb for verb, _ in scene.kube.requests} == {"get"}
    assert not leader.is_leader


async def test_the_standby_takes_over_when_the_leader_is_dead_for_the_leases_length(scene: Scene) -> None:
    _, keep = await scene.lead("a")
    waiting = scene.start(scene.elector("b").acquire())
    await scene.clock.advance(6)
    keep.cancel()

    await scene.clock.advance(14)
    before = waiting.done()
    await scene.clock.advance(6)

    assert (before, waiting.done(), (await scene.spec())["holderIdentity"]) == (False, True, "b")


async def test_expiry_is_judged_by_our_own_clock_and_not_by_the_records_time(scene: Scene) -> None:
    leader = scene.elector("a")
    await leader.acquire()
    lease = await scene.kube.get("Lease", "sys", "lease")
    assert lease is not None
    lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    await scene.kube.replace(lease)
    waiting = scene.start(scene.elector("b").acquire())

    await scene.clock.advance(10)

    assert not waiting.done()


async def test_a_released_lease_is_taken_at_the_next_look(scene: Scene) -> None:
    leader, keep = await scene.lead("a")
    waiting = scene.start(scene.elector("b").acquire())
    await scene.clock.advance(1)
    keep.cancel()
    await leader.release()

    await scene.clock.advance(2.5)

    assert waiting.done()


async def test_a_process_takes_the_lease_of_its_own_identity_over_at_once(scene: Scene) -> None:
    await scene.elector("pod-uid").acquire()
    restarted = scene.elector("pod-uid")

    await asyncio.wait_for(restarted.acquire(), 1)

    assert (await scene.spec())["leaseTransitions"] == 0


async def test_transitions_are_counted(scene: Scene) -> None:
    first, keep = await scene.lead("a")
    keep.cancel()
    await first.release()

    await scene.elector("b").acquire()

    assert (await scene.spec())["leaseTransitions"] == 1


async def test_nothing_may_be_written_once_the_renew_deadline_has_passed(scene: Scene) -> None:
    elector, keep = await scene.lead("a")
    keep.cancel()

    await scene.clock.advance(10)
    at_deadline = elector.is_leader
    await scene.clock.advance(0.001)

    assert (at_deadline, elector.is_leader) == (True, False)


async def test_a_short_absence_of_the_api_server_costs_nothing(scene: Scene) -> None:
    elector, keep = await scene.lead("a")
    scene.fail("update", 3)

    await scene.clock.advance(60)

    assert (keep.done(), elector.is_leader) == (False, True)


async def test_a_lease_that_cannot_be_renewed_in_time_is_lost_for_good(scene: Scene) -> None:
    elector, keep = await scene.lead("a")
    scene.fail("update", 100)

    await scene.clock.advance(12)

    assert isinstance(keep.exception(), LeaseLostError)
    assert not elector.is_leader


async def test_a_lease_that_somebody_else_took_is_lost_at_once(scene: Scene) -> None:
    elector, keep = await scene.lead("a")
    lease = await scene.kube.get("Lease", "sys", "lease")
    assert lease is not None
    lease["spec"]["holderIdentity"] = "b"
    await scene.kube.replace(lease)

    await scene.clock.advance(6)

    assert isinstance(keep.exception(), LeaseLostError)
    assert "held by b" in str(keep.exception())
    assert not elector.is_leader


async def test_a_touched_record_that_is_still_ours_is_renewed(scene: Scene) -> None:
    elector, keep = await scene.lead("a")
    lease = await scene.kube.get("Lease", "sys", "lease")
    assert lease is not None
    lease["metadata"]["labels"] = {"touched": "yes"}
    await scene.kube.replace(lease)

    await scene.clock.advance(30)

    assert (keep.done(), elector.is_leader) == (False, True)


async def test_the_api_server_may_be_away_when_we_start(scene: Scene) -> None:
    scene.fail("get", 5)
    waiting = scene.start(scene.elector("a").acquire())

    await scene.clock.advance(15)

    assert waiting.done()


async def test_whether_the_lease_could_be_read_at_all_is_told(scene: Scene) -> None:
    await scene.elector("leader").acquire()
    scene.fail("get", 1)
    elector = scene.elector("a")
    scene.start(elector.acquire())

    await scene.clock.settle()
    blind = elector.has_looked
    await scene.clock.advance(3)

    assert (blind, elector.has_looked, elector.is_leader) == (False, True, False)


async def test_two_that_start_together_never_lead_together(scene: Scene) -> None:
    electors = [scene.elector(name) for name in "abcd"]
    for elector in electors:
        scene.start(elector.acquire())

    await scene.clock.advance(5)

    assert sum(elector.is_leader for elector in electors) == 1
