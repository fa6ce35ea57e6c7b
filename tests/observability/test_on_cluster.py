"""What `make alerts-on-cluster` plays and says."""

from dataclasses import replace

import pytest

from fakes.planned import as_planned
from observability.on_cluster import cast
from observability.on_cluster.__main__ import full_seconds, is_right
from observability.on_cluster.cast import FAULTS
from observability.on_cluster.look import Empty
from observability.on_cluster.play import Decided, Seen
from soak.setting import config_map, manifest

FIRED = {(fault.alert, fault.service): 30.0 for fault in FAULTS}
PENDING = {(fault.alert, fault.service): 20.0 for fault in FAULTS}
MOST = Decided(service=cast.FLOODED, at_seconds=15.0, old=1, new=2, ruling="backlog", reason="18 wait")
RIGHT = Seen(pending=PENDING, fired=FIRED, decided=(MOST,))


def _filling(tokens: int) -> list[int]:
    """What each of the long requests takes when it begins."""
    full = cast.NAMES.index(cast.FULL)
    requests = cast.requests(tokens)
    return [
        each.prompt_tokens
        for each in requests
        if each.target == full and each.at_seconds == cast.WELL_SECONDS
    ]


@pytest.mark.parametrize("tokens", [23_296, 46_592])
def test_the_cache_is_full_from_the_first_token_on(tokens: int) -> None:
    assert 0.95 * tokens < sum(_filling(tokens)) < tokens


def test_an_alert_on_the_operators_word_comes_that_much_later_and_no_more() -> None:
    missing = next(fault for fault in FAULTS if fault.alert == "LLMServiceMetricsMissing")

    assert full_seconds(missing, 25.0) == 25 + 5 * 60  # its rule waits for 5 minutes


def test_an_alert_on_a_window_comes_thirty_times_as_late() -> None:
    saturated = next(fault for fault in FAULTS if fault.alert == "LLMServiceKVCacheSaturated")

    assert full_seconds(saturated, 20.0) == 20 * 30 + 5 * 60


def test_what_the_operator_decides_takes_its_time_whatever_the_windows() -> None:
    growing = next(fault for fault in FAULTS if fault.alert == "LLMServiceQueueGrowsAtMaximum")

    assert full_seconds(growing, 20.0, since_seconds=15.0) == 15 + 5 * 30 + 5 * 60


def test_fake_engines_have_the_memory_that_is_planned() -> None:
    """By the index of Qwen3-32B on the hub its tensors are 65,524,246,528 bytes."""
    (service,) = as_planned([manifest({"FAKE_ENGINE_WEIGHTS_BYTES": "1"})], [config_map()])
    told = {each["name"]: each["value"] for each in service["spec"]["engine"]["env"]}

    assert float(told["FAKE_ENGINE_WEIGHTS_BYTES"]) == pytest.approx(65_524_246_528, rel=0.001)
    assert len(told) == len(service["spec"]["engine"]["env"])


def test_the_alerts_that_were_wanted_are_right() -> None:
    assert is_right(RIGHT)


@pytest.mark.parametrize(
    "seen",
    [
        Seen(),
        replace(RIGHT, fired={**FIRED, ("LLMServiceStalled", cast.STEADY): 40.0}),
        replace(RIGHT, fired=dict.fromkeys(FIRED, -2.0)),
        replace(RIGHT, pending=dict.fromkeys(FIRED, 100.0)),
        replace(RIGHT, decided=()),
        replace(RIGHT, empty=(Empty(dashboard="fleet", panel="Services", query="up", why=""),)),
    ],
    ids=["none fired", "one more", "before the faults", "too late", "no decision", "a panel without data"],
)
def test_anything_else_is_wrong(seen: Seen) -> None:
    assert not is_right(seen)
