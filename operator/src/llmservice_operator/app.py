"""The composition root: builds clients, clock, queue, leader and informer, runs them, and ends them in order.

start:  status page → API server → Lease (a standby waits here) → store filled → workers, watches
stop:   no new keys → running reconciles end → watches → events → Lease given back
"""

import asyncio
import contextlib
import logging
import random
import signal
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from llmservice_operator.api import labels
from llmservice_operator.app_duties import Duties, DutiesFactory, Parts, make_duties
from llmservice_operator.clients.kube_connection import KubeConnection
from llmservice_operator.clients.kube_rest import RestKubeClient
from llmservice_operator.clock import Clock, SystemClock
from llmservice_operator.controller.deadline import within
from llmservice_operator.controller.intake import Intake, watched_kinds
from llmservice_operator.controller.keys import Key
from llmservice_operator.controller.leader import LeaderElector, LeaseLostError
from llmservice_operator.controller.recorder import Recorder
from llmservice_operator.controller.reporter import Reporter
from llmservice_operator.controller.store import Store
from llmservice_operator.controller.sweep import Sweeper
from llmservice_operator.controller.workqueue import Reconcile, WorkQueue
from llmservice_operator.handlers.informer import Informer
from llmservice_operator.settings import Settings
from llmservice_operator.telemetry.metrics import Metrics
from llmservice_operator.telemetry.server import StatusServer

logger = logging.getLogger(__name__)

LEASE_TIMEOUT_SECONDS = 3.0
"""Of one request about the Lease: after one that hangs there is time for another before the renew deadline."""
FIRST_PASS_SECONDS = 20.0
"""How long the watches wait for the first reconcile of every service."""
DRAIN_SECONDS = 5.0
"""How long running reconciles may take to end after SIGTERM; with the rest the process ends within 10 s."""
WATCHES_SECONDS = 2.5
"""How long kopf may take to end: it waits for its own tasks."""
LAST_WORDS_SECONDS = 0.8


class Operator:
    """One run of the operator. `run` returns the process's exit code."""

    def __init__(
        self, settings: Settings, make_duties: DutiesFactory = make_duties, *, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._make_duties = make_duties
        self.clock = clock or SystemClock()
        self.random = random.Random()  # noqa: S311  jitter
        self.stopping = asyncio.Event()
        self.identity = settings.identity or f"{socket.gethostname()}-{self.random.getrandbits(64):016x}"
        self.state = "starting"
        self._elector: LeaderElector | None = None
        self.server = StatusServer(
            host=settings.http_host,
            port=settings.http_port,
            readiness=self._readiness,
            metrics=self.metrics.page,
        )

    def stop(self) -> None:
        """Ask for a graceful end, as SIGTERM does."""
        self.stopping.set()

    async def run(self) -> int:
        """Run until asked to stop (0), or until something that must not end has ended (1)."""
        self.take_signals()
        await self.server.start()
        logger.info("serving /healthz, /readyz and /metrics", extra={"port": self.server.port})
        try:
            connection = await KubeConnection.open(
                kubeconfig=self.settings.kubeconfig, in_cluster=self.settings.in_cluster
            )
            return await self._elect_and_work(connection)
        finally:
            await self.server.close()

    async def _elect_and_work(self, connection: KubeConnection) -> int:
        lease_kube = self._client(connection, concurrency=2, timeout_seconds=LEASE_TIMEOUT_SECONDS)
        elector = LeaderElector(
            kube=lease_kube,
            clock=self.clock,
            random=self.random.random,
            namespace=self.settings.namespace,
            name=self.settings.lease_name,
            identity=self.identity,
        )
        try:
            if not await self._unless_stopped(self._stand_by(elector)):
                return 0
            self.state = "filling"
            self.metrics.leader.set(1)
            try:
                return await self._work(connection, elector)
            finally:
                self.metrics.leader.set(0)
                async with within(LAST_WORDS_SECONDS):
                    await elector.release()
        finally:
            await lease_kube.close()

    async def _stand_by(self, elector: LeaderElector) -> None:
        self._elector = elector
        self.state = "standby"
        await elector.acquire()

    async def _work(self, connection: KubeConnection, elector: LeaderElector) -> int:
        kube = self._client(
            connection,
            concurrency=self.settings.api_concurrency,
            timeout_seconds=30.0,
            permit=elector.permit_write,
        )
        work = _Work(self, connection, kube)
        try:
            async with self._make_duties(work.parts) as duties:
                return await work.run(duties, elector)
        finally:
            await kube.close()

    def _client(
        self,
        connection: KubeConnection,
        *,
        concurrency: int,
        timeout_seconds: float,
        permit: Callable[[], None] = lambda: None,
    ) -> RestKubeClient:
        return RestKubeClient(
            connection,
            clock=self.clock,
            random=self.random.random,
            observer=self.metrics,
            permit=permit,
            concurrency=concurrency,
            timeout_seconds=timeout_seconds,
        )

    async def _unless_stopped(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Whether the coroutine ended before a stop was asked for."""
        task = asyncio.create_task(coroutine)
        stop = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        task.result()
        return True

    def take_signals(self) -> None:
        """Let SIGTERM and SIGINT ask for a graceful end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Outside of the main thread (in tests) there are no signals to take.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, self.stop)

    def _readiness(self) -> tuple[bool, str]:
        state = self.state
        if state == "standby" and not (self._elector and self._elector.has_looked):
            state = "no sight of the Lease yet"
        return state in ("standby", "working"), state


class _Work:
    """What the leader does: from the first list to the last reconcile."""

    def __init__(self, operator: Operator, connection: KubeConnection, kube: RestKubeClient) -> None:
        settings, clock, jitter = operator.settings, operator.clock, operator.random.random
        self._operator = operator
        self._kinds = watched_kinds(namespaced=settings.namespaced)
        observer = Reporter(operator.metrics, clock)
        self._store = Store()
        self._queue = WorkQueue(clock=clock, random=jitter, observer=observer)
        self._recorder = Recorder(
            kube=kube, clock=clock, instance=operator.identity, observer=operator.metrics
        )
        self._sweeper = Sweeper(
            kube=kube,
            store=self._store,
            queue=self._queue,
            clock=clock,
            random=jitter,
            kinds=self._kinds,
            namespaces=settings.watch_namespaces,
            period_seconds=settings.resync_seconds,
            observer=observer,
        )
        self._intake = Intake(
            store=self._store,
            queue=self._queue,
            clock=clock,
            ask_sweep=self._sweeper.ask,
            observer=observer,
        )
        self._informer = Informer(
            connection=connection,
            kinds=self._kinds,
            namespaces=settings.watch_namespaces,
            take=self._intake.event,
        )
        self.parts = Parts(
            settings=settings,
            kube=kube,
            store=self._store,
            recorder=self._recorder,
            metrics=operator.metrics,
            clock=clock,
            enqueue=self._queue.add,
        )

    async def run(self, duties: Duties, elector: LeaderElector) -> int:
        """Work until asked to stop (0) or until a part has ended that must not (1)."""
        self._show_live_metrics()
        keep = asyncio.create_task(elector.keep(), name="lease")
        fill = asyncio.create_task(self._sweeper.fill(), name="fill")
        stop = asyncio.create_task(self._operator.stopping.wait(), name="stop")
        await asyncio.wait((keep, fill, stop), return_when=asyncio.FIRST_COMPLETED)
        tasks = {keep}
        if fill.done() and not fill.cancelled() and fill.exception() is None:
            tasks |= self._start(duties)
            self._operator.state = "working"
            await asyncio.wait((*tasks, stop), return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in (*tasks, fill) if task.done() and not task.cancelled() and task.exception()]
        for task in ended:
            logger.error("a part ended", extra={"part": task.get_name(), "error": str(task.exception())})
        self._operator.state = "stopping"
        lost = any(isinstance(task.exception(), LeaseLostError) for task in ended)
        await self._end(tasks | {fill, stop}, gracefully=not lost)
        return 0 if self._operator.stopping.is_set() and not ended else 1

    def _start(self, duties: Duties) -> set[asyncio.Task[None]]:
        settings = self._operator.settings
        resync = self._with_resync(duties.reconcile)
        running: dict[str, Coroutine[Any, Any, None]] = {
            "workers": self._queue.run(resync, settings.workers),
            "sweeper": self._sweeper.run(),
            "recorder": self._recorder.run(),
            "informer": self._watch(),
            "signals": self._take_signals_back(),
            **{name: begin() for name, begin in duties.background.items()},
        }
        return {asyncio.create_task(coroutine, name=name) for name, coroutine in running.items()}

    async def _watch(self) -> None:
        """Watch once every service was reconciled: until then the watches' first lists would only compete.

        Nothing is missed: kopf begins with lists of its own, and each asks for a sweep of what it cannot tell.
        """
        async with within(FIRST_PASS_SECONDS):
            await self._queue.drained()
        await self._informer.run()

    async def _take_signals_back(self) -> None:
        """Kopf takes SIGTERM for itself when it starts; the order of our end is ours."""
        await self._informer.started.wait()
        self._operator.take_signals()
        await asyncio.Event().wait()

    async def _end(self, tasks: set[asyncio.Task[Any]], *, gracefully: bool) -> None:
        self._queue.stop()
        by_name = {task.get_name(): task for task in tasks}
        if gracefully:
            workers = by_name.get("workers")
            if workers is not None:
                await asyncio.wait((workers,), timeout=DRAIN_SECONDS)
            self._informer.stop()
            informer = by_name.get("informer")
            if informer is not None:
                await asyncio.wait((informer,), timeout=WATCHES_SECONDS)
            async with within(LAST_WORDS_SECONDS):
                await self._recorder.flush()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=LAST_WORDS_SECONDS)

    def _with_resync(self, reconcile: Reconcile) -> Reconcile:
        """The same, run again at least once a period, jittered so that they do not all come at once."""
        period, jitter = self._operator.settings.resync_seconds, self._operator.random.random

        async def run(key: Key) -> float | None:
            again = await reconcile(key)
            if not self._store.has(labels.KIND, key.namespace, key.name):
                self._queue.forget(key)
                return None
            resync = period * (0.9 + 0.2 * jitter())
            return resync if again is None else min(again, resync)

        return run

    def _show_live_metrics(self) -> None:
        self._operator.metrics.watch(
            queue_depth=lambda: self._queue.depth,
            queue_delayed=lambda: self._queue.delayed,
            queue_age_seconds=lambda: self._queue.oldest_age_seconds,
            objects=lambda: {kind: self._store.count(kind) for kind in self._kinds},
            services=lambda: Counter((note.ready, note.reason) for _, note in self._store.notes()),
            plans=self._store.plan_terms,
        )
