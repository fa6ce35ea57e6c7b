"""A day of ServeGen's m-large: rates and burstiness by ten minutes, lengths by client.

Not recorded requests but what was published of them, made into requests again: gaps are gamma, with the window's
asymptotic index of dispersion as their squared deviation (a renewal process has the one as the other), thinned by
chance (a share q of a process keeps 1 + q (I - 1)); each request is one of the window's clients', all alike often, with
lengths log-normal through that client's p50 and p90, at most its p99.
"""

import csv
import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llmservice_operator.simulation.loads import Load, make_load

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
WINDOW_SECONDS, LENGTHS_SECONDS, DAY_SECONDS = 600.0, 21_600.0, 86_400.0
MOST_DISPERSION = 20.0
"""Larger ones, up to thousands, tell of a rate that changes within the ten minutes, not of bursts."""
_Z90 = 1.2815515594


@cache
def _rows(name: str, day: int) -> list[Mapping[str, float]]:
    with (TRACES / f"servegen_m-large_{name}.csv").open() as lines:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]
    return [row for row in rows if row["day"] == day]


def busiest_rate(day: int) -> float:
    """Requests a second of the busiest ten minutes."""
    return max(row["requests_per_second"] for row in _rows("rate", day))


def servegen_day(day: int, *, share: float, seed: int) -> Load:
    """`share` of the day's requests."""
    generator = np.random.default_rng(seed)
    parts = [
        row["seconds"] + _window(generator, share * row["requests_per_second"], share, row)
        for row in _rows("rate", day)
    ]
    arrivals = np.concatenate(parts)
    prompt, answer = np.empty(len(arrivals), np.int64), np.empty(len(arrivals), np.int64)
    for begin, clients in _clients(day):
        inside = slice(*np.searchsorted(arrivals, (begin, begin + LENGTHS_SECONDS)))
        chosen = generator.integers(0, len(clients), inside.stop - inside.start)
        for lengths, kind in ((prompt, "input"), (answer, "output")):
            lengths[inside] = _lengths(generator, clients, chosen, kind)
    return make_load(f"servegen m-large day {day}", arrivals, prompt, answer, seconds=DAY_SECONDS)


def _window(generator: np.random.Generator, rate: float, share: float, row: Mapping[str, float]) -> Any:
    dispersion = 1.0 + min(share, 1.0) * (min(row["index_of_dispersion"], MOST_DISPERSION) - 1.0)
    expected = rate * WINDOW_SECONDS
    count = int(expected + 8.0 * np.sqrt(expected * dispersion)) + 50
    times = np.cumsum(generator.gamma(1.0 / dispersion, dispersion / rate, count))
    return times[times < WINDOW_SECONDS]


def _clients(day: int) -> Iterator[tuple[float, list[Mapping[str, float]]]]:
    rows = sorted(_rows("lengths", day), key=lambda row: row["seconds"])
    for begin, group in itertools.groupby(rows, key=lambda row: row["seconds"]):
        yield begin, list(group)


def _lengths(
    generator: np.random.Generator, clients: list[Mapping[str, float]], chosen: Any, kind: str
) -> Any:
    median, p90, most = (
        np.array([max(1.0, client[f"{kind}_{share}"]) for client in clients])[chosen]
        for share in ("p50", "p90", "p99")
    )
    sigma = np.log(np.maximum(p90 / median, 1.0)) / _Z90
    drawn = median * np.exp(sigma * generator.standard_normal(len(chosen)))
    return np.rint(np.clip(drawn, 1.0, np.maximum(most, median))).astype(np.int64)
