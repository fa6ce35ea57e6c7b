"""Sizing: the plan against what the engine measured."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from observability.dashboards.engine import OF_SERVICE
from observability.dashboards.parts import (
    Column,
    Panel,
    Query,
    bars,
    graph,
    number,
    page,
    rows,
    states,
    variable,
)
from observability.dashboards.theme import EXPECTED, GOOD, IDLE, MEASURED, NEUTRAL, PROMISED

OWN = 'namespace="$namespace",name="$service"'
TOLERANCE_BYTES = 2**30
SIZING_PAGE = (
    "/d/llmservice-sizing?var-datasource=${datasource}"
    "&var-namespace=${__data.fields.Namespace}&var-service=${__data.fields.Service}&${__url_time_range}"
)


SUMS = "requested|total"
"""Terms that others are part of."""


def _by_term(name: str, of: str = "") -> str:
    return f"max by (term) (llmservice_plan_{name}_bytes{{{OWN}{of}}})"


def _parts(name: str) -> str:
    """The largest first."""
    apart = f',term!~"{SUMS}"'
    return f"sort_desc({_by_term(name, apart)})"


def _numbers() -> list[Panel]:
    kv = f'llmservice_plan_actual_bytes{{{OWN},term="kv_cache"}}'
    kv_planned = f'llmservice_plan_predicted_bytes{{{OWN},term="kv_cache"}}'
    return [
        number(
            "KV cache, against the plan",
            Query(expr=f"max({kv}) / max({kv_planned}) - 1"),
            unit="percentunit",
            decimals=1,
            steps=((None, PROMISED), (-0.02, GOOD), (0.15, IDLE)),
            nothing="not reported",
            description="Below 0: the engine holds less than was promised.",
        ),
        number(
            "Tokens that the cache holds",
            Query(expr=f"min(llmservice_runtime_kv_cache_tokens{{{OF_SERVICE}}})"),
            decimals=0,
            unit="locale",
            nothing="not reported",
        ),
        number(
            "Longest request",
            Query(expr=f"min(llmservice_runtime_max_model_len{{{OF_SERVICE}}})"),
            decimals=0,
            unit="locale",
            nothing="not reported",
            description="Tokens, prompt and answer.",
        ),
        number(
            "Requests of full length at once",
            Query(
                expr=f"min(llmservice_runtime_kv_cache_tokens{{{OF_SERVICE}}} "
                f"/ llmservice_runtime_max_model_len{{{OF_SERVICE}}})"
            ),
            decimals=1,
            nothing="not reported",
        ),
    ]


def _starts() -> list[Panel]:
    start = f"max(llmservice_runtime_start_seconds{{{OF_SERVICE}}})"
    return [
        number(
            "Slowest start, of its budget",
            Query(expr=f"{start} / max(llmservice_runtime_start_budget_seconds{{{OF_SERVICE}}})"),
            unit="percentunit",
            decimals=0,
            steps=((None, GOOD), (0.7, IDLE), (1, PROMISED)),
        ),
        number(
            "Weights loaded",
            Query(
                expr=f"min(llmservice_runtime_weights_loaded_bytes{{{OF_SERVICE}}} "
                f"/ llmservice_runtime_weights_total_bytes{{{OF_SERVICE}}})"
            ),
            unit="percentunit",
            decimals=0,
            steps=((None, IDLE), (1, GOOD)),
            description="Of the replica that is furthest behind.",
        ),
    ]


def _memory() -> list[Panel]:
    difference = f"{_by_term('actual')} - {_by_term('predicted')}"
    return [
        bars(
            "Planned, by term",
            Query(expr=_parts("predicted"), legend="{{term}}", colour=EXPECTED),
            unit="bytes",
            description="Of one accelerator's memory.",
        ),
        bars(
            "Measured, by term",
            Query(expr=_parts("actual"), legend="{{term}}", colour=MEASURED),
            unit="bytes",
            description="As the engine reported at its last start.",
        ),
        rows(
            "Difference",
            Column(name="Term", label="term"),
            Column(name="Planned", query=_by_term("predicted"), unit="bytes"),
            Column(name="Measured", query=_by_term("actual"), unit="bytes"),
            Column(
                name="Difference",
                query=difference,
                unit="bytes",
                steps=((None, IDLE), (-TOLERANCE_BYTES, NEUTRAL), (TOLERANCE_BYTES, IDLE)),
            ),
            width=8,
            height=7,
            description="Coloured beyond 1 GiB. What is told as a fault is the condition PlanAccurate.",
        ),
    ]


def _start() -> list[Panel]:
    return [
        bars(
            "Steps of the slowest start",
            Query(
                expr=f"sort_desc(max by (step) (llmservice_runtime_start_step_seconds{{{OF_SERVICE}}}))",
                legend="{{step}}",
                colour=MEASURED,
            ),
            unit="s",
        ),
        graph(
            "Starts",
            Query(expr=f"max by (pod) (llmservice_runtime_start_seconds{{{OF_SERVICE}}})", legend="{{pod}}"),
            Query(
                expr=f"max(llmservice_runtime_start_budget_seconds{{{OF_SERVICE}}})",
                legend="budget",
                colour=PROMISED,
                dashed=True,
            ),
            unit="s",
            description="Rises while a replica starts, and stays when it is ready.",
        ),
        states(
            "Replicas",
            Query(
                expr=" or ".join(
                    f'max by (pod) ({number} * (llmservice_runtime_phase{{{OF_SERVICE},phase="{phase}"}} == 1))'
                    for number, phase in enumerate(("Starting", "Ready", "Draining", "Failed"), start=1)
                ),
                legend="{{pod}}",
            ),
            width=8,
            words={
                "1": ("starting", "purple"),
                "2": ("ready", GOOD),
                "3": ("draining", IDLE),
                "4": ("failed", PROMISED),
            },
        ),
    ]


def _all() -> list[Panel]:
    def bytes_of(what: str, term: str) -> str:
        return f'max by (namespace, name) (llmservice_plan_{what}_bytes{{term="{term}"}})'

    told = 'max by (namespace, name) (llmservice_service_condition{{type="PlanAccurate",status="{status}"}})'
    accurate = f"{told.format(status='True')} or 0 * {told.format(status='False')}"
    predicted, actual = bytes_of("predicted", "kv_cache"), bytes_of("actual", "kv_cache")
    return [
        rows(
            "All services",
            Column(name="Namespace", label="namespace"),
            Column(name="Service", label="name", link=SIZING_PAGE),
            Column(
                name="Accurate",
                query=accurate,
                steps=((None, PROMISED), (1, GOOD)),
                words={"0": "no", "1": "yes"},
            ),
            Column(name="KV planned", query=predicted, unit="bytes"),
            Column(name="KV measured", query=actual, unit="bytes"),
            Column(
                name="KV off by",
                query=f"{actual} / {predicted} - 1",
                unit="percentunit",
                steps=((None, PROMISED), (-0.02, GOOD), (0.15, IDLE)),
            ),
            Column(name="Weights planned", query=bytes_of("predicted", "weights"), unit="bytes"),
            Column(name="Weights measured", query=bytes_of("actual", "weights"), unit="bytes"),
            height=6,
            sort="Service",
            description="*Accurate* is the condition PlanAccurate; nothing until an engine has reported.",
        )
    ]


def dashboard() -> Dashboard:
    """Plans and reports."""
    namespace = variable(
        "namespace", "Namespace", "label_values(llmservice_plan_predicted_bytes, namespace)", several=False
    )
    service = variable(
        "service",
        "Service",
        'label_values(llmservice_plan_predicted_bytes{namespace="$namespace"}, name)',
        several=False,
    )
    return page(
        "llmservice-sizing",
        "LLMService / Sizing",
        "What was planned, and what the engine measured.",
        {
            "Plan and report": [*_numbers(), *_starts()],
            "Memory of one accelerator": _memory(),
            "Start": _start(),
            "All services": _all(),
        },
        variables=[namespace, service],
    )
