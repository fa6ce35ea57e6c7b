"""DCGM's figures of a service's cards: whose pod they are of, and how far they can be trusted."""

import pytest

from fakes.clock import FakeClock
from fakes.scaling_rig import ready_pod, subject
from llmservice_operator.autoscaling.signals import SignalState
from llmservice_operator.clients.prometheus import PrometheusError, Sample
from llmservice_operator.controller.autoscale_activity import (
    MISSING_SECONDS,
    STALE_SECONDS,
    PrometheusActivities,
    by_pod,
)

CHAT = subject((ready_pod("chat-a", "10.0.0.1", 0.0), ready_pod("chat-b", "10.0.0.2", 0.0)))


class Prometheus:
    """PrometheusClient that answers every query with these values by pod, or not at all."""

    def __init__(self, **values: float) -> None:
        self.values = values
        self.is_down = False
        self.is_odd = False

    async def query(self, expression: str) -> tuple[Sample, ...]:
        del expression
        if self.is_down:
            raise PrometheusError("nobody there")
        if self.is_odd:
            raise RuntimeError("an answer that nobody thought of")
        return tuple(
            Sample({"namespace": "ns", "pod": pod.replace("_", "-")}, value, 0.0)
            for pod, value in self.values.items()
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_service_s_value_is_the_mean_of_its_pods(clock: FakeClock) -> None:
    activities = PrometheusActivities(Prometheus(chat_a=0.2, chat_b=0.6, other=1.0), clock)
    await activities.ask()

    dram = activities.activity(CHAT, clock.now()).dram_active

    assert dram.value == pytest.approx(0.4)
    assert dram.state is SignalState.OK


@pytest.mark.parametrize(
    ("age_seconds", "state"),
    [
        (STALE_SECONDS - 1, SignalState.OK),
        (STALE_SECONDS + 1, SignalState.STALE),
        (MISSING_SECONDS + 1, SignalState.MISSING),
    ],
)
async def test_what_was_told_last_ages_while_prometheus_is_away(
    clock: FakeClock, age_seconds: float, state: SignalState
) -> None:
    prometheus = Prometheus(chat_a=0.2, chat_b=0.6)
    activities = PrometheusActivities(prometheus, clock)
    await activities.ask()
    prometheus.is_down = True
    await activities.ask()

    assert activities.activity(CHAT, clock.now() + age_seconds).dram_active.state is state


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.5, float("inf")])
async def test_what_can_not_be_is_invalid(clock: FakeClock, value: float) -> None:
    activities = PrometheusActivities(Prometheus(chat_a=value, chat_b=0.5), clock)
    await activities.ask()

    assert activities.activity(CHAT, clock.now()).sm_active.state is SignalState.INVALID


async def test_pods_that_no_exporter_knows_are_missing(clock: FakeClock) -> None:
    activities = PrometheusActivities(Prometheus(chat_a=0.5), clock)
    await activities.ask()

    assert activities.activity(CHAT, clock.now()).dram_active.state is SignalState.MISSING


def test_without_honored_labels_the_exporter_s_own_pod_is_not_taken() -> None:
    labels = {
        "namespace": "monitoring", "pod": "dcgm-exporter-x", "exported_namespace": "ns", "exported_pod": "chat-a",
    }  # fmt: skip

    assert by_pod([Sample(labels, 0.5, 0.0)]) == {("ns", "chat-a"): 0.5}


def test_cards_that_no_pod_holds_are_left_out() -> None:
    assert by_pod([Sample({"namespace": "", "pod": ""}, 0.5, 0.0)]) == {}


async def test_what_fails_again_and_again_is_logged_once(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    prometheus = Prometheus(chat_a=0.2, chat_b=0.6)
    prometheus.is_odd = True
    activities = PrometheusActivities(prometheus, clock)

    await activities.ask()
    await activities.ask()

    assert len(caplog.records) == 1
