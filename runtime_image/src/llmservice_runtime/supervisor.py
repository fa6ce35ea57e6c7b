"""One engine's life, from the device probe to the last orphan: the loop that ties the parts together."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Mapping, Sequence

from llmservice_runtime.classifier import MEMORY_CLASSES, Ending, Failure, classify
from llmservice_runtime.clock import Clock
from llmservice_runtime.config import CONFIG_VARIABLE, Config
from llmservice_runtime.devices import probe_devices, wrong_accelerator
from llmservice_runtime.drain import Drain
from llmservice_runtime.engine_http import EngineClient, Load
from llmservice_runtime.hang import HangDetector
from llmservice_runtime.interpreters import EngineNotFoundError, resolve
from llmservice_runtime.log_pump import LogPump
from llmservice_runtime.memory_facts import gib
from llmservice_runtime.pages import Pages, bind, serve
from llmservice_runtime.prober import Prober
from llmservice_runtime.process import OOM_KILL_FILES, EngineProcess, kernel_oom_kills
from llmservice_runtime.redact import redact, secret_values
from llmservice_runtime.report import termination_message
from llmservice_runtime.signals import FORWARDED_SIGNALS, STOP_SIGNALS, Wakeup
from llmservice_runtime.state import READY, STARTING, EngineState
from llmservice_runtime.weights_files import weights_bytes

_IDLE_SECONDS = 60.0
_REST_GRACE_SECONDS = 2.0
_PUMP_JOIN_SECONDS = 5.0
EXIT_FAILED = 1


class Supervisor:
    """Runs one engine to its end; `run` gives the exit code of this process."""

    def __init__(
        self,
        config: Config,
        command: Sequence[str],
        environment: Mapping[str, str],
        clock: Clock,
        *,
        termination_log: Path,
        module: str = "vllm",
    ) -> None:
        self._config, self._command, self._environment, self._clock = (
            config,
            list(command),
            environment,
            clock,
        )
        self._termination_log, self._module = termination_log, module
        self._secrets = secret_values(command, environment)
        self._wakeup = Wakeup()
        files_bytes = weights_bytes(Path(config.model_path)) if config.model_path else None
        self._state = EngineState(config, clock, files_bytes)
        self._lock = threading.Lock()  # the prober's readings against the main loop's decisions
        self._hang = HangDetector(config.hang_seconds)
        self._drain: Drain | None = None
        self._kill_at: float | None = None
        self._stop_note: str | None = None
        self._killed = False
        self._drained = True
        self._start_timeout: str | None = None
        self._began = clock.monotonic()
        self._oom_kills_before = kernel_oom_kills(OOM_KILL_FILES)

    def run(self) -> int:
        """Start, supervise, and say why it ended."""
        try:
            server = bind(self._config.supervisor_port, Pages(self._config, self._state, self._clock))
        except OSError as error:
            port = self._config.supervisor_port
            return self._refuse("PortInUse", f"the supervisor cannot listen on port {port}: {error}")
        devices = probe_devices()
        self._state.set_devices(devices)
        wrong = wrong_accelerator(devices, self._config.expected_device)
        if wrong is not None:
            return self._refuse("WrongAccelerator", wrong)
        client = EngineClient(self._config.engine_port)
        if client.health() is not None:  # its answers would be taken for the engine's
            port = self._config.engine_port
            return self._refuse("PortInUse", f"something else already answers on the engine's port {port}")
        try:
            command = resolve(self._command, self._module, self._environment)
            engine = EngineProcess(command, self._engine_environment())  # before any thread of ours
        except (EngineNotFoundError, OSError) as error:
            return self._refuse("EngineNotFound", str(error))
        self._say(f"engine started: {redact(' '.join(command), self._secrets)}")
        serve(server)
        return self._supervise(engine, client)

    # --- while it runs

    def _supervise(self, engine: EngineProcess, client: EngineClient) -> int:
        pumps = [LogPump(fd, target, self._take_line) for fd, target in zip(engine.output, (1, 2))]  # noqa: B905 - Python 3.9 has no strict
        self._prober = Prober(
            client,
            self._state,
            self._clock,
            hang_seconds=self._config.hang_seconds,
            on_health=self._on_health,
            on_load=self._on_load,
        )
        for thread in (*pumps, self._prober):
            thread.start()
        timeout = 0.0
        while engine.status is None:
            for number in self._wakeup.wait(timeout):
                self._on_signal(engine, number)
            if engine.reap():
                break
            timeout = self._step(engine)
        return self._end(engine, pumps)

    def _on_signal(self, engine: EngineProcess, number: int) -> None:
        if number in FORWARDED_SIGNALS:
            engine.send(number)
        elif number in STOP_SIGNALS:
            self._stop(engine)

    def _stop(self, engine: EngineProcess) -> None:
        """Asked to stop. Asked again, nothing changes: a restarted kubelet asks twice while streams run."""
        if self._drain is not None or self._stop_note is not None or self._start_timeout is not None:
            return
        was = self._state.phase
        self._state.drain()
        now = self._clock.monotonic()
        if was == READY and self._state.snapshot().hung is None:
            with self._lock:
                self._drain = Drain(
                    now,
                    minimum_seconds=self._config.drain_minimum_seconds,
                    timeout_seconds=self._config.drain_timeout_seconds,
                )
            self._say(
                "asked to stop: not ready from now on, the engine serves on until nothing runs or waits"
            )
            self._prober.look_now()
        else:
            self._terminate(
                engine, now, "asked to stop before it served" if was == STARTING else "asked to stop"
            )

    def _step(self, engine: EngineProcess) -> float:
        """Decide what is due now; gives the seconds until something else may be."""
        now = self._clock.monotonic()
        if self._kill_at is not None:
            if now >= self._kill_at and not self._killed:
                self._say("the engine did not end in time: killed")
                self._killed = True
                engine.kill_all()
            return max(0.0, self._kill_at - now) if not self._killed else _IDLE_SECONDS
        if self._drain is not None:
            return self._step_drain(engine, self._drain, now)
        if self._state.phase == STARTING:
            left = self._began + self._config.start_budget_seconds - now
            if left <= 0:
                self._start_timeout = self._budget_message()
                self._say(self._start_timeout)
                self._kill_at = now + self._config.stop_grace_seconds
                engine.send(signal.SIGTERM)
                return self._config.stop_grace_seconds
            return left
        with self._lock:
            self._state.set_hung(self._hang.hung(now))
        return min(_IDLE_SECONDS, max(1.0, self._config.hang_seconds / 10))

    def _step_drain(self, engine: EngineProcess, drain: Drain, now: float) -> float:
        with self._lock:
            decision = drain.decide(now)
            hung = self._hang.hung(now)
            self._drained = drain.in_flight == 0
        if hung is not None:
            self._state.set_hung(hung)
            self._terminate(engine, now, hung)
            return self._config.stop_grace_seconds
        if not decision.done:
            return max(0.0, decision.look_again_at - now)
        self._terminate(engine, now, decision.reason)
        return self._config.stop_grace_seconds

    def _terminate(self, engine: EngineProcess, now: float, note: str) -> None:
        """SIGTERM; the engine has the rest of the drain's time to end in, but never less than the grace."""
        self._stop_note = note
        self._say(f"the engine is told to stop: {note}")
        grace = now + self._config.stop_grace_seconds
        self._kill_at = max(grace, self._drain.deadline) if self._drain is not None else grace
        engine.send(signal.SIGTERM)
        if self._state.snapshot().hung is not None:
            self._kill_at = now + self._config.stop_grace_seconds

    def _take_line(self, line: str) -> None:
        self._state.take_line(line)
        if self._state.serving_soon and self._state.phase == STARTING:
            self._prober.look_now()

    def _on_health(self, now: float, code: int | None) -> None:
        if self._state.take_health(code):
            self._say(f"ready {now - self._began:.1f} s after the engine's start")
            self._wakeup.wake()
        if self._state.was_ready:
            with self._lock:
                self._hang.read_health(now, code)

    def _on_load(self, now: float, load: Load) -> None:
        self._state.take_load(load)
        with self._lock:
            self._hang.read_metrics(now, running=load.running, tokens=load.tokens, accepted=load.accepted)
            if self._drain is not None:
                self._drain.read(now, load.in_flight)
        self._wakeup.wake()

    # --- when it ended

    def _end(self, engine: EngineProcess, pumps: Sequence[LogPump]) -> int:
        self._prober.stop()
        engine.end_rest(wait=self._wait_quietly, grace_seconds=_REST_GRACE_SECONDS, now=self._clock.monotonic)
        for pump in pumps:
            pump.join(_PUMP_JOIN_SECONDS)
        failure = self._classify(engine)
        if failure.failure_class == "Stopped":
            return self._finish(failure, 0 if self._drained and not self._killed else EXIT_FAILED)
        hold = (
            failure.failure_class in MEMORY_CLASSES
            and not self._state.was_ready
            and self._config.memory_failure_hold_seconds > 0
            and self._stop_note is None
        )
        code = (
            engine.status.exit_code if engine.status is not None and engine.status.exit_code else EXIT_FAILED
        )
        self._state.fail(failure, holding=hold)
        if hold:
            self._write_termination(failure)
            self._hold(failure)
        return self._finish(failure, code)

    def _classify(self, engine: EngineProcess) -> Failure:
        evidence, last_error = self._state.causes()
        status = engine.status
        failure = classify(
            Ending(
                exit_code=status.exit_code if status is not None else None,
                signal=status.signal if status is not None else None,
                stage=self._state.step,
                was_ready=self._state.was_ready,
                stop_requested=self._stop_note is not None,
                hung=self._state.snapshot().hung,
                start_timeout=self._start_timeout,
                kernel_oom_kills=self._kernel_kills(),
            ),
            evidence,
            last_error,
        )
        message = (
            self._stop_note if failure.failure_class == "Stopped" and self._stop_note else failure.message
        )
        return _with_message(failure, redact(message, self._secrets))

    def _kernel_kills(self) -> int | None:
        after = kernel_oom_kills(OOM_KILL_FILES)
        if after is None or self._oom_kills_before is None:
            return None
        return after - self._oom_kills_before

    def _hold(self, failure: Failure) -> None:
        """A memory failure is no exit yet: the operator reads the cause and corrects the plan meanwhile."""
        deadline = self._clock.monotonic() + self._config.memory_failure_hold_seconds
        self._say(f"{failure.failure_class}: waiting for another plan: {failure.message}")
        while True:
            left = deadline - self._clock.monotonic()
            if left <= 0 or STOP_SIGNALS.intersection(self._wakeup.wait(left)):
                return

    def _refuse(self, failure_class: str, message: str) -> int:
        failure = Failure(failure_class, redact(message, self._secrets), "import")
        self._state.fail(failure, holding=False)
        return self._finish(failure, EXIT_FAILED)

    def _finish(self, failure: Failure, code: int) -> int:
        self._write_termination(failure)
        self._say(f"{failure.failure_class}: {failure.message}")
        return code

    def _write_termination(self, failure: Failure) -> None:
        write_termination(self._termination_log, self._config, failure)

    # --- small things

    def _wait_quietly(self, timeout_seconds: float) -> None:
        self._wakeup.wait(timeout_seconds)

    def _engine_environment(self) -> dict[str, str]:
        return {name: value for name, value in self._environment.items() if name != CONFIG_VARIABLE}

    def _budget_message(self) -> str:
        now = self._state.snapshot()
        weights = now.weights
        total = gib(weights.total_bytes) if weights.total_bytes is not None else "an unknown size"
        rate = f" at {gib(weights.bytes_per_second)}/s" if weights.bytes_per_second else ""
        steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in now.steps)
        return (
            f"not ready within the start budget of {self._config.start_budget_seconds:g} s: "
            f"in step {now.step} ({steps}); weights {gib(weights.loaded_bytes)} of {total}{rate}"
        )

    def _say(self, text: str) -> None:
        print(f"(Supervisor) {text}", file=sys.stderr, flush=True)


def write_termination(path: Path, config: Config, failure: Failure) -> None:
    """The termination message, where the kubelet reads it; not being able to write it is no failure."""
    try:
        path.write_bytes(termination_message(config.service, config.revision, failure))
    except OSError as error:
        print(
            f"(Supervisor) the termination message cannot be written to {path}: {error}",
            file=sys.stderr,
            flush=True,
        )


def _with_message(failure: Failure, message: str) -> Failure:
    return Failure(
        failure.failure_class,
        message,
        failure.stage,
        failure.exit_code,
        failure.signal,
        failure.estimated_max_model_len,
        failure.kv_cache_needed_bytes,
        failure.kv_cache_available_bytes,
    )
