"""What is known of the engine at this moment: one object, one lock, and a condition to wait on."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Sequence

from llmservice_runtime.classifier import Evidence, Failure, find_evidence, is_error_line
from llmservice_runtime.clock import Clock
from llmservice_runtime.config import Config
from llmservice_runtime.devices import Device
from llmservice_runtime.engine_http import Load
from llmservice_runtime.log_parser import Observation, parse_line, split_prefix
from llmservice_runtime.memory_facts import EngineFacts, fold
from llmservice_runtime.startup import SERVING, StartupTimer, WeightsProgress, WeightsTracker, next_step

STARTING, READY, DRAINING, FAILED = "Starting", "Ready", "Draining", "Failed"
_HTTP_OK = 200
_MAX_EVIDENCE = 64
# An event loop that is busy for a moment answers late; it is not unready by that. One that is gone is, soon enough.
SILENCE_SECONDS = 4.0
# What an engine logged an hour before it died while serving is not why it died.
_EVIDENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Snapshot:
    """Everything the pages show, at one moment. Wall times in seconds since the epoch."""

    phase: str
    facts: EngineFacts
    step: str
    steps: tuple[tuple[str, float], ...]
    weights: WeightsProgress
    started_at: float
    ready_at: float | None
    healthy: bool
    holding: bool
    hung: str | None
    load: Load
    lines: int
    devices: tuple[Device, ...]
    failure: Failure | None


class EngineState:
    """Written by the log pumps, the prober and the main loop; read by the pages. Methods lock themselves."""

    def __init__(self, config: Config, clock: Clock, weights_files_bytes: int | None) -> None:
        """`weights_files_bytes`: counted from the model's files; without it the plan's figure stands in."""
        self._clock = clock
        self._changed = threading.Condition()
        self._facts = EngineFacts(version=config.engine_version)
        self._timer = StartupTimer(clock.monotonic())
        self._weights = WeightsTracker(
            config.weights_bytes if weights_files_bytes is None else weights_files_bytes,
            exact=weights_files_bytes is not None,
        )
        self._phase = STARTING
        self._started_at = clock.wall()
        self._ready_at: float | None = None
        self._was_ready = self._healthy = self._holding = self._serving_soon = False
        self._silent_since: float | None = None
        self._hung: str | None = None
        self._load = Load()
        self._lines = 0
        self._devices: tuple[Device, ...] = ()
        self._failure: Failure | None = None
        self._evidence: deque[tuple[float, Evidence]] = deque(maxlen=_MAX_EVIDENCE)
        self._last_error: tuple[float, str] | None = None

    # --- the log pumps

    def take_line(self, text: str) -> None:
        """One line of the engine's log."""
        line = split_prefix(text)
        observation = None if self._was_ready else parse_line(line)
        with self._changed:
            self._lines += 1
            if observation is not None:
                self._observe(observation)
            evidence = find_evidence(line)
            if evidence is not None:
                self._evidence.append((self._clock.monotonic(), evidence))
            if is_error_line(line):
                self._last_error = (self._clock.monotonic(), line.body.strip())

    def _observe(self, observation: Observation) -> None:
        now = self._clock.monotonic()
        self._facts = fold(self._facts, observation)
        if self._facts.checkpoint_bytes is not None:
            self._weights.total_known(self._facts.checkpoint_bytes)
        sized = self._facts.kv_cache_bytes is not None or self._facts.kv_cache_tokens is not None
        if observation.ended is not None:
            step, seconds = observation.ended
            self._timer.ended(next_step(step, kv_sized=sized), seconds, now)
        if observation.step is not None:
            self._timer.enter(next_step(observation.step, kv_sized=sized), now)
        if self._facts.weights_loaded or self._timer.step not in {"import", "load"}:
            self._weights.finish(now)
        if observation.serving_soon:
            self._serving_soon = True
        self._changed.notify_all()

    # --- the prober

    def sample_weights(self, read_bytes: int) -> None:
        """Bytes read from storage so far by the engine's processes."""
        with self._changed:
            now = self._clock.monotonic()
            if self._timer.step == "load":
                self._weights.begin(now, read_bytes)
                self._weights.sample(now, read_bytes=read_bytes, shard_fraction=self._facts.shard_fraction)

    def ask(self, now: float) -> None:
        """The engine is asked for something at `now`; it counts as silent from then on until it answers."""
        with self._changed:
            if self._silent_since is None:
                self._silent_since = now

    def take_health(self, code: int | None) -> bool:
        """The answer of /health; True when the engine became ready by it.

        No answer (None) is none yet: after `SILENCE_SECONDS` of them the engine is not healthy.
        """
        with self._changed:
            before = self._healthy
            if code is not None:
                self._silent_since = None
                self._healthy = code == _HTTP_OK
            became_ready = self._healthy and self._phase == STARTING
            if became_ready:
                now = self._clock.monotonic()
                self._phase, self._was_ready, self._ready_at = READY, True, self._clock.wall()
                self._weights.finish(now)
                self._timer.enter(SERVING, now)
                self._evidence.clear()
                self._last_error = None
            if before != self._healthy:
                self._changed.notify_all()
            return became_ready

    def take_load(self, load: Load) -> None:
        with self._changed:
            self._load = load
            if load.running is not None:
                self._silent_since = None

    # --- the main loop

    def set_devices(self, devices: Sequence[Device]) -> None:
        with self._changed:
            self._devices = tuple(devices)

    def set_hung(self, reason: str | None) -> None:
        with self._changed:
            self._hung = reason

    def drain(self) -> None:
        """No longer ready, from this moment."""
        with self._changed:
            self._phase = DRAINING
            self._changed.notify_all()

    def fail(self, failure: Failure, *, holding: bool) -> None:
        with self._changed:
            self._phase, self._failure, self._holding, self._healthy = FAILED, failure, holding, False
            self._changed.notify_all()

    def causes(self) -> tuple[tuple[Evidence, ...], str | None]:
        """(evidence in order of coming, the last line that looks like an error); while serving only fresh ones."""
        with self._changed:
            oldest = self._clock.monotonic() - _EVIDENCE_SECONDS if self._was_ready else float("-inf")
            evidence = tuple(item for at, item in self._evidence if at >= oldest)
            error = self._last_error
            return evidence, error[1] if error is not None and error[0] >= oldest else None

    # --- the pages

    @property
    def phase(self) -> str:
        return self._phase

    @property
    def step(self) -> str:
        return self._timer.step

    @property
    def was_ready(self) -> bool:
        return self._was_ready

    @property
    def serving_soon(self) -> bool:
        return self._serving_soon

    def wait_started(self, timeout_seconds: float) -> bool:
        """Whether the start is over for the startup probe: ready once, or held. Waits that long for it."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._was_ready or self._phase in (DRAINING, FAILED), timeout_seconds
            )
            return self._was_ready or self._holding

    def snapshot(self) -> Snapshot:
        with self._changed:
            now = self._clock.monotonic()
            return Snapshot(
                phase=self._phase,
                facts=self._facts,
                step=self._timer.step,
                steps=tuple(self._timer.steps(now)),
                weights=self._weights.progress(),
                started_at=self._started_at,
                ready_at=self._ready_at,
                healthy=self._healthy
                and (self._silent_since is None or now - self._silent_since < SILENCE_SECONDS),
                holding=self._holding,
                hung=self._hung,
                load=self._load,
                lines=self._lines,
                devices=self._devices,
                failure=self._failure,
            )
