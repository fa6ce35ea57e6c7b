"""The supervisor beside an engine, over HTTP: what it reports of the engine's start, memory and end.

aiohttp rather than httpx: it comes with kopf, and one page costs a fiftieth of the time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from llmservice_operator.clients.bounded import bounded_get
from llmservice_operator.errors import UnavailableError

_MAX_REPORT_BYTES = 64 * 1024
_MAX_MESSAGE_CHARS = 2000
_LARGEST_NUMBER = 1 << 53
"""Whole numbers of JSON are exact up to here; a status cannot hold any of more than 63 bits."""


class EngineUnreachableError(UnavailableError):
    """The supervisor did not answer, or not with a report."""


@dataclass(frozen=True, kw_only=True)
class EngineFailure:
    """How the engine ended, as the supervisor classified it from the engine's own words."""

    failure_class: str
    message: str
    stage: str = ""
    exit_code: int | None = None
    signal: int | None = None
    estimated_max_model_len: int | None = None
    kv_cache_needed_bytes: int | None = None
    kv_cache_available_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoadProgress:
    """How far the weights are read. None: not known yet."""

    total_bytes: int | None = None
    loaded_bytes: int | None = None
    bytes_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """An accelerator as the supervisor saw it."""

    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """The supervisor's /report: one engine process, from its start on."""

    service: str
    revision: str
    phase: str
    """`Starting`, `Ready`, `Draining` or `Failed`."""
    engine_version: str = ""
    version_known: bool = True
    started_at: float | None = None
    """Seconds since the Unix epoch, by the pod's clock."""
    ready_at: float | None = None
    step: str = ""
    step_seconds: tuple[tuple[str, float], ...] = ()
    """The start's steps that are over, in order, with what each took."""
    load: LoadProgress = LoadProgress()
    memory: Mapping[str, float]
    """The engine's own account by the supervisor's key (`weightsBytes`, ...); absent: not said."""
    devices: tuple[Device, ...] = ()
    requests: int | None = None
    """Running and waiting ones at the supervisor's last look; None where it could not tell, or is too old to."""
    failure: EngineFailure | None = None


class EngineClient(Protocol):
    """Reads the reports of engines."""

    async def report(self, host: str, port: int) -> EngineReport:
        """The report of the supervisor at this address.

        Raises EngineUnreachableError when there is none within the deadline.
        """


class HttpEngineClient:
    """EngineClient over aiohttp, each request within `timeout_seconds` in all."""

    def __init__(self, *, timeout_seconds: float = 2.0, max_connections: int = 64) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # force_close: pods come and go, and a kept connection to a gone pod hangs until the deadline.
        connector = aiohttp.TCPConnector(limit=self._max_connections, force_close=True)
        self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def report(self, host: str, port: int) -> EngineReport:
        """See EngineClient.report."""
        if self._session is None:
            raise EngineUnreachableError("the engine client is not open")
        return parse_report(
            await bounded_body(self._session, host, port, "/report", most_bytes=_MAX_REPORT_BYTES)
        )


async def bounded_body(
    session: aiohttp.ClientSession, host: str, port: int, path: str, *, most_bytes: int
) -> bytes:
    """The body that a pod answers to a GET of this path; no more of it is taken in than `most_bytes`.

    Raises EngineUnreachableError for another status than 200, a longer body, and whatever goes wrong underneath.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return await bounded_get(
        session,
        f"http://{address}{path}",
        name=f"{address}{path}",
        most_bytes=most_bytes,
        error=EngineUnreachableError,
    )


def parse_report(body: bytes | str) -> EngineReport:
    """The report in this JSON text. What is missing or of another type is taken as not said.

    Raises EngineUnreachableError when it is no JSON object.
    """
    data = _json_object(body)
    if data is None:
        raise EngineUnreachableError("the report is not a JSON object")
    engine = _mapping(data.get("engine"))
    startup = _mapping(data.get("startup"))
    weights = _mapping(startup.get("weights"))
    return EngineReport(
        service=_text(data.get("service")),
        revision=_text(data.get("revision")),
        phase=_text(data.get("phase")),
        engine_version=_text(engine.get("version")),
        version_known=engine.get("versionKnown") is not False,
        started_at=_number(data.get("startedAt")),
        ready_at=_number(data.get("readyAt")),
        step=_text(startup.get("step")),
        step_seconds=_steps(startup.get("steps")),
        load=LoadProgress(
            total_bytes=_integer(weights.get("totalBytes")),
            loaded_bytes=_integer(weights.get("loadedBytes")),
            bytes_per_second=_number(weights.get("bytesPerSecond")),
            seconds_left=_number(weights.get("secondsLeft")),
        ),
        memory={
            name: number
            for name, value in _mapping(data.get("memory")).items()
            if (number := _number(value)) is not None
        },
        devices=_devices(data.get("devices")),
        requests=_requests(data.get("requests")),
        failure=_failure(data.get("failure")),
    )


def parse_termination_message(text: str) -> tuple[str, EngineFailure] | None:
    """(revision, failure) of a container's termination message; None when it is not the supervisor's."""
    data = _json_object(text)
    if data is None:
        return None
    # The message is the failure itself with the identity beside its keys; a whole report is taken as well.
    failure = _failure(data.get("failure")) or _failure(data)
    return None if failure is None else (_text(data.get("revision")), failure)


def _failure(value: Any) -> EngineFailure | None:
    data = _mapping(value)
    failure_class = _text(data.get("class"))
    if not failure_class:
        return None
    return EngineFailure(
        failure_class=failure_class,
        message=_text(data.get("message"))[:_MAX_MESSAGE_CHARS],
        stage=_text(data.get("stage")),
        exit_code=_integer(data.get("exitCode")),
        signal=_integer(data.get("signal")),
        estimated_max_model_len=_integer(data.get("estimatedMaxModelLen")),
        kv_cache_needed_bytes=_integer(data.get("kvCacheNeededBytes")),
        kv_cache_available_bytes=_integer(data.get("kvCacheAvailableBytes")),
    )


def _devices(value: Any) -> tuple[Device, ...]:
    rows = value if isinstance(value, list) else []
    return tuple(
        Device(name=_text(row.get("name")), memory_bytes=_integer(row.get("memoryBytes")))
        for row in rows
        if isinstance(row, dict)
    )


def _requests(value: Any) -> int | None:
    data = _mapping(value)
    running, waiting = _integer(data.get("running")), _integer(data.get("waiting"))
    return None if running is None or waiting is None else max(0, running) + max(0, waiting)


def _steps(value: Any) -> tuple[tuple[str, float], ...]:
    rows = value if isinstance(value, list) else []
    return tuple(
        (_text(row.get("name")), seconds)
        for row in rows
        if isinstance(row, dict) and (seconds := _number(row.get("seconds"))) is not None
    )


def _json_object(text: bytes | str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _LARGEST_NUMBER else None  # NaN is not either


def _integer(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
