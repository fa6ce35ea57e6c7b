"""The workqueue, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest

from fakes.clock import FakeClock
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.workqueue import WorkQueue

A, B, C = Key("ns", "a"), Key("ns", "b"), Key("ns", "c")


class Bench:
    """A queue with workers that run `behave` and note when they ran what."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.started_at = self.clock.monotonic()
        self.queue = WorkQueue(clock=self.clock, random=lambda: 1.0)
        self.runs: list[tuple[Key, float]] = []
        self.behave: Callable[[Key], Awaitable[float | None]] = self._nothing
        self.task: asyncio.Task[None] | None = None

    async def _nothing(self, _: Key) -> float | None:
        return None

    async def reconcile(self, key: Key) -> float | None:
        self.runs.append((key, self.clock.monotonic() - self.started_at))
        return await self.behave(key)

    async def start(self, workers: int = 2) -> None:
        self.task = asyncio.create_task(self.queue.run(self.reconcile, workers))
        await self.clock.settle()

    def times(self, key: Key) -> list[float]:
        return [at for ran, at in self.runs if ran == key]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    if bench.task:
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)


async def test_a_key_added_twice_runs_once(bench: Bench) -> None:
    bench.queue.add(A)
    bench.queue.add(A)

    await bench.start()

    assert bench.times(A) == [0]


async def test_keys_run_in_the_order_in_which_they_came(bench: Bench) -> None:
    for key in (B, A, C):
        bench.queue.add(key)

    await bench.start(workers=1)

    assert [key for key, _ in bench.runs] == [B, A, C]


async def test_a_key_never_runs_twice_at_the_same_time(bench: Bench) -> None:
    running, most = 0, 0

    async def behave(_: Key) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await bench.clock.sleep(1)
        running -= 1

    bench.behave = behave
    await bench.start(workers=4)
    for _ in range(5):
        bench.queue.add(A)
        await bench.clock.advance(0.3)
    await bench.clock.advance(10)

    assert most == 1


async def test_what_comes_while_a_key_runs_makes_it_run_once_more(bench: Bench) -> None:
    async def behave(_: Key) -> None:
        await bench.clock.sleep(1)

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(0.5)
    bench.queue.add(A)
    bench.queue.add(A)
    await bench.clock.advance(10)

    assert bench.times(A) == [0, 1]


async def test_different_keys_run_at_the_same_time(bench: Bench) -> None:
    async def behave(_: Key) -> None:
        await bench.clock.sleep(1)

    bench.behave = behave
    await bench.start(workers=2)
    for key in (A, B, C):
        bench.queue.add(key)
    await bench.clock.advance(5)

    assert bench.runs == [(A, 0), (B, 0), (C, 1)]


async def test_a_returned_number_runs_the_key_again_after_so_many_seconds(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        return 7.0 if len(bench.runs) == 1 else None

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(60)

    assert bench.times(A) == [0, 7]


async def test_a_reconcile_that_asks_for_itself_at_once_runs_twenty_times_a_second_at_most(
    bench: Bench,
) -> None:
    async def at_once(_: Key) -> float | None:
        return 0.0

    bench.behave = at_once
    bench.queue.add(A)
    await bench.start()
    for _ in range(10):
        await bench.clock.advance(0.1)

    assert len(bench.times(A)) <= 21


async def test_the_earlier_of_two_delayed_adds_counts_and_only_once(bench: Bench) -> None:
    await bench.start()
    bench.queue.add_after(A, 30)
    bench.queue.add_after(A, 10)
    bench.queue.add_after(A, 20)
    await bench.clock.advance(100)

    assert bench.times(A) == [10]


async def test_an_add_makes_a_delayed_one_needless(bench: Bench) -> None:
    await bench.start()
    bench.queue.add_after(A, 10)
    await bench.clock.advance(1)
    bench.queue.add(A)
    await bench.clock.advance(100)

    assert bench.times(A) == [1]


async def test_errors_back_off_exponentially_up_to_the_limit(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        raise RuntimeError("no")

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(1200)

    times = bench.times(A)
    waited = [later - earlier for earlier, later in pairwise(times)]
    assert waited == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_jitter_halves_a_back_off_at_most(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        raise RuntimeError("no")

    bench.queue = WorkQueue(clock=bench.clock, random=lambda: 0.0, base_backoff_seconds=4)
    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(16)

    assert bench.times(A) == [0, 4, 8, 16]


async def test_success_ends_the_back_off(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        if len(bench.runs) in (1, 2, 4):
            raise RuntimeError("no")
        return None

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(10)
    bench.queue.add(A)
    await bench.clock.advance(10)

    assert bench.times(A) == [0, 1, 3, 10, 11]


async def test_an_event_brings_a_failed_key_forward_but_not_closer_than_the_first_step(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        raise RuntimeError("no")

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(10)
    bench.queue.add(A)
    await bench.clock.advance(0.5)
    bench.queue.add(A)
    await bench.clock.advance(2)

    assert bench.times(A) == [0, 1, 3, 7, 10, 11]


async def test_a_failing_key_does_not_hold_up_another(bench: Bench) -> None:
    async def behave(key: Key) -> float | None:
        if key == A:
            raise RuntimeError("no")
        return None

    bench.behave = behave
    await bench.start(workers=1)
    bench.queue.add(A)
    bench.queue.add(B)
    await bench.clock.settle()

    assert bench.times(B) == [0]


async def test_a_cancelled_request_inside_a_reconcile_is_an_error_like_others(bench: Bench) -> None:
    async def behave(_: Key) -> float | None:
        if len(bench.runs) == 1:
            raise asyncio.CancelledError
        return None

    bench.behave = behave
    await bench.start()
    bench.queue.add(A)
    await bench.clock.advance(5)

    assert bench.times(A) == [0, 1]


async def test_stop_lets_the_running_end_and_takes_no_more(bench: Bench) -> None:
    ended: list[Key] = []

    async def behave(key: Key) -> None:
        await bench.clock.sleep(3)
        ended.append(key)

    bench.behave = behave
    await bench.start(workers=1)
    bench.queue.add(A)
    bench.queue.add(B)
    await bench.clock.settle()
    bench.queue.stop()
    await bench.clock.advance(10)

    assert bench.task is not None
    assert bench.task.done()
    assert ended == [A]


async def test_idle_workers_end_at_once_when_stopped(bench: Bench) -> None:
    await bench.start(workers=8)

    bench.queue.stop()
    await bench.clock.settle()

    assert bench.task is not None
    assert bench.task.done()


async def test_drained_waits_for_what_waits_and_what_runs(bench: Bench) -> None:
    async def behave(_: Key) -> None:
        await bench.clock.sleep(2)

    bench.behave = behave
    for key in (A, B):
        bench.queue.add(key)
    drained = asyncio.create_task(bench.queue.drained())
    await bench.start(workers=1)

    await bench.clock.advance(3)
    early = drained.done()
    await bench.clock.advance(1)

    assert (early, drained.done()) == (False, True)


async def test_an_idle_queue_is_drained(bench: Bench) -> None:
    await asyncio.wait_for(bench.queue.drained(), 1)


async def test_depth_and_age_tell_of_keys_that_wait_for_a_worker(bench: Bench) -> None:
    async def behave(_: Key) -> None:
        await bench.clock.sleep(100)

    bench.behave = behave
    await bench.start(workers=1)
    for key in (A, B, C):
        bench.queue.add(key)
        await bench.clock.advance(5)

    assert (bench.queue.depth, bench.queue.oldest_age_seconds) == (2, 10)


async def test_a_forgotten_key_does_not_come_back(bench: Bench) -> None:
    await bench.start()
    bench.queue.add_after(A, 10)
    bench.queue.forget(A)
    await bench.clock.advance(60)

    assert bench.times(A) == []
