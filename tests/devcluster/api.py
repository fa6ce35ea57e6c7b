"""A small client of the Kubernetes API on the standard library: what starting a cluster needs, and no more."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from devcluster.errors import DevclusterError


class ApiError(DevclusterError):
    """The API server answered with an error; ``status`` is the HTTP status code."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Requests as one user; each opens its own connection, so threads may share an instance."""

    def __init__(self, *, server: str, token: str, ca: Path) -> None:
        self._url = urlsplit(server)
        self._token = token
        self._ca = ca

    def _connection(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self._ca))
        host = self._url.hostname or ""
        return http.client.HTTPSConnection(host, self._url.port, timeout=timeout_seconds, context=context)

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """The decoded JSON answer; raises ApiError with the server's own message."""
        connection = self._connection(30)
        try:
            response = self._send(connection, method, path, body, content_type)
            text = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(f"{method} {path}: {response.status}: {_message(text)}", status=response.status)
        return json.loads(text) if text[:1] in {b"{", b"["} else text.decode()

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, content_type: str
    ) -> http.client.HTTPResponse:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/json",
            "User-Agent": "devcluster",
        }
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["Content-Type"] = content_type
        connection.request(method, path, body=data, headers=headers)
        return connection.getresponse()

    def ready(self, path: str = "/readyz") -> bool:
        """Whether the server answers 200 now; a refused connection is a no."""
        connection = self._connection(2)
        try:
            return self._send(connection, "GET", path, None, "").status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def apply(self, path: str, body: Any) -> None:
        """Server-side apply of the object at ``path``: makes it, or makes it equal; repeating it changes nothing."""
        query = f"{path}?fieldManager=devcluster&force=true"
        self.request("PATCH", query, body, content_type="application/apply-patch+yaml")

    def events(self, path: str, *, deadline: float) -> Iterator[dict[str, Any]]:
        """Objects of a list, then of its watch as they change, until ``deadline`` (time.monotonic seconds)."""
        found = self.request("GET", path)
        yield from found["items"]
        version = found["metadata"]["resourceVersion"]
        left = deadline - time.monotonic()
        if left <= 0:
            return
        connection = self._connection(left)
        try:
            query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={max(1, int(left))}"
            response = self._send(connection, "GET", query, None, "")
            for line in response:
                yield json.loads(line)["object"]
        except TimeoutError:
            return
        finally:
            connection.close()


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:300]
