"""Counts of API requests, read from the API server's audit log (one JSON event a line, level Metadata)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MUTATING_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, kw_only=True)
class Request:
    """One finished request. ``resource`` is ``group/resource`` with ``/subresource`` where there is one."""

    user: str
    user_agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int

    @property
    def mutating(self) -> bool:
        return self.verb in MUTATING_VERBS


class AuditLog:
    """Requests in the order in which they were answered; a watch counts once, when it starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """A place in the log: pass it as ``since`` to count only what comes after."""
        return self._path.stat().st_size if self._path.exists() else 0

    def requests(self, *, since: int = 0) -> Iterator[Request]:
        """All requests after ``since``. A line that is just being written is left for the next call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as handle:
            handle.seek(since)
            for line in handle:
                if line.endswith(b"\n") and counts_once(event := json.loads(line)):
                    yield parse(event)

    def counts(
        self, *, since: int = 0, user: str | None = None, user_agent: str | None = None
    ) -> Counter[tuple[str, str]]:
        """How often each (user, verb) was seen; ``user`` and ``user_agent`` filter by prefix."""
        return Counter(
            (request.user, request.verb)
            for request in self.requests(since=since)
            if request.user.startswith(user or "") and request.user_agent.startswith(user_agent or "")
        )


def counts_once(event: Mapping[str, Any]) -> bool:
    """One event of each request: a request that goes on has one at its start and one at its end."""
    starts = event.get("stage") == "ResponseStarted"
    if event["verb"] != "watch":
        return not starts
    return starts or int(event.get("responseStatus", {}).get("code", 0)) >= 400


def parse(event: Mapping[str, Any]) -> Request:
    """One audit event of audit.k8s.io/v1."""
    target = event.get("objectRef", {})
    group, resource, sub = (target.get(key, "") for key in ("apiGroup", "resource", "subresource"))
    full = f"{group}/{resource}" if group else resource
    return Request(
        user=event["user"].get("username", ""),
        user_agent=event.get("userAgent", ""),
        verb=event["verb"],
        resource=f"{full}/{sub}" if sub else full,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=int(event.get("responseStatus", {}).get("code", 0)),
    )
