"""When a stopping engine may be told to go, on a clock that the test moves."""

import pytest

from llmservice_runtime.drain import Drain

MINIMUM, TIMEOUT = 5.0, 300.0


def drain_of(
    *readings: tuple[float, float | None], minimum: float = MINIMUM, timeout: float = TIMEOUT
) -> Drain:
    drain = Drain(0.0, minimum_seconds=minimum, timeout_seconds=timeout)
    for now, in_flight in readings:
        drain.read(now, in_flight)
    return drain


@pytest.mark.parametrize(
    ("readings", "now", "done"),
    [
        pytest.param([(0.0, 0.0), (1.0, 0.0)], 4.9, False, id="idle, but the minimum is not over"),
        pytest.param([(0.0, 0.0), (1.0, 0.0)], 5.0, True, id="idle, and the minimum is over"),
        pytest.param([(6.0, 0.0)], 6.0, False, id="one idle reading"),
        pytest.param([(6.0, 0.0), (6.5, 0.0)], 6.5, False, id="two, half a second apart"),
        pytest.param(
            [(6.0, 0.0), (6.5, 0.0), (7.0, 0.0)], 7.0, True, id="three, the first and last a second apart"
        ),
        pytest.param([(6.0, 0.0), (6.5, 1.0), (7.0, 0.0)], 7.0, False, id="busy in between"),
        pytest.param([(6.0, 0.0), (6.5, None), (7.0, 0.0)], 7.0, False, id="unknown in between"),
        pytest.param([(6.0, 0.0), (7.0, 0.0), (8.0, 2.0)], 8.0, False, id="busy again after idle"),
        pytest.param([], 100.0, False, id="never read"),
        pytest.param([(99.0, None), (100.0, None)], 100.0, False, id="unknown is not idle"),
        pytest.param([(299.0, 3.0)], 300.0, True, id="the timeout, whatever runs"),
    ],
)
def test_done(readings: list[tuple[float, float | None]], now: float, done: bool) -> None:
    assert drain_of(*readings).decide(now).done is done


def test_a_minimum_above_the_timeout_gives_way() -> None:
    assert drain_of(minimum=60.0, timeout=10.0).decide(10.0).done


@pytest.mark.parametrize(
    ("in_flight", "reason"),
    [
        (3.0, "drain timeout passed with 3 requests in flight"),
        (None, "drain timeout passed with an unknown number of requests in flight"),
    ],
)
def test_the_reason_tells_what_is_cut(in_flight: float | None, reason: str) -> None:
    assert drain_of((299.5, in_flight)).decide(300.0).reason == reason


def test_it_is_looked_at_again_when_something_can_have_changed() -> None:
    assert drain_of().decide(1.0).look_again_at == 5.0
    assert drain_of().decide(20.0).look_again_at == 21.0
    assert drain_of().decide(299.5).look_again_at == 300.0
