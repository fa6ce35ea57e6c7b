"""What a leader does, put together: the reconcile, the scaling loop, and the clients of both."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from llmservice_operator.clients.engine import HttpEngineClient
from llmservice_operator.clients.engine_metrics import HttpEngineMetricsClient
from llmservice_operator.clients.kube import KubeClient
from llmservice_operator.clients.modelhub import HttpModelHub
from llmservice_operator.clients.prometheus import HttpPrometheusClient
from llmservice_operator.clock import Clock
from llmservice_operator.controller.autoscale_activity import PrometheusActivities
from llmservice_operator.controller.autoscale_board import Board
from llmservice_operator.controller.autoscale_capacity import CapacityBook
from llmservice_operator.controller.autoscale_loop import AutoscaleLoop, NoActivities
from llmservice_operator.controller.autoscale_policies import StoredPolicies
from llmservice_operator.controller.autoscale_samples import scaling_samples
from llmservice_operator.controller.autoscale_scrape import Scraper
from llmservice_operator.controller.calibration import CalibrationStore
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.observed import ReconcileSettings
from llmservice_operator.controller.reconciler import Reconciler
from llmservice_operator.controller.recorder import Recorder
from llmservice_operator.controller.store import Store
from llmservice_operator.controller.workqueue import Reconcile
from llmservice_operator.engines.vllm import VllmEngine
from llmservice_operator.resources.types import RenderSettings
from llmservice_operator.settings import (
    Settings,
    read_catalogue,
    read_hub_token,
    read_prometheus_token,
)
from llmservice_operator.telemetry.metrics import Metrics

Background = Callable[[], Coroutine[Any, Any, None]]
"""What runs until it is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What duties are built from."""

    settings: Settings
    kube: KubeClient
    store: Store
    recorder: Recorder
    metrics: Metrics
    clock: Clock
    enqueue: Callable[[Key], None]


@dataclass(frozen=True, kw_only=True)
class Duties:
    """What the leader runs."""

    reconcile: Reconcile
    background: Mapping[str, Background] = field(default_factory=dict)
    """What runs beside it by name, from its start to its end. None may end by itself."""


DutiesFactory = Callable[[Parts], contextlib.AbstractAsyncContextManager[Duties]]
"""Makes the duties, and closes what they hold at the end."""


@contextlib.asynccontextmanager
async def make_duties(parts: Parts) -> AsyncIterator[Duties]:
    """The operator's own, with its clients of engines and the model hub.

    InvalidInputError where a catalogue or the hub's token cannot be read.
    """
    settings = parts.settings
    hub = HttpModelHub(
        endpoint=settings.hub_endpoint, token=read_hub_token(settings), monotonic=parts.clock.monotonic
    )
    calibration = CalibrationStore(
        kube=parts.kube,
        clock=parts.clock,
        recorder=parts.recorder,
        namespace=settings.namespace,
        name=settings.calibration_name,
    )
    board = Board()
    async with (
        hub,
        calibration.running(),
        HttpEngineClient() as engines,
        _scaling(parts, board) as background,
    ):
        reconciler = Reconciler(
            kube=parts.kube,
            store=parts.store,
            recorder=parts.recorder,
            engine_client=engines,
            modelhub=hub,
            engine=VllmEngine(),
            clock=parts.clock,
            settings=ReconcileSettings(
                render=render_settings(settings),
                catalogue=read_catalogue(settings),
                sees_nodes=not settings.namespaced,
            ),
            observer=parts.metrics,
            calibration=calibration,
            board=board,
        )
        yield Duties(reconcile=reconciler.reconcile, background=background)


@contextlib.asynccontextmanager
async def _scaling(parts: Parts, board: Board) -> AsyncIterator[Mapping[str, Background]]:
    """The scaling loop and what works for it, by name."""
    async with HttpEngineMetricsClient() as pages, _prometheus(parts.settings) as prometheus:
        activities = None if prometheus is None else PrometheusActivities(prometheus, parts.clock)
        with contextlib.closing(_OneThread()) as thread:
            capacities = CapacityBook(thread.executor)
            loop = AutoscaleLoop(
                board=board,
                scraper=Scraper(pages, parts.clock),
                capacities=capacities,
                policies=StoredPolicies(parts.store, sees_policies=not parts.settings.namespaced),
                activities=activities or NoActivities(),
                clock=parts.clock,
                enqueue=parts.enqueue,
                observer=parts.metrics,
            )
            parts.metrics.watch_services(parts.store.service_states, lambda: scaling_samples(loop.scalers()))
            background: dict[str, Background] = {"scaling": loop.run, "capacities": capacities.run}
            yield background if activities is None else {**background, "prometheus": activities.run}


@contextlib.asynccontextmanager
async def _prometheus(settings: Settings) -> AsyncIterator[HttpPrometheusClient | None]:
    """Prometheus' client, where one is configured."""
    if not settings.prometheus_url:
        yield None
        return
    client = HttpPrometheusClient(
        settings.prometheus_url,
        timeout_seconds=settings.prometheus_timeout_seconds,
        bearer_token=lambda: read_prometheus_token(settings),
    )
    async with client:
        yield client


class _OneThread:
    """For what takes a second: the end of the process doesn't wait for it."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capacity")

    def close(self) -> None:
        """Begin nothing new."""
        self.executor.shutdown(wait=False, cancel_futures=True)


def render_settings(settings: Settings) -> RenderSettings:
    """What every pod is rendered with."""
    return RenderSettings(
        supervisor_image=settings.supervisor_image,
        supervisor_pull_policy=settings.supervisor_pull_policy,
        engine_images=settings.engine_images,
        hub_endpoint=settings.hub_endpoint,
        allowed_host_paths=settings.allowed_host_paths,
    )
