"""What the leader runs, put together from settings."""

import asyncio
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.kube import FakeKube
from llmservice_operator.app_duties import Parts, make_duties
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.recorder import Recorder
from llmservice_operator.controller.store import Store
from llmservice_operator.settings import Settings
from llmservice_operator.telemetry.metrics import Metrics


def parts(**settings: Any) -> Parts:
    kube, clock = FakeKube(), FakeClock()
    return Parts(
        settings=Settings(**settings),
        kube=kube,
        store=Store(),
        recorder=Recorder(kube=kube, clock=clock, instance="test"),
        metrics=Metrics(),
        clock=clock,
        enqueue=lambda _key: None,
    )


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, {"scaling", "capacities"}),
        ({"prometheus_url": "http://127.0.0.1:9"}, {"scaling", "capacities", "prometheus"}),
    ],
)
async def test_prometheus_is_asked_only_where_one_is_set(settings: dict[str, Any], names: set[str]) -> None:
    async with make_duties(parts(**settings)) as duties:
        assert set(duties.background) == names


async def test_what_runs_beside_the_reconciles_runs_until_it_is_cancelled() -> None:
    made = parts(prometheus_url="http://127.0.0.1:9")
    async with make_duties(made) as duties:
        tasks = [asyncio.create_task(begin()) for begin in duties.background.values()]
        await asyncio.sleep(0.1)
        running = [not task.done() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert all(running)


async def test_a_service_that_is_not_there_is_reconciled_to_nothing() -> None:
    async with make_duties(parts()) as duties:
        assert await duties.reconcile(Key("ns", "gone")) is None
