"""The engine's own HTTP pages, read from beside it: /health and /metrics."""

from __future__ import annotations

import http.client
import json
import math
import re
from dataclasses import dataclass, replace

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)")
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
# Any of these moving is progress: tokens made, prompts read and, for a long prompt in pieces, tokens a step.
_PROGRESS = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_sum")
_MAX_PAGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Load:
    """Summed over the page's data-parallel engines. None: the series is missing or not a number.

    `accepted` is what the API server itself counts (/load); it stays 0 without --enable-server-load-tracking. It
    knows of requests that the core has not told of: vLLM's gauges move only when a step of the core ends, so a core
    that hangs in its first step leaves them at 0.
    """

    running: float | None = None
    waiting: float | None = None
    tokens: float | None = None
    accepted: float = 0.0

    @property
    def in_flight(self) -> float | None:
        """Requests that are not finished."""
        if self.running is None or self.waiting is None:
            return None
        return max(self.running + self.waiting, self.accepted)


def parse_load(page: str) -> Load:
    """The few series of a vLLM metrics page (0.19 to 0.33) that tell load and progress."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith("vllm:"):
            continue
        match = _SAMPLE.match(line)
        if match is None or match.group(1) not in (_RUNNING, _WAITING, *_PROGRESS):
            continue
        try:
            value = float(match.group(2))
        except ValueError:
            value = math.nan
        sums[match.group(1)] = sums.get(match.group(1), 0.0) + value
    tokens = [sums[name] for name in _PROGRESS if name in sums]
    return Load(
        _finite(sums.get(_RUNNING)), _finite(sums.get(_WAITING)), _finite(sum(tokens)) if tokens else None
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class EngineClient:
    """Reads the engine on this pod's loopback. Errors are answers: None."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_seconds: float = 2.0) -> None:
        self._address = (host, port)
        self._timeout = timeout_seconds

    def health(self) -> int | None:
        """The status code of /health; None when nothing answered."""
        answer = self._get("/health")
        return answer[0] if answer is not None else None

    def load(self) -> Load:
        """What /metrics says of load; empty when it could not be read."""
        answer = self._get("/metrics")
        if answer is None or answer[0] != http.client.OK:
            return Load()
        load = parse_load(answer[1].decode("utf-8", errors="replace"))
        return replace(load, accepted=self._accepted())

    def _accepted(self) -> float:
        answer = self._get("/load")
        try:
            return float(json.loads(answer[1])["server_load"]) if answer is not None else 0.0
        except (ValueError, KeyError, TypeError):
            return 0.0

    def _get(self, path: str) -> tuple[int, bytes] | None:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read(_MAX_PAGE_BYTES)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
