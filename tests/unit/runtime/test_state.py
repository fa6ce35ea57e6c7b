"""What is known of the engine, on a clock that the test moves."""

import pytest

from llmservice_runtime.config import Config
from llmservice_runtime.engine_http import Load
from llmservice_runtime.report import build_report
from llmservice_runtime.state import EngineState

OOM = "(EngineCore pid=7) ERROR 11-29 23:00:00 [core.py:1590] torch.OutOfMemoryError: CUDA out of memory."
GATED = "(APIServer pid=7) ERROR 11-29 23:00:00 [x.py:1] 403 Client Error."


class MovedClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_790_000_000.0 + self.now


def state_with(clock: MovedClock) -> EngineState:
    return EngineState(Config(service="a/b", revision="r"), clock, None)


def test_what_was_logged_before_it_was_ready_does_not_explain_its_end() -> None:
    state = state_with(MovedClock())
    state.take_line(GATED)
    state.take_health(200)

    assert state.causes() == ((), None)


def test_while_serving_only_the_last_minute_counts() -> None:
    clock = MovedClock()
    state = state_with(clock)
    state.take_health(200)
    state.take_line(GATED)
    clock.now = 3600.0
    state.take_line(OOM)
    clock.now = 3610.0

    evidence, last_error = state.causes()

    assert [item.failure_class for item in evidence] == ["OutOfMemory"]
    assert last_error == "torch.OutOfMemoryError: CUDA out of memory."


def test_a_slow_start_keeps_its_evidence() -> None:
    clock = MovedClock()
    state = state_with(clock)
    state.take_line(OOM)
    clock.now = 3600.0

    assert [item.failure_class for item in state.causes()[0]] == ["OutOfMemory"]


def test_it_is_ready_once_and_healthy_as_long_as_it_answers_200() -> None:
    clock = MovedClock()
    state = state_with(clock)
    clock.now = 30.0

    became_ready = [state.take_health(code) for code in (None, 503, 200, 503, 200)]

    assert became_ready == [False, False, True, False, False]
    assert state.snapshot().ready_at == 1_790_000_030.0


def test_a_draining_engine_does_not_become_ready() -> None:
    state = state_with(MovedClock())
    state.drain()

    assert not state.take_health(200)
    assert state.snapshot().phase == "Draining"


@pytest.mark.parametrize(("silent_seconds", "healthy"), [(3.9, True), (4.0, False)])
def test_an_engine_that_answers_late_stays_healthy_for_four_seconds(
    silent_seconds: float, healthy: bool
) -> None:
    clock = MovedClock()
    state = state_with(clock)
    state.take_health(200)
    clock.now = 10.0
    state.ask(10.0)
    state.take_health(None)
    clock.now = 10.0 + silent_seconds
    state.ask(clock.now)

    assert state.snapshot().healthy is healthy


def test_an_answer_ends_the_silence() -> None:
    clock = MovedClock()
    state = state_with(clock)
    state.take_health(200)
    state.ask(10.0)
    state.take_health(200)
    clock.now = 60.0

    assert state.snapshot().healthy


def test_an_ill_engine_counts_as_unhealthy_but_not_as_starting() -> None:
    state = state_with(MovedClock())
    state.take_health(200)
    state.take_health(503)

    assert (state.snapshot().phase, state.snapshot().healthy) == ("Ready", False)


@pytest.mark.parametrize(
    ("load", "running", "waiting"),
    [
        (Load(running=3.0, waiting=4.0), 3, 4),
        (Load(running=0.0, waiting=0.0), 0, 0),
        (Load(running=1.0, waiting=2.0, accepted=5.0), 3, 2),
        (Load(running=None, waiting=0.0, accepted=1.0), None, None),
        (Load(running=1.0, waiting=None), None, None),
    ],
    ids=["busy", "idle", "accepted and not told of yet", "running unknown", "waiting unknown"],
)
def test_the_report_tells_of_requests_at_the_last_look(
    load: Load, running: "int | None", waiting: "int | None"
) -> None:
    state = state_with(MovedClock())
    state.take_load(Load(running=9.0, waiting=9.0))
    state.take_load(load)

    report = build_report(Config(service="a/b", revision="r"), state.snapshot())

    assert report["requests"] == {"running": running, "waiting": waiting}


def test_before_the_first_look_requests_are_not_known() -> None:
    report = build_report(Config(service="a/b", revision="r"), state_with(MovedClock()).snapshot())

    assert report["requests"] == {"running": None, "waiting": None}
