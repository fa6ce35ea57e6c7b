"""The compiled engine against the readable one, and the fleet's router."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from llmservice_operator.perfmodel.arrivals import Request
from llmservice_operator.perfmodel.batching import Engine
from llmservice_operator.simulation import kernel, router
from llmservice_operator.simulation.records import clear_slot
from llmservice_operator.simulation.router import LEAST_LOADED, RANDOM, ROUND_ROBIN
from unit.simulation.machines import fleet_of, load_of, serve, speed, tables


@pytest.mark.parametrize(
    ("rate", "kv_cache_tokens"), [(1.0, None), (8.0, None), (15.0, None), (1.0, 30_000), (8.0, 30_000)]
)
def test_first_tokens_come_as_in_the_readable_engine(rate: float, kv_cache_tokens: int | None) -> None:
    load, machine = load_of(rate), tables(kv_cache_tokens=kv_cache_tokens)
    fleet = fleet_of(load, machine)

    serve(fleet, machine)

    reference = Engine(speed(kv_cache_tokens=kv_cache_tokens), load).run()
    half = float(machine[0]["half_request_seconds"])
    ttft = fleet.requests["first"] - fleet.requests["ready"] + half
    expected = np.quantile([each.ttft_seconds for each in reference], (0.5, 0.95))
    assert np.quantile(ttft, (0.5, 0.95)) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("kv_cache_tokens", [None, 30_000])
def test_a_saturated_engine_takes_as_long_as_the_readable_one(kv_cache_tokens: int | None) -> None:
    load, machine = load_of(20.0), tables(kv_cache_tokens=kv_cache_tokens)
    fleet = fleet_of(load, machine)

    serve(fleet, machine)

    reference = Engine(speed(kv_cache_tokens=kv_cache_tokens), load).run()
    assert fleet.requests["end"].max() == pytest.approx(max(each.end_seconds for each in reference), rel=0.03)


def test_every_request_is_answered_and_nothing_is_left_in_the_cache() -> None:
    machine = tables(kv_cache_tokens=30_000)
    fleet = fleet_of(load_of(20.0), machine)

    serve(fleet, machine)

    engine = fleet.engines[0]
    assert not np.isnan(fleet.requests["end"]).any()
    assert engine["finished"] == len(fleet.requests)
    assert engine["preemptions"] > 0
    assert [engine[name] for name in ("context", "promised", "running", "waiting", "pending_tokens")] == [
        0
    ] * 5


def test_a_cut_in_time_changes_nothing() -> None:
    machine = tables(kv_cache_tokens=30_000)
    whole, cut = fleet_of(load_of(8.0), machine, slots=2), fleet_of(load_of(8.0), machine, slots=2)

    serve(whole, machine)
    first = 0
    for until in np.arange(0.0, 200.0, 0.7):
        first = serve(cut, machine, until=float(until), first=first)
    serve(cut, machine, first=first)

    assert np.array_equal(whole.requests["end"], cut.requests["end"])


def test_tokens_of_the_prefix_cache_are_not_computed() -> None:
    machine = tables()
    request = [Request(0.0, 8000, 2)]
    cold, warm = fleet_of(request, machine), fleet_of(request, machine)
    warm.requests["cached"] = 7000

    serve(cold, machine)
    serve(warm, machine)

    assert warm.requests["first"][0] < 0.5 * cold.requests["first"][0]


@pytest.mark.parametrize("routing", [LEAST_LOADED, ROUND_ROBIN])
def test_like_requests_are_spread_evenly(routing: int) -> None:
    machine = tables()
    fleet = fleet_of([Request(0.01 * each, 500, 50) for each in range(40)], machine, slots=4)

    serve(fleet, machine, routing=routing)

    assert fleet.engines["arrived"].tolist() == [10] * 4


def test_random_routing_reaches_every_engine() -> None:
    machine = tables()
    fleet = fleet_of([Request(0.01 * each, 50, 5) for each in range(400)], machine, slots=4)

    serve(fleet, machine, routing=RANDOM)

    assert fleet.engines["arrived"].min() > 60


def test_random_routing_is_fair_where_slots_are_empty() -> None:
    """Two neighbours with three empty slots before them: the first must not have the gap's share."""
    machine = tables()
    fleet = fleet_of([Request(0.01 * each, 50, 5) for each in range(400)], machine, slots=5)
    fleet.engines["takes"][:3] = 0

    serve(fleet, machine, routing=RANDOM)

    assert fleet.engines["arrived"][:3].sum() == 0
    assert 160 < fleet.engines["arrived"][3] < 240


def test_what_is_compiled_into_the_kernel_is_compiled_anew_when_it_changes() -> None:
    """The compiler's cache on disk asks for changes of the kernel's own file; so that file names the other."""
    written = Path(router.__file__).read_bytes()

    assert hashlib.sha256(written).hexdigest()[:8] == kernel.ROUTER


def test_the_least_loaded_engine_is_chosen() -> None:
    machine = tables()
    fleet = fleet_of(
        [Request(0.001, 2000, 400), Request(0.002, 10, 2), Request(1.0, 10, 2)], machine, slots=2
    )

    serve(fleet, machine)

    slots = fleet.requests["slot"]
    assert slots[2] == slots[1] != slots[0]


def test_without_an_engine_requests_are_held() -> None:
    machine = tables()
    fleet = fleet_of([Request(0.5, 10, 2), Request(1.0, 10, 2)], machine)
    fleet.engines["takes"] = 0

    first = serve(fleet, machine, until=10.0)

    assert first == 0
    assert np.isnan(fleet.requests["first"]).all()


def test_a_cleared_slot_counts_from_zero() -> None:
    machine = tables()
    fleet = fleet_of(load_of(8.0), machine)
    serve(fleet, machine)

    clear_slot(fleet, 0)

    assert fleet.engines["finished"][0] == 0
    assert fleet.engines["ttft"][0].sum() == 0
