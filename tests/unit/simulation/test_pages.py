"""What an engine's page shows, and when."""

import numpy as np

from llmservice_operator.perfmodel.arrivals import Request
from llmservice_operator.simulation.records import Fleet
from llmservice_operator.simulation.scraper import shown
from unit.simulation.machines import fleet_of, load_of, serve, tables

LONG_PROMPTS = [Request(0.0, 12_000, 3), Request(0.1, 12_000, 3)]
"""Steps of 2,048 tokens, which take some 50 ms each; the second comes in the middle of one."""


class Watched:
    """A fleet of one engine, step by step in time."""

    def __init__(self, load: list[Request]) -> None:
        self.fleet: Fleet = fleet_of(load, tables())
        self._sent, self._now = 0, 0.0

    def waiting(self, now: float) -> tuple[int, int]:
        """(requests that wait, those that the page tells of) then."""
        fleet = self.fleet
        self._sent = serve(fleet, tables(), begin=self._now, until=now, first=self._sent)
        self._now = now
        return int(fleet.engines["waiting"][0]), int(shown(fleet, [0], now, overlaps=True)["waiting"][0])


def test_a_request_shows_only_when_a_step_is_over() -> None:
    engine = Watched(LONG_PROMPTS)

    assert engine.waiting(0.12) == (1, 0)


def test_a_request_shows_within_two_steps() -> None:
    engine = Watched(LONG_PROMPTS)

    assert engine.waiting(0.20) == (1, 1)


def test_a_request_that_decoding_engines_take_at_once_never_shows_as_waiting() -> None:
    engine = Watched([Request(0.0, 10, 400), Request(1.0, 10, 2)])

    assert [engine.waiting(float(now))[1] for now in np.arange(0.05, 2.0, 0.05)] == [0] * 39


def test_of_an_engine_with_nothing_left_to_do_all_is_shown() -> None:
    engine = Watched(load_of(8.0))
    engine.waiting(1e4)

    page = shown(engine.fleet, [0], 1e4, overlaps=True)
    assert page["finished"][0] == len(engine.fleet.requests)
    assert page["running"][0] == 0


def test_what_a_page_counts_never_falls() -> None:
    engine = Watched(load_of(8.0))
    counted = []
    for now in np.arange(0.1, 60.0, 0.1):
        engine.waiting(float(now))
        counted.append(int(shown(engine.fleet, [0], float(now), overlaps=True)["generated_tokens"][0]))

    assert counted == sorted(counted)
