"""From pages to signals: restarts, pages that lie and jumps of the clock falsify none, and states say what is known."""

import math

import pytest

from llmservice_operator.autoscaling.signals import SignalState
from llmservice_operator.engines.metric_names import Series
from unit.autoscaling.engines import FakeEngine
from unit.autoscaling.scraped import START, Service, is_close, load

# ── restarts and resets ──


def test_a_restart_is_no_negative_rate() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"] = FakeEngine(started_at=service.now)

    signals = service.run(20, load(4.0))

    assert is_close(signals.arrivals_per_second, 4.0)
    assert signals.arrivals_per_second.state is SignalState.RESET


def test_a_restart_that_outgrew_the_old_counter_is_seen() -> None:
    service = Service(1)
    service.run(20, load(4.0))
    service.engines["r0"] = FakeEngine(started_at=service.now)

    signals = service.run(10, load(40.0))

    assert signals.arrivals_per_second.state is SignalState.RESET


def test_an_incarnation_told_by_the_caller_is_one() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    engine = service.engines["r0"] = FakeEngine()
    for _ in range(3):
        service.now += 5
        engine.serve(20.0)
        service.observer.record("r0", engine.page(), at=service.now, incarnation="uid/1")

    assert service.signals().arrivals_per_second.state is SignalState.RESET


def test_a_restart_is_forgotten_after_the_window() -> None:
    service = Service(1)
    service.run(60, load(4.0))
    service.engines["r0"] = FakeEngine(started_at=service.now)

    assert service.run(40, load(4.0)).arrivals_per_second.state is SignalState.OK


def test_requests_lost_in_a_restart_have_arrived_once() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].running = 10.0
    service.run(5, load(4.0))
    service.engines["r0"] = FakeEngine(started_at=service.now)

    signals = service.run(20, load(4.0))

    assert is_close(signals.arrivals_per_second, 4.0 + 10.0 / 30.0)


def test_a_counter_that_falls_by_itself_is_a_reset() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].counters[Series.FINISHED] = 0.0

    signals = service.run(5, load(4.0))

    assert signals.arrivals_per_second.state is SignalState.RESET
    assert signals.arrivals_per_second.or_zero() >= 0.0


def test_a_counter_that_jumps_absurdly_is_a_reset() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].counters[Series.PROMPT_TOKENS] += 1e12

    signals = service.run(5, load(4.0))

    assert signals.input_tokens_per_second.state is SignalState.RESET
    assert signals.input_tokens_per_second.or_zero() <= 4000.0


# ── pages that lie ──


@pytest.mark.parametrize("state", [SignalState.INVALID, SignalState.MISSING])
def test_a_series_that_cannot_be_used_says_why(state: SignalState) -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.now += 5
    gone = frozenset({Series.WAITING})
    engine = service.engines["r0"]
    invalid = state is SignalState.INVALID
    page = engine.page(invalid=gone) if invalid else engine.page(missing=gone)
    service.observer.record("r0", page, at=service.now)

    signals = service.signals()

    assert (signals.waiting.value, signals.waiting.state) == (None, state)
    assert signals.arrivals_per_second.state is state
    assert signals.running.state is SignalState.OK


def test_an_absent_gauge_does_not_become_arrivals_when_it_is_back() -> None:
    service = Service(1)
    service.engines["r0"].running = 30.0
    service.now += 5
    service.observer.record(
        "r0", service.engines["r0"].page(invalid=frozenset({Series.RUNNING})), at=service.now
    )

    assert is_close(service.run(60, load(2.0)).arrivals_per_second, 2.0)


def test_a_page_that_stands_still_is_stale() -> None:
    """Frozen values: even the process' own clock does not move."""
    service = Service(1)
    service.run(150, load(4.0))
    page = service.engines["r0"].page()
    for _ in range(8):
        service.now += 5
        service.observer.record("r0", page, at=service.now)

    assert service.signals().arrivals_per_second.state is SignalState.STALE


def test_a_hung_engine_is_stale() -> None:
    """Work in the engine, and no step for 15 s; its API server still answers."""
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].running = 8.0

    assert service.run(10).running.state is SignalState.OK
    assert service.run(10).running.state is SignalState.STALE


def test_a_hung_engine_is_found_out_before_the_load_seems_to_have_halved() -> None:
    """What comes to an engine that hangs isn't told: of two, half of the load is missing while it is believed."""
    service = Service(2)
    service.run(150, load(4.0))
    service.engines["r1"].running = 8.0
    believed: list[float] = []
    while (told := service.run(5, half).arrivals_per_second).state is SignalState.OK:
        believed.append(told.or_zero())

    assert min(believed) > 0.6 * 4.0


def half(engines: dict[str, FakeEngine], seconds: float) -> None:
    """2 requests a second to the first engine alone."""
    engines["r0"].serve(2.0 * seconds)


def test_an_idle_engine_is_not_hung() -> None:
    service = Service(1)
    service.run(600)
    service.engines["r0"].running = 1.0

    assert service.run(10).running.state is SignalState.OK


# ── time ──


def test_a_scrape_gap_does_not_dilute_the_rate() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.engines["r0"].serve(240.0)
    service.now += 60

    assert service.run(5, load(4.0)).arrivals_per_second.state is SignalState.MISSING
    assert is_close(service.run(10, load(4.0)).arrivals_per_second, 4.0)


@pytest.mark.parametrize("jump", [-3600.0, -7.0, 50.0, 3600.0])
def test_a_jump_of_the_clock_never_falsifies_a_rate(jump: float) -> None:
    service = Service(2)
    service.run(150, load(4.0))
    service.now += jump

    for _ in range(12):
        signal = service.run(5, load(4.0)).arrivals_per_second

        assert signal.value is None or math.isclose(signal.value, 4.0, rel_tol=1e-6)


def test_pages_from_the_future_are_not_trusted() -> None:
    service = Service(1)
    service.run(150, load(4.0))
    service.now -= 30

    assert service.signals().arrivals_per_second.state is SignalState.STALE


def test_each_value_tells_when_it_was_taken() -> None:
    service = Service(2)
    service.run(150, load(4.0))
    service.run(10, load(4.0), scraped=frozenset({"r0"}))

    assert service.signals().running.at == START + 150
