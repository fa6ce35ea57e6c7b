"""Doing something for so long and no longer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Give up after so long, quietly: what is left undone is done another time, or the process is about to end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield
