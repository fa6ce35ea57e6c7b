"""Conditions of a service."""

from observability.cases.play import SERVICE, Case, replicas


def condition(
    kind: str, *, bad: str, good: str, reason: str = "Any", good_is: str = "True"
) -> dict[str, str]:
    """A condition whose series comes and goes with its status; `_` is no sample."""
    bad_is = "False" if good_is == "True" else "True"
    labels = f'namespace="chat",name="qwen",type="{kind}"'
    return {
        f'llmservice_service_condition{{{labels},status="{bad_is}",reason="{reason}"}}': bad,
        f'llmservice_service_condition{{{labels},status="{good_is}",reason="Good"}}': good,
    }


CONDITIONS = (
    Case(
        alert="LLMServiceUnavailable",
        story="the last ready replica is gone",
        series=condition("Available", good="1x30 _x40", bad="_x30 1x40") | replicas("2x70", "2x30 0x40"),
        at="40m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceUnavailable",
        story="the last ready replica has been gone for three hours",
        series=condition("Available", good="1x30 _x200", bad="_x30 1x200") | replicas("2x230", "2x30 0x200"),
        at="220m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceUnavailable",
        story="a new service starts",
        series=condition("Available", good="_x70", bad="1x70") | replicas("1x70", "0x70"),
        at="40m",
    ),
    Case(
        alert="LLMServiceUnavailable",
        story="it was taken to no replicas",
        series=condition("Available", good="1x30 _x40", bad="_x30 1x40") | replicas("2x30 0x40", "2x30 0x40"),
        at="40m",
    ),
    Case(
        alert="LLMServiceStalled",
        story="it stalls",
        series=condition("Stalled", good="1x10 _x30", bad="_x10 1x30", good_is="False"),
        at="20m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceStalled",
        story="it goes on by itself",
        series=condition("Stalled", good="1x40", bad="_x40", good_is="False"),
        at="20m",
    ),
    Case(
        alert="LLMServiceCrashLooping",
        story="an engine ends again and again",
        series=condition("Progressing", good="_x40", bad="1x40", reason="CrashLooping"),
        at="10m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceCrashLooping",
        story="a service does not get there, for another reason",
        series=condition("Progressing", good="_x40", bad="1x40", reason="Unschedulable"),
        at="10m",
    ),
    Case(
        alert="LLMServiceMetricsMissing",
        story="pages of the engines are gone",
        series=condition("MetricsAvailable", good="1x10 _x30", bad="_x10 1x30", reason="MetricsMissing"),
        at="20m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceMetricsMissing",
        story="a gap of two minutes",
        series=condition("MetricsAvailable", good="1x10 stale _ 1x30", bad="_x11 1 1 stale _x30"),
        at="15m",
    ),
    Case(
        alert="LLMServiceScalingInactive",
        story="somebody else writes the replicas",
        series=condition("ScalingActive", good="1x10 _x30", bad="_x10 1x30", reason="ReplicasOwnedByOther"),
        at="25m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceScalingInactive",
        story="the operator scales",
        series=condition("ScalingActive", good="1x40", bad="_x40"),
        at="25m",
    ),
    Case(
        alert="LLMServicePlanInaccurate",
        story="the engine has less cache than planned",
        series=condition("PlanAccurate", good="_x40", bad="1x40", reason="KvCacheOverPromised"),
        at="30m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServicePlanInaccurate",
        story="the engine measured what was planned",
        series=condition("PlanAccurate", good="1x40", bad="_x40"),
        at="30m",
    ),
)
