"""A hung engine, a busy one and an idle one, on a clock that the test moves."""

import pytest

from llmservice_runtime.hang import HangDetector

LIMIT = 120.0
Reading = tuple[float, float | None, float | None]  # at, running, tokens


@pytest.mark.parametrize(
    ("readings", "now", "hung"),
    [
        pytest.param(
            [(0, 2, 100), (60, 2, 100), (120, 2, 100)], 120, True, id="running, no token for the limit"
        ),
        pytest.param([(0, 2, 100), (60, 2, 100), (119, 2, 100)], 119, False, id="a second before"),
        pytest.param([(0, 2, 100), (60, 2, 101), (120, 2, 101)], 120, False, id="a token in between"),
        pytest.param([(0, 0, 100), (600, 0, 100)], 600, False, id="idle for ever"),
        pytest.param([(0, 2, 100), (100, 0, 100), (130, 1, 100)], 140, False, id="idle in between"),
        pytest.param([(0, 0, 100), (500, 1, 100)], 520, False, id="busy only now"),
        pytest.param(
            [(0, 2, 100), (60, None, None), (130, 2, 100)], 130, True, id="an unreadable page ends no hang"
        ),
        pytest.param([(0, None, None), (500, None, None)], 500, False, id="nothing readable says nothing"),
        pytest.param([(0, 2, 100), (130, 2, 5)], 130, False, id="a counter that fell has moved"),
        pytest.param([], 1000, False, id="nothing read"),
    ],
)
def test_tokens(readings: list[Reading], now: float, hung: bool) -> None:
    detector = HangDetector(LIMIT)
    for at, running, tokens in readings:
        detector.read_metrics(at, running=running, tokens=tokens)

    assert (detector.hung(now) is not None) is hung


Accepted = tuple[float, float, float]  # at, accepted, tokens


@pytest.mark.parametrize(
    ("readings", "now", "hung"),
    [
        pytest.param([(0, 0, 100), (10, 1, 100)], 130, True, id="a first step that never ends"),
        pytest.param([(0, 1, 0)], 120, True, id="seen by the first reading"),
        pytest.param([(0, 0, 100), (10, 1, 150), (20, 1, 150)], 900, False, id="an answer that nobody reads"),
        pytest.param(
            [(0, 1, 150), (20, 1, 150), (30, 2, 150)],
            150,
            True,
            id="one more behind an answer that nobody reads",
        ),
        pytest.param(
            [(0, 0, 100), (10, 1, 150), (20, 0, 150), (30, 1, 150)],
            150,
            True,
            id="the next one after an answer was read",
        ),
    ],
)
def test_requests_that_only_the_server_knows_of(readings: list[Accepted], now: float, hung: bool) -> None:
    detector = HangDetector(LIMIT)
    for at, accepted, tokens in readings:
        detector.read_metrics(at, running=0, tokens=tokens, accepted=accepted)

    assert (detector.hung(now) is not None) is hung


@pytest.mark.parametrize(
    ("answers", "now", "hung"),
    [
        pytest.param([(0, None), (60, None)], 120, True, id="silent for the limit"),
        pytest.param([(0, None), (60, 200)], 130, False, id="an answer in between"),
        pytest.param(
            [(0, 503), (120, 503)], 120, True, id="503 for the limit: a dead core behind a living server"
        ),
        pytest.param([(0, 200)], 1000, False, id="well"),
    ],
)
def test_health(answers: list[tuple[float, int | None]], now: float, hung: bool) -> None:
    detector = HangDetector(LIMIT)
    for at, code in answers:
        detector.read_health(at, code)

    assert (detector.hung(now) is not None) is hung


def test_zero_switches_it_off() -> None:
    detector = HangDetector(0)
    detector.read_metrics(0, running=1, tokens=1)
    detector.read_metrics(10_000, running=1, tokens=1)

    assert detector.hung(20_000) is None


def test_the_reason_names_load_time_and_limit() -> None:
    detector = HangDetector(LIMIT)
    detector.read_metrics(0, running=3, tokens=1)

    assert detector.hung(150) == "3 requests run and no token has come for 150 s (limit 120 s)"
