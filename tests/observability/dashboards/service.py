"""Service: one service from its promise down to the memory bus."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from llmservice_operator.engines.metric_names import Series
from observability.dashboards import engine
from observability.dashboards.engine import OF_SERVICE
from observability.dashboards.parts import (
    Column,
    Panel,
    Query,
    graph,
    is_met,
    number,
    page,
    rows,
    states,
    variable,
)
from observability.dashboards.theme import (
    BANDWIDTH_LIMIT,
    BUDGET_SHARE,
    COMING,
    DRAM_ACTIVE_LIMIT,
    EXPECTED,
    GOOD,
    IDLE,
    KV_LIMIT,
    MEASURED,
    MEASURED_TOO,
    NEUTRAL,
    OBJECTIVE_SHARE,
    PROMISED,
)

OWN = 'namespace="$namespace",name="$service"'
OPTIONAL = "dram_active|sm_active|uncached_tokens_waiting|held_requests"
"""Signals that are missing where nobody exports them, which is no fault."""
PODS = 'namespace="$namespace",pod=~"$service-.+"'
"""DCGM names pods and no services; a Deployment's pods begin with its name."""


def attainment(objective: str, window: str) -> str:
    """Share of the service's requests within an objective."""
    of = f'{OWN},objective="{objective}"'
    total = f"sum(increase(llmservice_slo_requests_total{{{of}}}[{window}]))"
    return f"sum(increase(llmservice_slo_requests_met_total{{{of}}}[{window}])) / ({total} > 0)"


def objective(name: str) -> Query:
    """The promised bound, as a line."""
    return Query(
        expr=f'max(llmservice_slo_objective_seconds{{{OWN},objective="{name}"}})',
        legend="objective (p95)",
        colour=PROMISED,
        dashed=True,
    )


def scaling(name: str, of: str = "") -> str:
    """One of the scaling loop's gauges."""
    return f"max(llmservice_scaling_{name}{{{OWN}{of}}})"


def signal(name: str) -> str:
    """One of the signals that decisions are made from."""
    return scaling("signal", f',signal="{name}"')


def _promise() -> list[Panel]:
    def share(title: str, name: str) -> Panel:
        return number(
            title,
            Query(expr=attainment(name, "$__range")),
            unit="percentunit",
            steps=is_met(OBJECTIVE_SHARE),
            decimals=2,
            nothing="not measured",
            description=f"Share of requests within `spec.slo.{name}`, over the dashboard's time range; "
            "not measured without an objective or without requests.",
        )

    worst = f"max by (namespace, name) (llmservice:slo_misses:ratio_rate3d{{{OWN}}})"
    return [
        share("First token in time", "ttft"),
        share("Tokens in time", "tpot"),
        number(
            "Budget left (3 days)",
            Query(expr=f"1 - {worst} / {BUDGET_SHARE:.2f}"),
            unit="percentunit",
            steps=((None, PROMISED), (0, IDLE), (0.25, GOOD)),
            decimals=0,
            nothing="not measured",
            description="5 of 100 requests may miss an objective. Of the worse objective; below 0: more missed.",
        ),
        number(
            "Replicas ready",
            Query(expr=f'max(llmservice_service_replicas{{{OWN},state="ready"}})'),
            width=3,
            steps=((None, PROMISED), (1, GOOD)),
        ),
        number(
            "Replicas wanted",
            Query(expr=f'max(llmservice_service_replicas{{{OWN},state="desired"}})'),
            width=3,
            steps=((None, EXPECTED),),
        ),
        number(
            "Decided by",
            Query(expr=f"topk(1, llmservice_scaling_ruling_step{{{OWN}}} == 1)", legend="{{step}}"),
            width=6,
            description="The step of the last decision that ruled. Its words are in `status.scaling.reason`.",
            steps=((None, EXPECTED),),
            nothing="not scaled",
            is_name=True,
        ),
    ]


def _newest_of(share: float, series: tuple[Series, ...]) -> str:
    return " or ".join(engine.quantile(share, each) for each in series)


def _latency() -> list[Panel]:
    def quantiles(title: str, series: tuple[Series, ...], name: str, text: str) -> Panel:
        return graph(
            title,
            Query(expr=_newest_of(0.5, series), legend="p50", colour=MEASURED_TOO),
            Query(expr=_newest_of(0.95, series), legend="p95", colour=MEASURED),
            objective(name),
            unit="s",
            description=text,
            nothing="no requests",
        )

    end_to_end = (
        f"sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket{{{OF_SERVICE}}}[$__rate_interval]))"
    )
    return [
        quantiles(
            "Time to first token", (Series.TTFT,), "ttft", "From arrival at the engine, its queue included."
        ),
        quantiles(
            "Time per output token",
            (Series.TPOT, Series.ITL),
            "tpot",
            "Mean of each finished request; before 0.11, gaps between tokens. The first bucket ends at 10 ms.",
        ),
        graph(
            "End to end",
            Query(expr=f"histogram_quantile(0.5, {end_to_end})", legend="p50", colour=MEASURED_TOO),
            Query(expr=f"histogram_quantile(0.95, {end_to_end})", legend="p95", colour=MEASURED),
            unit="s",
            description="Of finished requests: it follows their lengths.",
        ),
    ]


def _replicas() -> list[Panel]:
    return [
        graph(
            "Replicas",
            Query(
                expr=f'max(llmservice_service_replicas{{{OWN},state="ready"}})', legend="ready", colour=GOOD
            ),
            Query(expr=scaling("desired_replicas"), legend="decided", colour=EXPECTED),
            Query(expr=scaling("pending_replicas"), legend="starting", colour=COMING),
            Query(expr=scaling("unschedulable_replicas"), legend="unschedulable", colour=PROMISED),
            Query(expr=scaling("max_replicas"), legend="maximum", colour=NEUTRAL, dashed=True),
            Query(expr=scaling("min_replicas"), legend="minimum", colour=NEUTRAL, dashed=True),
            unit="short",
            is_count=True,
        ),
        states(
            "What ruled",
            Query(expr=f"max by (step) (llmservice_scaling_ruling_step{{{OWN}}}) == 1", legend="{{step}}"),
            width=8,
            words={"0": (" ", "transparent"), "1": ("ruled", EXPECTED)},
            nothing="not scaled",
            description="The step of each decision that had the last word; the sentence is in status.scaling.",
        ),
        graph(
            "Replicas asked for, by step",
            Query(expr=f"max by (step) (llmservice_scaling_step_replicas{{{OWN}}})", legend="{{step}}"),
            unit="short",
            description="Each measure says how many it needs; the largest is taken, then guards and limits.",
            nothing="not scaled",
        ),
    ]


def _load() -> list[Panel]:
    return [
        graph(
            "Requests per second",
            Query(expr=signal("arrivals_per_second"), legend="arriving", colour=MEASURED),
            Query(expr=engine.rate(Series.FINISHED), legend="ending", colour=MEASURED_TOO),
            Query(
                expr=f"max(llmservice_scaling_capacity_requests_per_second{{{OWN}}} "
                f"* llmservice_scaling_capacity_correction_ratio{{{OWN}}} "
                f"* llmservice_scaling_ready_replicas{{{OWN}}})",
                legend="capacity of ready replicas",
                colour=EXPECTED,
                dashed=True,
            ),
            unit="reqps",
            description="The capacity is what the ready replicas take within the objectives, as corrected.",
        ),
        graph(
            "In the engines",
            Query(expr=engine.summed(Series.RUNNING), legend="running", colour=GOOD),
            Query(expr=engine.summed(Series.WAITING), legend="waiting", colour=COMING),
            unit="short",
            stacked=True,
        ),
        graph(
            "Tokens per second",
            Query(expr=engine.rate(Series.PROMPT_TOKENS), legend="in", colour=MEASURED_TOO),
            Query(expr=engine.rate(Series.GENERATION_TOKENS), legend="out", colour=MEASURED),
            unit="short",
        ),
        graph(
            "KV cache in use, by replica",
            Query(expr=engine.summed(Series.KV_USE, "pod"), legend="{{pod}}"),
            unit="percentunit",
            limits=[(KV_LIMIT, PROMISED)],
            largest=1,
            description="Above the line there must be more replicas: preemption is near.",
        ),
        graph(
            "Tokens in a batch",
            Query(
                expr=f"sum(rate(vllm:iteration_tokens_total_sum{{{OF_SERVICE}}}[$__rate_interval])) "
                f"/ sum(rate(vllm:iteration_tokens_total_count{{{OF_SERVICE}}}[$__rate_interval]))",
                legend="tokens per step",
                colour=MEASURED,
            ),
            unit="short",
            description="Mean of the engines' steps, prompts' chunks included.",
        ),
        graph(
            "Wasted and saved",
            Query(expr=engine.rate(Series.PREEMPTIONS), legend="preemptions per second", colour=PROMISED),
            Query(
                expr=f"({engine.rate(Series.PREFIX_HITS)}) / ({engine.rate(Series.PREFIX_QUERIES)})",
                legend="found in the prefix cache",
                colour=GOOD,
                right=True,
            ),
            unit="short",
            description="A preempted request is computed anew. The share of prompt tokens is on the right.",
        ),
    ]


def _hardware() -> list[Panel]:
    return [
        graph(
            "Memory bandwidth, of the peak",
            Query(expr=signal("bandwidth_use"), legend="by the engine's count", colour=MEASURED),
            Query(
                expr=f"avg(DCGM_FI_PROF_DRAM_ACTIVE{{{PODS}}})",
                legend="DRAM active (DCGM)",
                colour=MEASURED_TOO,
            ),
            unit="percentunit",
            limits=[(DRAM_ACTIVE_LIMIT, IDLE), (BANDWIDTH_LIMIT, PROMISED)],
            largest=1,
            description="The roof of decoding. DCGM's practical ceiling is 80 %. Fewer replicas are refused above.",
        ),
        graph(
            "Compute, of the peak",
            Query(
                expr=f"avg(DCGM_FI_PROF_SM_ACTIVE{{{PODS}}})", legend="SM active (DCGM)", colour=MEASURED_TOO
            ),
            Query(
                expr=f"avg(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{PODS}}})",
                legend="tensor cores (DCGM)",
                colour=MEASURED,
            ),
            unit="percentunit",
            largest=1,
            description="The roof of prompts. Against the bandwidth beside it: what is higher is the bottleneck.",
            nothing="no DCGM exporter is scraped",
        ),
        graph(
            "Bytes moved by each GPU",
            Query(
                expr=f"avg(rate(vllm:estimated_read_bytes_per_gpu_total{{{OF_SERVICE}}}[$__rate_interval]) "
                f"+ rate(vllm:estimated_write_bytes_per_gpu_total{{{OF_SERVICE}}}[$__rate_interval]))",
                legend="read and written",
                colour=MEASURED,
            ),
            unit="Bps",
            description="The engine's own count; needs --enable-mfu-metrics (0.17 on), which the plan turns on.",
            nothing="the engine does not count them",
        ),
    ]


def _models() -> list[Panel]:
    return [
        graph(
            "Capacity of one replica: predicted and found",
            Query(expr=scaling("capacity_requests_per_second"), legend="model", colour=EXPECTED, dashed=True),
            Query(
                expr=f"max(llmservice_scaling_capacity_requests_per_second{{{OWN}}} "
                f"* llmservice_scaling_capacity_correction_ratio{{{OWN}}})",
                legend="corrected by what is observed",
                colour=EXPECTED,
            ),
            Query(
                expr=f"({engine.rate(Series.FINISHED)}) / scalar({scaling('ready_replicas')} > 0)",
                legend="served by each",
                colour=MEASURED,
            ),
            unit="reqps",
            width=12,
        ),
        graph(
            "Start of a replica",
            Query(
                expr=f"max by (pod) (llmservice_runtime_start_seconds{{{OF_SERVICE}}})",
                legend="{{pod}}",
            ),
            Query(expr=scaling("start_seconds"), legend="expected by scaling", colour=EXPECTED, dashed=True),
            Query(
                expr=f"max(llmservice_runtime_start_budget_seconds{{{OF_SERVICE}}})",
                legend="budget",
                colour=PROMISED,
                dashed=True,
            ),
            unit="s",
            width=12,
            description="A new replica's load must be foreseen by this time.",
        ),
    ]


def _signals() -> list[Panel]:
    untrusted = (
        f'llmservice_scaling_signal_state{{{OWN},state!~"ok|idle|missing"}} '
        f'or llmservice_scaling_signal_state{{{OWN},state="missing",signal!~"{OPTIONAL}"}}'
    )
    return [
        graph(
            "Signals that can't be trusted",
            Query(
                expr=f'count by (state) ({untrusted}) or on () label_replace(vector(0), "state", "none", "", "")',
                legend="{{state}}",
            ),
            colours={"none": GOOD, "stale": COMING, "reset": IDLE, "invalid": PROMISED, "missing": NEUTRAL},
            unit="short",
            stacked=True,
            is_count=True,
            description="How many. What isn't ok or idle may argue for more replicas, never for fewer.",
        ),
        rows(
            "Signals now",
            Column(name="Signal", label="signal"),
            Column(name="Value", query=f"max by (signal) (llmservice_scaling_signal{{{OWN}}})"),
            Column(
                name="Age",
                query=f"time() - max by (signal) (llmservice_scaling_signal_timestamp_seconds{{{OWN}}} > 0)",
                unit="s",
                steps=((None, NEUTRAL), (60, COMING)),
            ),
            width=16,
            height=7,
            sort="Signal",
            description="What the last decision was made from; each value is a mean or sum over its window.",
        ),
    ]


def dashboard() -> Dashboard:
    """One service."""
    namespace = variable(
        "namespace", "Namespace", "label_values(llmservice_service_replicas, namespace)", several=False
    )
    service = variable(
        "service",
        "Service",
        'label_values(llmservice_service_replicas{namespace="$namespace"}, name)',
        several=False,
    )
    return page(
        "llmservice-service",
        "LLMService / Service",
        "One service: its objectives, its latency, its replicas and why, its load, and its hardware's roofs.",
        {
            "Promised and kept": [*_promise(), *_latency()],
            "Replicas": _replicas(),
            "Load": _load(),
            "Against the roofline": _hardware(),
            "Predicted and actual": _models(),
            "What scaling sees": _signals(),
        },
        variables=[namespace, service],
    )
