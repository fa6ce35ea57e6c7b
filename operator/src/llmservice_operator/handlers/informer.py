"""The kopf adapter: watches, and hands every event to a plain function. kopf writes nothing.

Only `on.event` handlers are registered: they add no finalizer, no annotation and no patch. kopf's own
bookkeeping is switched off where it costs: its storages would copy each object on each event.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kopf

from llmservice_operator.api import labels
from llmservice_operator.clients.kube import KINDS
from llmservice_operator.clients.kube_connection import KubeConnection
from llmservice_operator.errors import LLMServiceError

TakeEvent = Callable[[str, str | None, Mapping[str, Any]], None]
"""Takes (kind, event type or None for a listed object, object)."""

CONNECT_TIMEOUT_SECONDS = 10
REQUEST_TIMEOUT_SECONDS = 60
IDLE_WORKER_SECONDS = 0.1
EXIT_SECONDS = 0.5
PAGE_SIZE = 100
"""Objects of one page of kopf's first list: while it asks for the next one, it handles these and lets them go."""
PEERING_IDENTITY: Any = labels.FIELD_MANAGER
"""kopf wants one although peering is off; its type is not part of kopf's public names."""
LOOK_SECONDS, MOST_LOOKS_WITHOUT_WATCHES = 5.0, 3
"""kopf gives its tasks 5 s to end; a healthy one has a task that spawns its watches at all times."""
WATCHES_TASK = "multidimensional multitasker"


class WatchesEndedError(LLMServiceError):
    """Nothing is watched any more. Only a new process helps."""


class Informer:
    """Watches some kinds, in some namespaces or (none given) everywhere."""

    def __init__(
        self,
        *,
        connection: KubeConnection,
        kinds: Sequence[str],
        namespaces: Sequence[str],
        take: TakeEvent,
    ) -> None:
        self._connection = connection
        self._kinds = kinds
        self._namespaces = namespaces
        self._take = take
        self._stop = asyncio.Event()
        self.started = asyncio.Event()
        """Set once kopf has begun to watch."""

    async def run(self) -> None:
        """Watch until `stop`. Raises WatchesEndedError when a watch met what kopf cannot bear.

        A missing CRD, a right taken away: kopf ends then, or has ended inside and waits for ever for watches that
        took their cancellation for something else. Started again in this process it would leave out a kind that is
        not there yet, and never look again. A new process waits for all kinds, and says that it is not ready.
        """
        kopf_task = asyncio.create_task(self._kopf(), name="kopf")
        try:
            await self._attend(kopf_task)
        finally:
            kopf_task.cancel()

    async def _kopf(self) -> None:
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            # By default kopf makes it from the user's name, which an unmapped uid does not have.
            identity=PEERING_IDENTITY,
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
            stop_flag=self._stop,
            ready_flag=self.started,
        )

    async def _attend(self, kopf_task: asyncio.Task[None]) -> None:
        """Return when kopf was stopped; raise once it has ended, or has long been without its watches."""
        without = 0
        while without < MOST_LOOKS_WITHOUT_WATCHES:
            done, _ = await asyncio.wait((kopf_task,), timeout=LOOK_SECONDS)
            if done and self._stop.is_set():
                return
            if done:
                raise WatchesEndedError(
                    f"the watches failed: {kopf_task.exception()}"
                ) from kopf_task.exception()
            ended = self.started.is_set() and not self._stop.is_set() and not _watches()
            without = without + 1 if ended else 0
        raise WatchesEndedError("the watches have ended and cannot be started again in this process")

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        for kind in self._kinds:
            where = KINDS[kind]
            group, _, version = where.api_version.rpartition("/")
            kopf.on.event(group, version, where.plural, registry=registry, id=kind)(self._handler(kind))
        return registry

    def _handler(self, kind: str) -> Callable[..., Any]:
        async def handle(event: Mapping[str, Any], **_: Any) -> None:
            self._take(kind, event["type"], event["object"])

        return handle

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(
            server=self._connection.server, aiohttp_session=self._connection.session(limit=0)
        )

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
        settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
        settings.networking.error_backoffs = _Backoffs()
        settings.queueing.idle_timeout = IDLE_WORKER_SECONDS
        settings.queueing.exit_timeout = EXIT_SECONDS
        settings.watching.chunk_size = PAGE_SIZE
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        for kind in self._kinds:
            if kind not in (labels.KIND, labels.POLICY_KIND, "Node"):
                group, _, version = KINDS[kind].api_version.rpartition("/")
                settings.watching.label_selectors[group, version, KINDS[kind].plural] = labels.SERVICE_LABEL
        return settings


def _watches() -> bool:
    """Whether kopf's task that keeps its watches is alive."""
    return any(task.get_name() == WATCHES_TASK for task in asyncio.all_tasks())


class _Backoffs:
    """1, 2, 4, ... 30, 30, ... seconds, without end: an API server that is away is no reason to end."""

    def __iter__(self) -> Iterator[float]:
        seconds = 1.0
        while True:
            yield seconds
            seconds = min(30.0, seconds * 2)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Remembers nothing: no handler asks what an object was before."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """Remembers nothing: on.event handlers make no progress."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence

    def flush(self) -> None:
        return None
