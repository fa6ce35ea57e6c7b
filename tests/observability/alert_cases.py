"""When each alert fires, and when it doesn't: series as promtool plays them, and what must be firing then.

A case plays all rules, so that it also shows that nothing else fires. Notation of values: promtool's, one an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SERVICE = {"namespace": "chat", "name": "qwen"}
ENGINE = {"namespace": "chat", "llmservice": "qwen"}
POD = ENGINE | {"pod": "qwen-1"}
WELL = {
    "llmservice_leader": "1x6000",
    'llmservice_store_last_sweep_timestamp_seconds{kind="pods"}': "0+600x6000",
}
"""An operator at work, beside every case."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One play. `fires`: the labels of the alert that must be firing at `at`, and no other; None: none."""

    alert: str
    story: str
    series: Mapping[str, str]
    at: str
    interval: str = "1m"
    """Between samples, and between evaluations."""
    fires: Mapping[str, str] | None = None
    base: Mapping[str, str] = field(default_factory=lambda: WELL)


def _requests(total: str, met: str, objective: str = "ttft") -> dict[str, str]:
    labels = f'{{namespace="chat",name="qwen",objective="{objective}"}}'
    return {
        f"llmservice_slo_requests_total{labels}": total,
        f"llmservice_slo_requests_met_total{labels}": met,
    }


def _condition(
    kind: str, *, bad: str, good: str, reason: str = "Any", good_is: str = "True"
) -> dict[str, str]:
    """A condition whose series comes and goes with its status; `_` is no sample."""
    bad_is = "False" if good_is == "True" else "True"
    labels = f'namespace="chat",name="qwen",type="{kind}"'
    return {
        f'llmservice_service_condition{{{labels},status="{bad_is}",reason="{reason}"}}': bad,
        f'llmservice_service_condition{{{labels},status="{good_is}",reason="Good"}}': good,
    }


def _replicas(desired: str, ready: str) -> dict[str, str]:
    return {
        'llmservice_service_replicas{namespace="chat",name="qwen",state="desired"}': desired,
        'llmservice_service_replicas{namespace="chat",name="qwen",state="ready"}': ready,
    }


def _of_pod(name: str, values: str, more: str = "", pod: str = "qwen-1") -> dict[str, str]:
    return {f'{name}{{namespace="chat",llmservice="qwen",pod="{pod}",instance="{pod}:9410"{more}}}': values}


def _at_maximum(desired: str, largest: str) -> dict[str, str]:
    return {
        'llmservice_scaling_desired_replicas{namespace="chat",name="qwen"}': desired,
        'llmservice_scaling_max_replicas{namespace="chat",name="qwen"}': largest,
    }


TTFT = SERVICE | {"objective": "ttft"}

SLO = (
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="8 of 10 requests miss for an hour",
        series=_requests("0+100x200", "0+100x100 10000+20x100"),
        at="170m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="4 of 10 requests miss for six hours: 8 times the pace, seen by the longer pair",
        series=_requests("0+100x500", "0+60x500"),
        at="480m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="8 of 10 requests missed for an hour, and it is over",
        series=_requests("0+100x200", "0+100x60 6000+20x60 7220+100x80"),
        at="155m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="all of forty requests in an hour miss: too few to wake somebody",
        series=_requests("0+0.6x300", "0x300"),
        at="170m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="8 of 100 requests miss for three days",
        series=_requests("0+1000x450", "0+920x450"),
        interval="10m",
        at="4400m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="4 of 100 requests miss for three days: within the budget",
        series=_requests("0+1000x450", "0+960x450"),
        interval="10m",
        at="4400m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="no request for three days",
        series=_requests("100x450", "50x450"),
        interval="10m",
        at="4400m",
    ),
)

CONDITIONS = (
    Case(
        alert="LLMServiceUnavailable",
        story="the last ready replica is gone",
        series=_condition("Available", good="1x30 _x40", bad="_x30 1x40") | _replicas("2x70", "2x30 0x40"),
        at="40m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceUnavailable",
        story="a new service starts",
        series=_condition("Available", good="_x70", bad="1x70") | _replicas("1x70", "0x70"),
        at="40m",
    ),
    Case(
        alert="LLMServiceUnavailable",
        story="it was taken to no replicas",
        series=_condition("Available", good="1x30 _x40", bad="_x30 1x40")
        | _replicas("2x30 0x40", "2x30 0x40"),
        at="40m",
    ),
    Case(
        alert="LLMServiceStalled",
        story="it stalls",
        series=_condition("Stalled", good="1x10 _x30", bad="_x10 1x30", good_is="False"),
        at="20m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceStalled",
        story="it goes on by itself",
        series=_condition("Stalled", good="1x40", bad="_x40", good_is="False"),
        at="20m",
    ),
    Case(
        alert="LLMServiceCrashLooping",
        story="an engine ends again and again",
        series=_condition("Progressing", good="_x40", bad="1x40", reason="CrashLooping"),
        at="10m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceCrashLooping",
        story="a service does not get there, for another reason",
        series=_condition("Progressing", good="_x40", bad="1x40", reason="Unschedulable"),
        at="10m",
    ),
    Case(
        alert="LLMServiceMetricsMissing",
        story="pages of the engines are gone",
        series=_condition("MetricsAvailable", good="1x10 _x30", bad="_x10 1x30", reason="MetricsMissing"),
        at="20m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceMetricsMissing",
        story="a gap of two minutes",
        series=_condition("MetricsAvailable", good="1x10 stale _ 1x30", bad="_x11 1 1 stale _x30"),
        at="15m",
    ),
    Case(
        alert="LLMServiceScalingInactive",
        story="somebody else writes the replicas",
        series=_condition("ScalingActive", good="1x10 _x30", bad="_x10 1x30", reason="ReplicasOwnedByOther"),
        at="25m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceScalingInactive",
        story="the operator scales",
        series=_condition("ScalingActive", good="1x40", bad="_x40"),
        at="25m",
    ),
    Case(
        alert="LLMServicePlanInaccurate",
        story="the engine has less cache than planned",
        series=_condition("PlanAccurate", good="_x40", bad="1x40", reason="KvCacheOverPromised"),
        at="30m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServicePlanInaccurate",
        story="the engine measured what was planned",
        series=_condition("PlanAccurate", good="1x40", bad="_x40"),
        at="30m",
    ),
)

ENGINES = (
    Case(
        alert="LLMServiceEngineHung",
        story="requests run and no token comes",
        series=_of_pod("llmservice_runtime_engine_hung", "0x10 1x10"),
        at="13m",
        fires=POD,
    ),
    Case(
        alert="LLMServiceEngineHung",
        story="it makes tokens",
        series=_of_pod("llmservice_runtime_engine_hung", "0x20"),
        at="13m",
    ),
    Case(
        alert="LLMServiceColdStartOverBudget",
        story="a start has taken 27 of 30 minutes",
        series=_of_pod("llmservice_runtime_start_seconds", "0+60x40")
        | _of_pod("llmservice_runtime_start_budget_seconds", "1800x40")
        | _of_pod("llmservice_runtime_phase", "1x40", ',phase="Starting"'),
        at="27m",
        fires=POD,
    ),
    Case(
        alert="LLMServiceColdStartOverBudget",
        story="it took 27 of 30 minutes and is ready",
        series=_of_pod("llmservice_runtime_start_seconds", "0+60x27 1620x20")
        | _of_pod("llmservice_runtime_start_budget_seconds", "1800x47")
        | _of_pod("llmservice_runtime_phase", "1x23 0x24", ',phase="Starting"'),
        at="30m",
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="both replicas' caches are full",
        series=_of_pod("vllm:kv_cache_usage_perc", "0.98x40")
        | _of_pod("vllm:kv_cache_usage_perc", "0.95x40", pod="qwen-2"),
        at="20m",
        fires=ENGINE,
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="the cache of an older engine, by its older name, is full",
        series=_of_pod("vllm:gpu_cache_usage_perc", "0.98x40"),
        at="20m",
        fires=ENGINE,
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="one replica is full for a moment, the other isn't",
        series=_of_pod("vllm:kv_cache_usage_perc", "0.5x10 0.99x3 0.5x30")
        | _of_pod("vllm:kv_cache_usage_perc", "0.6x40", pod="qwen-2"),
        at="20m",
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="a flood: the queue grows, and there are as many replicas as there may be",
        series=_of_pod("vllm:num_requests_waiting", "0x10 0+10x30") | _at_maximum("4x40", "4x40"),
        at="25m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="a flood, and replicas can still be added",
        series=_of_pod("vllm:num_requests_waiting", "0x10 0+10x30") | _at_maximum("2x40", "4x40"),
        at="25m",
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="at the maximum, and the queue drains",
        series=_of_pod("vllm:num_requests_waiting", "300-10x30 0x10") | _at_maximum("4x40", "4x40"),
        at="25m",
    ),
    Case(
        alert="LLMServiceReplicasUnschedulable",
        story="a replica finds no node",
        series={'llmservice_scaling_unschedulable_replicas{namespace="chat",name="qwen"}': "0x10 2x40"},
        at="30m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceReplicasUnschedulable",
        story="a node comes within ten minutes",
        series={'llmservice_scaling_unschedulable_replicas{namespace="chat",name="qwen"}': "0x10 2x10 0x40"},
        at="30m",
    ),
    Case(
        alert="LLMServiceAcceleratorsIdle",
        story="nothing ran for three hours",
        series=_of_pod("vllm:num_requests_running", "0x300")
        | _replicas("1x300", "1x300")
        | {
            'llmservice_service_accelerators{namespace="chat",name="qwen",accelerator="nvidia-h200"}': "2x300"
        },
        at="200m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceAcceleratorsIdle",
        story="a request each five minutes",
        series=_of_pod("vllm:num_requests_running", " ".join(["0x3 1"] * 60))
        | _replicas("1x300", "1x300")
        | {
            'llmservice_service_accelerators{namespace="chat",name="qwen",accelerator="nvidia-h200"}': "2x300"
        },
        at="200m",
    ),
)

_KINDS = '{kind="pods"}'
OPERATOR = (
    Case(
        alert="LLMServiceOperatorDown",
        story="no process holds the Lease",
        base={},
        series={'llmservice_leader{pod="a"}': "1x10 0x20", 'llmservice_leader{pod="b"}': "0x30"},
        at="20m",
        fires={},
    ),
    Case(alert="LLMServiceOperatorDown", story="no page at all", base={}, series={}, at="20m", fires={}),
    Case(
        alert="LLMServiceOperatorDown",
        story="the other copy takes over within a minute",
        base={},
        series={'llmservice_leader{pod="a"}': "1x10 0x20", 'llmservice_leader{pod="b"}': "0x11 1x20"},
        at="20m",
    ),
    Case(
        alert="LLMServiceOperatorFailing",
        story="every second reconcile fails",
        series={
            'llmservice_reconciles_total{result="success"}': "0+10x60",
            'llmservice_reconciles_total{result="error"}': "0+10x60",
        },
        at="40m",
        fires={},
    ),
    Case(
        alert="LLMServiceOperatorFailing",
        story="1 of 50 reconciles fails",
        series={
            'llmservice_reconciles_total{result="success"}': "0+49x60",
            'llmservice_reconciles_total{result="error"}': "0+1x60",
        },
        at="40m",
    ),
    Case(
        alert="LLMServiceOperatorBehind",
        story="a key waits longer and longer",
        series={"llmservice_workqueue_oldest_age_seconds": "0+60x40"},
        at="20m",
        fires={},
    ),
    Case(
        alert="LLMServiceOperatorBehind",
        story="keys wait some seconds",
        series={"llmservice_workqueue_oldest_age_seconds": "8x40"},
        at="20m",
    ),
    Case(
        alert="LLMServiceOperatorBlind",
        story="the last sweep is two hours old",
        base={"llmservice_leader": "1x300"},
        series={f"llmservice_store_last_sweep_timestamp_seconds{_KINDS}": "600x300"},
        at="130m",
        fires={},
    ),
    Case(alert="LLMServiceOperatorBlind", story="it sweeps", series={}, at="130m"),
    Case(
        alert="LLMServiceEnginePagesUnread",
        story="half of the reads time out",
        series={
            'llmservice_engine_scrape_failures_total{reason="timeout"}': "0+6x60",
            "llmservice_engine_scrape_duration_seconds_count": "0+12x60",
        },
        at="40m",
        fires={"reason": "timeout"},
    ),
    Case(
        alert="LLMServiceEnginePagesUnread",
        story="one read in a hundred times out",
        series={
            'llmservice_engine_scrape_failures_total{reason="timeout"}': "0+1x60",
            "llmservice_engine_scrape_duration_seconds_count": "0+100x60",
        },
        at="40m",
    ),
)

CASES = (*SLO, *CONDITIONS, *ENGINES, *OPERATOR)
