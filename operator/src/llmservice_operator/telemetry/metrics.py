"""Every metric of the operator, in one place. Ages are told as timestamps, for the reader to subtract."""

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmservice_operator.telemetry.scaling import ScalingSample, ServiceSeries, ServiceState
from llmservice_operator.version import __version__

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class PlanTerm(NamedTuple):
    """One term of a service's memory, as planned and as its engine reported it."""

    namespace: str
    name: str
    term: str
    predicted_bytes: int | None
    actual_bytes: int | None


class Metrics:
    """The operator's metrics and the observers that fill them."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series each, that nobody reads
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._services: ServiceSeries | None = None

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"llmservice_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"llmservice_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"llmservice_{name}", text, labels, registry=self.registry, buckets=SECONDS)

        gauge("build_info", "1, with the operator's version.", "version", "python").labels(
            __version__, platform.python_version()
        ).set(1)
        self.leader = gauge("leader", "1 while this process holds the Lease, 0 on a standby.")
        self.reconciles = counter("reconciles_total", "Reconciles by result: success or error.", "result")
        self.reconcile_seconds = histogram("reconcile_duration_seconds", "Duration of a reconcile.")
        self.queue_wait_seconds = histogram(
            "workqueue_wait_seconds", "How long a key waited for a worker before its reconcile."
        )
        self.api_requests = counter(
            "api_requests_total", "Requests to the API server by verb and status code.", "verb", "code"
        )
        self.api_seconds = histogram("api_request_duration_seconds", "Duration of a request.", "verb")
        self.applies = counter(
            "applies_total", "Applies by kind and result; `unchanged` ones were not sent.", "kind", "result"
        )
        self.events = counter("events_total", "Events by what became of them.", "result")
        self.watch_events = counter("watch_events_total", "Watch events by kind.", "kind")
        self.watch_restarts = counter(
            "watch_restarts_total", "Lists that a watch had to begin again with, by kind.", "kind"
        )
        self.watch_last_event = gauge(
            "watch_last_event_timestamp_seconds", "When the last watch event of the kind came.", "kind"
        )
        self.last_sweep = gauge(
            "store_last_sweep_timestamp_seconds", "When the store was last compared with a list.", "kind"
        )
        self.scrape_failures = counter(
            "engine_scrape_failures_total",
            "Engines' metrics pages that could not be had, by reason.",
            "reason",
        )
        self.scrape_seconds = histogram(
            "engine_scrape_duration_seconds", "Duration of a request for an engine's metrics page."
        )
        for failure in ("timeout", "unreachable", "answer", "page", "address"):
            self.scrape_failures.labels(failure)
        for result in ("success", "error"):
            self.reconciles.labels(result)
        for fate in ("posted", "repeated", "limited", "dropped", "failed"):
            self.events.labels(fate)

    def watch(
        self,
        *,
        queue_depth: Callable[[], float],
        queue_delayed: Callable[[], float],
        queue_age_seconds: Callable[[], float],
        objects: Callable[[], Mapping[str, int]],
        services: Callable[[], Mapping[tuple[str, str], int]],
        plans: Callable[[], Iterable[PlanTerm]] = tuple,
    ) -> None:
        """Also tell these values, read at the time of a scrape."""
        self.registry.register(
            _Live(queue_depth, queue_delayed, queue_age_seconds, objects, services, plans=plans),
        )

    def watch_services(
        self,
        states: Callable[[], Iterable[ServiceState]],
        scaling: Callable[[], Iterable[ScalingSample]],
    ) -> None:
        """Also tell of each service; its series go with it."""
        self._services = ServiceSeries(states, scaling)

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        services = "" if self._services is None else self._services.page()
        return generate_latest(self.registry) + services.encode()

    def requested(self, verb: str, code: str, duration_seconds: float) -> None:
        """A request to the API server was answered."""
        self.api_requests.labels(verb, code).inc()
        self.api_seconds.labels(verb).observe(duration_seconds)

    def applied(self, kind: str, result: str) -> None:
        """An apply was needed, or was not."""
        self.applies.labels(kind, result).inc()

    def scraped(self, failure: str, duration_seconds: float) -> None:
        """An engine was asked for its metrics page; `failure` is empty where it answered."""
        self.scrape_seconds.observe(duration_seconds)
        if failure:
            self.scrape_failures.labels(failure).inc()

    def recorded(self, result: str) -> None:
        """An event was posted, repeated, limited, dropped or failed."""
        self.events.labels(result).inc()


class _Live(Collector):
    """Values that are read when asked for."""

    def __init__(
        self,
        queue_depth: Callable[[], float],
        queue_delayed: Callable[[], float],
        queue_age_seconds: Callable[[], float],
        objects: Callable[[], Mapping[str, int]],
        services: Callable[[], Mapping[tuple[str, str], int]],
        *,
        plans: Callable[[], Iterable[PlanTerm]],
    ) -> None:
        self._queue = {
            "workqueue_depth": ("Keys that wait for a worker.", queue_depth),
            "workqueue_delayed": ("Keys that wait for their time.", queue_delayed),
            "workqueue_oldest_age_seconds": (
                "How long the oldest waiting key has waited.",
                queue_age_seconds,
            ),
        }
        self._objects = objects
        self._services = services
        self._plans = plans

    def collect(self) -> Iterable[Metric]:
        """The families, with their values now."""
        for name, (text, read) in self._queue.items():
            yield GaugeMetricFamily(f"llmservice_{name}", text, value=read())
        objects = GaugeMetricFamily("llmservice_objects", "Objects in the store by kind.", labels=["kind"])
        for kind, count in self._objects().items():
            objects.add_metric([kind], count)
        yield objects
        services = GaugeMetricFamily(
            "llmservice_services", "LLMServices by their Ready condition.", labels=["ready", "reason"]
        )
        for (ready, reason), count in self._services().items():
            services.add_metric([ready, reason], count)
        yield services
        yield from self._terms()

    def _terms(self) -> Iterable[Metric]:
        """Plan and report of every service that has reported; a service's series go with it."""
        labels = ["namespace", "name", "term"]
        predicted = GaugeMetricFamily(
            "llmservice_plan_predicted_bytes", "Memory of one accelerator by term, as planned.", labels=labels
        )
        actual = GaugeMetricFamily(
            "llmservice_plan_actual_bytes",
            "Memory of one accelerator by term, as the engine reported it at its last start.",
            labels=labels,
        )
        for term in self._plans():
            where = [term.namespace, term.name, term.term]
            if term.predicted_bytes is not None:
                predicted.add_metric(where, term.predicted_bytes)
            if term.actual_bytes is not None:
                actual.add_metric(where, term.actual_bytes)
        yield predicted
        yield actual
