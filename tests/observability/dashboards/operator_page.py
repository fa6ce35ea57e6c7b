"""Operator: is it there, does it keep up, and is it let."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from observability.dashboards.parts import Panel, Query, graph, number, page
from observability.dashboards.theme import (
    COMING,
    EXPECTED,
    GOOD,
    IDLE,
    MEASURED,
    MEASURED_TOO,
    NEUTRAL,
    PROMISED,
    PROMISED_TOO,
)

TICK_LIMIT_SECONDS = 30
BLIND_SECONDS = 3600
"""As the alert LLMServiceOperatorBlind has it."""


def _rate(counter: str, by: str, of: str = "") -> str:
    return f"sum by ({by}) (rate({counter}{of}[$__rate_interval]))"


def _quantiles(histogram: str) -> tuple[Query, Query]:
    buckets = f"sum by (le) (rate({histogram}_bucket[$__rate_interval]))"
    return (
        Query(expr=f"histogram_quantile(0.5, {buckets})", legend="p50", colour=MEASURED_TOO),
        Query(expr=f"histogram_quantile(0.99, {buckets})", legend="p99", colour=MEASURED),
    )


def _numbers() -> list[Panel]:
    errors = 'sum(rate(llmservice_reconciles_total{result="error"}[15m]))'
    return [
        number(
            "Leaders",
            Query(expr="sum(llmservice_leader) or vector(0)"),
            steps=((None, PROMISED), (1, GOOD), (2, PROMISED)),
            description="One at any time; none while the Lease changes hands.",
        ),
        number(
            "Copies", Query(expr="count(llmservice_leader) or vector(0)"), steps=((None, PROMISED), (1, GOOD))
        ),
        number(
            "Reconciles that failed (15 min)",
            Query(expr=f"{errors} / (sum(rate(llmservice_reconciles_total[15m])) > 0)"),
            unit="percentunit",
            steps=((None, GOOD), (0.01, IDLE), (0.1, PROMISED)),
            decimals=1,
            nothing="none ran",
        ),
        number(
            "Longest wait in the queue",
            Query(expr="max(llmservice_workqueue_oldest_age_seconds)"),
            unit="s",
            steps=((None, GOOD), (10, IDLE), (60, PROMISED)),
            decimals=1,
        ),
        number(
            "Engine pages not read (15 min)",
            Query(expr="sum(increase(llmservice_engine_scrape_failures_total[15m])) or vector(0)"),
            steps=((None, GOOD), (20, IDLE)),
            decimals=0,
        ),
        number("Version", Query(expr="topk(1, llmservice_build_info)", legend="{{version}}"), is_name=True),
    ]


def _work() -> list[Panel]:
    return [
        graph(
            "Reconciles per second",
            Query(
                expr=_rate("llmservice_reconciles_total", "result", '{result="success"}'),
                legend="success",
                colour=GOOD,
            ),
            Query(
                expr=_rate("llmservice_reconciles_total", "result", '{result="error"}'),
                legend="error",
                colour=PROMISED,
            ),
            unit="ops",
        ),
        graph(
            "Duration of a reconcile",
            *_quantiles("llmservice_reconcile_duration_seconds"),
            unit="s",
            nothing="none ran",
        ),
        graph(
            "Wait in the queue",
            *_quantiles("llmservice_workqueue_wait_seconds"),
            unit="s",
            description="From a change to its reconcile.",
            nothing="nothing changed",
        ),
        graph(
            "Queue",
            Query(expr="sum(llmservice_workqueue_depth)", legend="waiting for a worker", colour=COMING),
            Query(
                expr="sum(llmservice_workqueue_delayed)", legend="waiting for their time", colour=MEASURED_TOO
            ),
            unit="short",
            is_count=True,
        ),
    ]


def _decisions() -> list[Panel]:
    return [
        graph(
            "Scaling decisions that changed replicas, per hour",
            Query(expr=_changes("out"), legend="more replicas", colour=EXPECTED),
            Query(expr=_changes("in"), legend="fewer replicas", colour=MEASURED_TOO),
            unit="short",
            is_count=True,
            description="Of all services. What ruled them is on the page *Service*.",
        ),
        graph(
            "Time since a decision, longest",
            Query(
                expr="time() - min(llmservice_scaling_decision_timestamp_seconds)",
                legend="oldest",
                colour=EXPECTED,
            ),
            unit="s",
            limits=[(TICK_LIMIT_SECONDS * 2, PROMISED)],
            description="Of all scaled services; every 15 s is usual.",
            nothing="no service is scaled",
        ),
    ]


def _changes(direction: str) -> str:
    """Decisions of this direction within an hour, in whole ones."""
    counted = f'increase(llmservice_scaling_decisions_total{{direction="{direction}"}}[1h])'
    return f"round(sum({counted})) or vector(0)"


def _api() -> list[Panel]:
    return [
        graph(
            "Requests to the API server",
            Query(expr=_rate("llmservice_api_requests_total", "verb, code"), legend="{{verb}} {{code}}"),
            unit="reqps",
            stacked=True,
        ),
        graph(
            "Duration of a request",
            *_quantiles("llmservice_api_request_duration_seconds"),
            unit="s",
            nothing="none was sent",
        ),
        graph(
            "Applies",
            Query(expr=_rate("llmservice_applies_total", "result"), legend="{{result}}"),
            unit="ops",
            stacked=True,
            colours={"created": EXPECTED, "updated": MEASURED, "unchanged": NEUTRAL},
            description="`unchanged` ones were not sent.",
        ),
        graph(
            "Events, by what became of them",
            Query(expr=_rate("llmservice_events_total", "result"), legend="{{result}}"),
            unit="ops",
            stacked=True,
            colours={
                "posted": MEASURED,
                "repeated": MEASURED_TOO,
                "limited": IDLE,
                "dropped": PROMISED_TOO,
                "failed": PROMISED,
            },
            description="`repeated`: counted on the first of its kind. `limited`: too many on one object.",
        ),
    ]


def _watches() -> list[Panel]:
    return [
        graph(
            "Changes that were watched",
            Query(expr=_rate("llmservice_watch_events_total", "kind"), legend="{{kind}}"),
            unit="ops",
            stacked=True,
            description="None is no fault where nothing changes.",
        ),
        graph(
            "Watches that began again, per hour",
            Query(
                expr="round(sum by (kind) (increase(llmservice_watch_restarts_total[1h])))", legend="{{kind}}"
            ),
            unit="short",
            stacked=True,
            is_count=True,
            description="With a new list. A watch that only goes on from where it broke off is none.",
        ),
    ]


def _sight() -> list[Panel]:
    return [
        graph(
            "Since the store was compared with a list",
            Query(
                expr="time() - max by (kind) (llmservice_store_last_sweep_timestamp_seconds)",
                legend="{{kind}}",
            ),
            unit="s",
            limits=[(BLIND_SECONDS, PROMISED)],
            description="What a watch has missed is found then.",
        ),
        graph(
            "Scrape of an engine",
            *_quantiles("llmservice_engine_scrape_duration_seconds"),
            unit="s",
            description="The operator reads each engine's metrics page itself.",
            nothing="no engine was read",
        ),
        graph(
            "Engines' pages not read, by reason",
            Query(
                expr="sum by (reason) (rate(llmservice_engine_scrape_failures_total[$__rate_interval]))",
                legend="{{reason}}",
            ),
            unit="ops",
            stacked=True,
        ),
    ]


def _process() -> list[Panel]:
    mine = "* on (instance) group_left () (llmservice_leader * 0 + 1)"
    return [
        graph(
            "CPU cores",
            Query(expr=f"rate(process_cpu_seconds_total[$__rate_interval]) {mine}", legend="{{pod}}"),
            unit="short",
        ),
        graph("Memory", Query(expr=f"process_resident_memory_bytes {mine}", legend="{{pod}}"), unit="bytes"),
        graph(
            "Objects in the store",
            Query(expr="max by (kind) (llmservice_objects)", legend="{{kind}}"),
            unit="short",
            is_count=True,
        ),
    ]


def dashboard() -> Dashboard:
    """The operator itself."""
    return page(
        "llmservice-operator",
        "LLMService / Operator",
        "Is the operator there, does it keep up, and is it let?",
        {
            "State": _numbers(),
            "Work": [*_work(), *_decisions()],
            "API server": [*_api(), *_watches()],
            "Engines' pages and the store": _sight(),
            "Process": _process(),
        },
        variables=[],
    )
