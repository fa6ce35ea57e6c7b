"""Turns what the queue, watches and sweeps tell into metrics, and writes the canonical log line of each reconcile."""

import logging
from typing import Any

from llmservice_operator.clock import Clock
from llmservice_operator.controller.keys import Key
from llmservice_operator.errors import LLMServiceError
from llmservice_operator.telemetry.log import start_line
from llmservice_operator.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class Reporter:
    """Observes the queue (`QueueObserver`), watches (`WatchObserver`) and sweeps (`SweepObserver`)."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lines: dict[Key, dict[str, Any]] = {}

    def started(self, key: Key, waited_seconds: float) -> None:
        """Begin the line."""
        self._metrics.queue_wait_seconds.observe(waited_seconds)
        self._lines[key] = start_line()
        self._lines[key]["waited_ms"] = round(waited_seconds * 1000, 1)

    def finished(
        self, key: Key, duration_seconds: float, error: Exception | None, again_seconds: float | None
    ) -> None:
        """Write the line."""
        result = "success" if error is None else "error"
        self._metrics.reconciles.labels(result).inc()
        self._metrics.reconcile_seconds.observe(duration_seconds)
        line = {
            "service": str(key),
            "result": result,
            "duration_ms": round(duration_seconds * 1000, 1),
            "again_seconds": None if again_seconds is None else round(again_seconds, 1),
            **self._lines.pop(key, {}),
        }
        if error is None:
            logger.info("reconcile", extra={"fields": line})
        else:
            expected = isinstance(error, LLMServiceError)
            line["error"] = str(error) or type(error).__name__
            logger.warning("reconcile", extra={"fields": line}, exc_info=None if expected else error)

    def watched(self, kind: str) -> None:
        """Count an event."""
        self._metrics.watch_events.labels(kind).inc()
        self._metrics.watch_last_event.labels(kind).set(self._clock.now())

    def relisted(self, kind: str) -> None:
        """Count a new list."""
        self._metrics.watch_restarts.labels(kind).inc()

    def swept(self, kind: str) -> None:
        """Note the time of a sweep, and count the kind's new lists from 0 on: an increase needs a begin."""
        self._metrics.last_sweep.labels(kind).set(self._clock.now())
        self._metrics.watch_restarts.labels(kind)
