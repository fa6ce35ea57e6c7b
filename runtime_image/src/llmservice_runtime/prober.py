"""Looks at the engine from outside, again and again: health, load, weights read."""

from __future__ import annotations

import os
import threading
from typing import Callable

from llmservice_runtime.clock import Clock
from llmservice_runtime.engine_http import EngineClient, Load
from llmservice_runtime.process import storage_read_bytes
from llmservice_runtime.state import DRAINING, STARTING, EngineState

_STARTING_SECONDS = 0.1
_SERVING_SOON_SECONDS = 0.02  # the log said that the port opens: be there
_SERVING_SECONDS = 1.0
_WEIGHTS_SECONDS = 1.0
_LOAD_MAX_SECONDS = 10.0


class Prober(threading.Thread):
    """Reads the pages of the engine and gives each reading to the main loop by `on_health` and `on_load`."""

    def __init__(
        self,
        client: EngineClient,
        state: EngineState,
        clock: Clock,
        *,
        hang_seconds: float,
        on_health: Callable[[float, "int | None"], None],
        on_load: Callable[[float, Load], None],
    ) -> None:
        super().__init__(daemon=True, name="prober")
        self._client, self._state, self._clock = client, state, clock
        # A hang is seen with an error of a tenth of its limit; reading the page more often costs and tells
        # no more.
        self._load_seconds = min(_LOAD_MAX_SECONDS, max(_SERVING_SECONDS, hang_seconds / 10))
        self._on_health, self._on_load = on_health, on_load
        self._look_now = threading.Event()
        self._stopped = False
        self._next_weights = 0.0
        self._last_load = float("-inf")

    def look_now(self) -> None:
        """Read again at once."""
        self._look_now.set()

    def stop(self) -> None:
        self._stopped = True
        self._look_now.set()

    def run(self) -> None:
        while not self._stopped:
            self._look_now.clear()
            self._look()
            self._look_now.wait(self._interval())

    def _look(self) -> None:
        self._state.ask(self._clock.monotonic())
        code = self._client.health()
        now = self._clock.monotonic()
        self._on_health(now, code)
        phase = self._state.phase
        if phase == STARTING:
            if now >= self._next_weights and self._state.step in {"import", "load"}:
                self._next_weights = now + _WEIGHTS_SECONDS
                self._state.sample_weights(storage_read_bytes(os.getpid()))
        elif now - self._last_load >= self._load_period():
            self._last_load = now
            self._state.ask(now)
            load = self._client.load()
            self._on_load(self._clock.monotonic(), load)

    def _load_period(self) -> float:
        # Asked anew each time: a drain that begins during a reading must not wait for the next slow one.
        return 0.0 if self._state.phase == DRAINING else self._load_seconds

    def _interval(self) -> float:
        if self._state.phase != STARTING:
            return _SERVING_SECONDS
        return _SERVING_SOON_SECONDS if self._state.serving_soon else _STARTING_SECONDS
