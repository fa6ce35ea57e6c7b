"""Fleet: do all services keep what they promise, and what do the accelerators do."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from llmservice_operator.engines.metric_names import Series
from observability.dashboards import engine
from observability.dashboards.parts import (
    Column,
    Panel,
    Query,
    graph,
    is_met,
    note,
    number,
    page,
    rows,
    variable,
)
from observability.dashboards.theme import (
    COMING,
    GOOD,
    IDLE,
    NEUTRAL,
    OBJECTIVE_SHARE,
    PROMISED,
    PROMISED_TOO,
)

WHERE = 'namespace=~"$namespace"'
SERVICE_PAGE = (
    "/d/llmservice-service?var-datasource=${datasource}"
    "&var-namespace=${__data.fields.Namespace}&var-service=${__data.fields.Service}&${__url_time_range}"
)
GPU_UTIL = """\
There is no *GPU utilisation* here, on purpose. `DCGM_FI_DEV_GPU_UTIL` and `nvidia-smi` say that **a kernel ran**, not
that work got done: an engine that decodes one sequence shows near 100 %, as does a full one. It tells neither how much
room is left nor when to scale.

Look at the objectives, at tokens for each accelerator, at KV use, and at memory bandwidth (page *Service*).
"""


def attainment(objective: str, window: str = "$__range", by: str = "") -> str:
    """Share of requests within an objective."""
    of = f'{WHERE},objective="{objective}"'
    total = f"sum{by} (increase(llmservice_slo_requests_total{{{of}}}[{window}]))"
    return f"sum{by} (increase(llmservice_slo_requests_met_total{{{of}}}[{window}])) / ({total} > 0)"


def _by_name(engines: str) -> str:
    """Engines' series under the name that the operator's have."""
    return f'label_replace({engines}, "name", "$1", "llmservice", "(.*)")'


def _promises() -> list[Panel]:
    return [
        number(
            "First token in time",
            Query(expr=attainment("ttft")),
            unit="percentunit",
            steps=is_met(OBJECTIVE_SHARE),
            decimals=2,
            description="Share of requests whose first token came within `spec.slo.ttft`, all services that have it.",
            nothing="not measured",
        ),
        number(
            "Tokens in time",
            Query(expr=attainment("tpot")),
            unit="percentunit",
            steps=is_met(OBJECTIVE_SHARE),
            decimals=2,
            description="Share of requests whose time per output token was within `spec.slo.tpot`, all services "
            "that have it.",
            nothing="not measured",
        ),
    ]


def _numbers() -> list[Panel]:
    ready = f'llmservice_service_condition{{{WHERE},type="Ready",status="True"}}'
    wrong = f'llmservice_service_condition{{{WHERE},type="Ready",status!="True"}}'
    stalled = f'llmservice_service_condition{{{WHERE},type="Stalled",status="True"}}'
    bad = ((None, GOOD), (1, PROMISED))
    return [
        number("Services ready", Query(expr=f"count({ready} == 1) or vector(0)"), width=3),
        number(
            "Not ready",
            Query(expr=f"count({wrong} == 1) or vector(0)"),
            width=3,
            steps=((None, GOOD), (1, COMING)),
        ),
        number(
            "Need a person",
            Query(expr=f"count({stalled} == 1) or vector(0)"),
            width=3,
            steps=bad,
            description="Services whose condition `Stalled` is True: the message ends with what to do.",
        ),
        number(
            "Accelerators held",
            Query(expr=f"sum(llmservice_service_accelerators{{{WHERE}}}) or vector(0)"),
            width=3,
        ),
        number(
            "of them idle",
            Query(
                expr=f"sum(llmservice:accelerators_idle{{{WHERE}}}) "
                f"/ (sum(llmservice_service_accelerators{{{WHERE}}}) > 0)"
            ),
            unit="percentunit",
            steps=((None, GOOD), (0.25, IDLE)),
            decimals=0,
            description="Held by a ready engine that ran no request for 10 minutes.",
            nothing="none held",
        ),
    ]


def _table() -> list[Panel]:
    by = " by (namespace, name)"
    ready = f'max by (namespace, name) (llmservice_service_replicas{{{WHERE},state="ready"}})'
    desired = f'max by (namespace, name) (llmservice_service_replicas{{{WHERE},state="desired"}})'
    tokens = _by_name(engine.rate(Series.GENERATION_TOKENS, "namespace, llmservice", where=WHERE))
    waiting = _by_name(engine.summed(Series.WAITING, "namespace, llmservice", where=WHERE))
    return [
        rows(
            "Services",
            Column(name="Namespace", label="namespace"),
            Column(name="Service", label="name", link=SERVICE_PAGE),
            Column(name="Wanted", query=desired),
            Column(name="Ready", query=ready),
            Column(
                name="Missing",
                query=f"clamp_min({desired} - {ready}, 0)",
                steps=((None, NEUTRAL), (1, COMING)),
            ),
            Column(
                name="First token in time",
                query=attainment("ttft", by=by),
                unit="percentunit",
                steps=is_met(OBJECTIVE_SHARE),
            ),
            Column(
                name="Tokens in time",
                query=attainment("tpot", by=by),
                unit="percentunit",
                steps=is_met(OBJECTIVE_SHARE),
            ),
            Column(name="Waiting", query=f"sum by (namespace, name) ({waiting})"),
            Column(name="Tokens/s", query=f"sum by (namespace, name) ({tokens})"),
            Column(
                name="Accelerators",
                query=f"sum by (namespace, name) (llmservice_service_accelerators{{{WHERE}}})",
            ),
            Column(
                name="Idle",
                query=f"sum by (namespace, name) (llmservice:accelerators_idle{{{WHERE}}})",
                steps=((None, NEUTRAL), (0.5, IDLE)),
            ),
            height=6,
            sort="Service",
            description="Attainment is over the dashboard's time range; a service without `spec.slo` has none. "
            "A name opens the service's own page.",
        )
    ]


def _objectives() -> list[Panel]:
    legend = "{{namespace}}/{{name}}"
    burn = f"max by (namespace, name) (llmservice:slo_burn:rate1h{{{WHERE}}})"
    return [
        graph(
            "First token in time, by service",
            Query(expr=attainment("ttft", "5m", " by (namespace, name)"), legend=legend),
            unit="percentunit",
            nothing="no requests under spec.slo",
            limits=[(OBJECTIVE_SHARE, PROMISED)],
            largest=1,
        ),
        graph(
            "Tokens in time, by service",
            Query(expr=attainment("tpot", "5m", " by (namespace, name)"), legend=legend),
            unit="percentunit",
            nothing="no requests under spec.slo",
            limits=[(OBJECTIVE_SHARE, PROMISED)],
            largest=1,
        ),
        graph(
            "Error budget burnt, times what is sustainable (1 h)",
            Query(expr=burn, legend=legend),
            unit="none",
            limits=[(1, IDLE), (14.4, PROMISED)],
            nothing="no requests under spec.slo",
            description="1: the budget of 5 % lasts exactly. 14.4: two days' budget in an hour, which pages.",
        ),
    ]


def _accelerators() -> list[Panel]:
    held = f"(sum(llmservice_service_accelerators{{{WHERE}}}) or vector(0))"
    idle = f"(sum(llmservice:accelerators_idle{{{WHERE}}}) or vector(0))"
    coming = f"(sum(llmservice:accelerators_not_serving{{{WHERE}}}) or vector(0))"
    tokens = engine.rate(Series.GENERATION_TOKENS, "namespace, llmservice", where=WHERE)
    held_by = f"sum by (namespace, name) (llmservice_service_accelerators{{{WHERE}}})"
    return [
        graph(
            "Accelerators",
            Query(expr=f"{held} - {idle} - {coming}", legend="at work", colour=GOOD),
            Query(expr=coming, legend="engine not ready", colour=COMING),
            Query(expr=idle, legend="idle for 10 min", colour=IDLE),
            unit="short",
            stacked=True,
            is_count=True,
            description="What services hold. *engine not ready*: held by replicas that start or fail to.",
        ),
        graph(
            "Output tokens per second, per accelerator",
            Query(
                expr=f"sum by (namespace, name) ({_by_name(tokens)}) / ({held_by} > 0)",
                legend="{{namespace}}/{{name}}",
            ),
            unit="short",
            description="What the money buys. It depends on model and lengths: compare a service with itself.",
        ),
        graph(
            "Output tokens per second",
            Query(expr=tokens, legend="{{namespace}}/{{llmservice}}"),
            unit="short",
            stacked=True,
        ),
    ]


def _conditions() -> list[Panel]:
    not_good = (
        f'sum by (type) (llmservice_service_condition{{{WHERE},type!="Stalled",status="False"}}) '
        f'or sum by (type) (llmservice_service_condition{{{WHERE},type="Stalled",status="True"}}) '
        'or on () label_replace(vector(0), "type", "none", "", "")'
    )
    return [
        graph(
            "Services by their Ready condition's reason",
            Query(expr="max by (ready, reason) (llmservice_services)", legend="{{ready}}: {{reason}}"),
            nothing="no services",
            unit="short",
            stacked=True,
            is_count=True,
            colours={"True: Ready": GOOD, "False: NoReadyReplicas": PROMISED},
            description="Of all namespaces.",
        ),
        graph(
            "Conditions that aren't good",
            Query(expr=not_good, legend="{{type}}"),
            unit="short",
            stacked=True,
            is_count=True,
            colours={"Stalled": PROMISED, "Available": PROMISED_TOO, "none": GOOD},
            description="How many services have each. Each type is good at True, but for Stalled.",
        ),
        note("Why there is no GPU utilisation", GPU_UTIL),
    ]


def dashboard() -> Dashboard:
    """All services at once."""
    namespace = variable(
        "namespace", "Namespace", "label_values(llmservice_service_replicas, namespace)", several=True
    )
    return page(
        "llmservice-fleet",
        "LLMService / Fleet",
        "Do all services keep what they promise, and what do the accelerators do?",
        {
            "Promised and kept": [*_promises(), *_numbers(), *_table()],
            "Objectives": _objectives(),
            "Accelerators": _accelerators(),
            "Conditions": _conditions(),
        },
        variables=[namespace],
    )
