"""The KubeClient over plain HTTP: one request a call, no models."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from llmservice_operator.api import labels
from llmservice_operator.clients.kube import (
    APPLY_PATCH,
    KINDS,
    MERGE_PATCH,
    ForbiddenError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    error_of,
)
from llmservice_operator.clients.kube_connection import KubeConnection
from llmservice_operator.clock import Clock

PAGE_SIZE = 100
"""Objects of one page of a list. A Deployment as Python dicts is tens of KiB, and memory once taken stays taken."""
ATTEMPTS = 4
MAX_RETRY_AFTER_SECONDS = 30.0
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WRITE_PARAMS = {"fieldManager": labels.FIELD_MANAGER, "fieldValidation": "Strict"}
OPAQUE_KINDS = frozenset({"ControllerRevision"})
"""Kinds whose content the API server cannot check. Strict validation of an apply parses the body twice, as YAML."""
DELETE_OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


class RequestObserver(Protocol):
    """Is told of every request that was sent. Must not raise."""

    def requested(self, verb: str, code: str, duration_seconds: float) -> None:
        """An answer came (its status code) or none did (`none`)."""


class RestKubeClient:
    """See `clients.kube.KubeClient` for the methods.

    - `permit` is called right before each writing request and raises to forbid it.
    - 429 is answered by waiting as long as the server asks (at most 30 s), three times.
    - 401 reads the credentials again, once.
    """

    def __init__(
        self,
        connection: KubeConnection,
        *,
        clock: Clock,
        random: Callable[[], float],
        observer: RequestObserver | None = None,
        permit: Callable[[], None] = lambda: None,
        concurrency: int = 32,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._random = random
        self._observer = observer
        self._permit = permit
        self._session = connection.session(limit=concurrency)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=10)
        self._slots = asyncio.Semaphore(concurrency)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        try:
            return await self._send("get", "GET", KINDS[kind].path(namespace, name))
        except NotFoundError:
            return None

    async def list(
        self, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[dict[str, Any]]:
        return [obj async for page in self.pages(kind, namespace, label_selector) for obj in page]

    async def pages(
        self,
        kind: str,
        namespace: str | None = None,
        label_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        where = KINDS[kind]
        params = {"limit": str(PAGE_SIZE)}
        if label_selector:
            params["labelSelector"] = label_selector
        while True:
            page = await self._send(
                "list",
                "GET",
                where.path(namespace),
                params=params,
                accept=METADATA_LIST if metadata_only else "application/json",
            )
            # An empty list of metadata has `items: null`.
            items = page.get("items") or ()
            yield [{**item, "apiVersion": where.api_version, "kind": kind} for item in items]
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            params["continue"] = following

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = True) -> dict[str, Any]:
        return await self._apply("apply", manifest, _path_of(manifest), force=force)

    async def apply_status(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return await self._apply("apply_status", manifest, f"{_path_of(manifest)}/status", force=True)

    async def _apply(
        self, verb: str, manifest: Mapping[str, Any], path: str, *, force: bool
    ) -> dict[str, Any]:
        params = {**WRITE_PARAMS, "force": "true" if force else "false"}
        if manifest["kind"] in OPAQUE_KINDS:
            params["fieldValidation"] = "Ignore"
        return await self._send(verb, "PATCH", path, params=params, body=manifest, content_type=APPLY_PATCH)

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        path = KINDS[manifest["kind"]].path(manifest["metadata"].get("namespace"))
        return await self._send("create", "POST", path, params=WRITE_PARAMS, body=manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return await self._send("update", "PUT", _path_of(manifest), params=WRITE_PARAMS, body=manifest)

    async def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        content_type: str = MERGE_PATCH,
    ) -> dict[str, Any]:
        path = KINDS[kind].path(namespace, name)
        return await self._send(
            "patch", "PATCH", path, params=WRITE_PARAMS, body=body, content_type=content_type
        )

    async def delete(self, kind: str, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        body = {**DELETE_OPTIONS, **({"preconditions": {"uid": uid}} if uid else {})}
        try:
            await self._send("delete", "DELETE", KINDS[kind].path(namespace, name), body=body)
        except NotFoundError:
            return

    async def _send(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        """Send, and send again where the server asked for it or the credentials had expired."""
        headers = {"Accept": accept}
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = content_type
        request = _Request(verb, method, self._connection.server + path, params, data, headers)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._send_once(request)
            except KubeUnavailableError as e:
                if e.status != 429 or attempt == ATTEMPTS:
                    raise
                seconds = min(e.retry_after_seconds or 1.0, MAX_RETRY_AFTER_SECONDS)
                await self._clock.sleep(seconds * (1 + self._random() / 4))
            except ForbiddenError as e:
                if e.status != 401 or attempt > 1:
                    raise
                await self._connection.reload()
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _send_once(self, request: "_Request") -> dict[str, Any]:
        async with self._slots:
            if request.method != "GET":
                self._permit()
            started, code = self._clock.monotonic(), "none"
            try:
                async with self._session.request(
                    request.method,
                    request.url,
                    params=request.params,
                    data=request.data,
                    headers=request.headers,
                    timeout=self._timeout,
                ) as response:
                    code = str(response.status)
                    raw = await response.read()
                    retry_after = response.headers.get("Retry-After", "")
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                words = str(e) or type(e).__name__
                raise KubeUnavailableError(0, "Unreachable", f"{self._connection.server}: {words}") from e
            finally:
                if self._observer:
                    self._observer.requested(request.verb, code, self._clock.monotonic() - started)
        return _answer(int(code), raw, retry_after)


@dataclass(frozen=True, slots=True)
class _Request:
    verb: str
    method: str
    url: str
    params: Mapping[str, str] | None
    data: bytes | None
    headers: Mapping[str, str]


def _answer(status: int, raw: bytes, retry_after: str) -> dict[str, Any]:
    if status < 400:
        loaded: dict[str, Any] = json.loads(raw)
        return loaded
    raise _error(status, raw, retry_after)


def _error(status: int, raw: bytes, retry_after: str) -> KubeError:
    """From the Status object in the body, or from the body's text where a proxy answered."""
    seconds = float(retry_after) if retry_after.isdecimal() else None
    try:
        body = json.loads(raw)
        return error_of(status, str(body.get("reason", "")), str(body.get("message", "")), seconds)
    except (ValueError, AttributeError):
        return error_of(status, "Unknown", raw[:512].decode(errors="replace").strip(), seconds)


def _path_of(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    return KINDS[manifest["kind"]].path(metadata.get("namespace"), metadata["name"])
