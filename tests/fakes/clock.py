"""A clock that stands still until it is told to go on."""

import asyncio
import heapq
import itertools


class FakeClock:
    """`advance` lets time pass and wakes sleepers in order; nothing really waits."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + max(0.0, seconds), next(self._numbers), woken))
        await woken

    async def settle(self) -> None:
        """Let every task run until all wait for something."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass, stopping at each sleeper's time."""
        end = self._monotonic + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self._pass(at - self._monotonic)
            woken.set_result(None)
            await self.settle()
        self._pass(end - self._monotonic)
        await self.settle()

    def _pass(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
        self._monotonic += max(0.0, seconds)
