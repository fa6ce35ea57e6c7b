"""Engines, and the accelerators that they hold."""

from observability.cases.play import ENGINE, POD, SERVICE, Case, of_pod, replicas


def at_maximum(desired: str, largest: str) -> dict[str, str]:
    return {
        'llmservice_scaling_desired_replicas{namespace="chat",name="qwen"}': desired,
        'llmservice_scaling_max_replicas{namespace="chat",name="qwen"}': largest,
    }


ENGINES = (
    Case(
        alert="LLMServiceEngineHung",
        story="requests run and no token comes",
        series=of_pod("llmservice_runtime_engine_hung", "0x10 1x10"),
        at="13m",
        fires=POD,
    ),
    Case(
        alert="LLMServiceEngineHung",
        story="it makes tokens",
        series=of_pod("llmservice_runtime_engine_hung", "0x20"),
        at="13m",
    ),
    Case(
        alert="LLMServiceColdStartOverBudget",
        story="a start has taken 27 of 30 minutes",
        series=of_pod("llmservice_runtime_start_seconds", "0+60x40")
        | of_pod("llmservice_runtime_start_budget_seconds", "1800x40")
        | of_pod("llmservice_runtime_phase", "1x40", ',phase="Starting"'),
        at="27m",
        fires=POD,
    ),
    Case(
        alert="LLMServiceColdStartOverBudget",
        story="it took 27 of 30 minutes and is ready",
        series=of_pod("llmservice_runtime_start_seconds", "0+60x27 1620x20")
        | of_pod("llmservice_runtime_start_budget_seconds", "1800x47")
        | of_pod("llmservice_runtime_phase", "1x23 0x24", ',phase="Starting"'),
        at="30m",
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="both replicas' caches are full",
        series=of_pod("vllm:kv_cache_usage_perc", "0.98x40")
        | of_pod("vllm:kv_cache_usage_perc", "0.95x40", pod="qwen-2"),
        at="20m",
        fires=ENGINE,
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="the cache of an older engine, by its older name, is full",
        series=of_pod("vllm:gpu_cache_usage_perc", "0.98x40"),
        at="20m",
        fires=ENGINE,
    ),
    Case(
        alert="LLMServiceKVCacheSaturated",
        story="one replica is full for a moment, the other isn't",
        series=of_pod("vllm:kv_cache_usage_perc", "0.5x10 0.99x3 0.5x30")
        | of_pod("vllm:kv_cache_usage_perc", "0.6x40", pod="qwen-2"),
        at="20m",
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="a flood: the queue grows, and there are as many replicas as there may be",
        series=of_pod("vllm:num_requests_waiting", "0x10 0+10x30") | at_maximum("4x40", "4x40"),
        at="25m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="a flood, and replicas can still be added",
        series=of_pod("vllm:num_requests_waiting", "0x10 0+10x30") | at_maximum("2x40", "4x40"),
        at="25m",
    ),
    Case(
        alert="LLMServiceQueueGrowsAtMaximum",
        story="at the maximum, and the queue drains",
        series=of_pod("vllm:num_requests_waiting", "300-10x30 0x10") | at_maximum("4x40", "4x40"),
        at="25m",
    ),
    Case(
        alert="LLMServiceEngineSeriesAbsent",
        story="pages are scraped without the label llmservice",
        series=replicas("2x40", "2x40")
        | {'vllm:num_requests_running{namespace="chat",pod="qwen-1"}': "1x40"},
        at="20m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceEngineSeriesAbsent",
        story="pages are scraped",
        series=replicas("2x40", "2x40") | of_pod("vllm:num_requests_running", "1x40"),
        at="20m",
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
        series=of_pod("vllm:num_requests_running", "0x300")
        | replicas("1x300", "1x300")
        | {
            'llmservice_service_accelerators{namespace="chat",name="qwen",accelerator="nvidia-h200"}': "2x300"
        },
        at="200m",
        fires=SERVICE,
    ),
    Case(
        alert="LLMServiceAcceleratorsIdle",
        story="twenty minutes without a request in every hour",
        series=of_pod("vllm:num_requests_running", " ".join(["1x39 0x19"] * 6))
        | replicas("1x360", "1x360")
        | {
            'llmservice_service_accelerators{namespace="chat",name="qwen",accelerator="nvidia-h200"}': "2x360"
        },
        at="355m",
    ),
    Case(
        alert="LLMServiceAcceleratorsIdle",
        story="a request each five minutes",
        series=of_pod("vllm:num_requests_running", " ".join(["0x3 1"] * 60))
        | replicas("1x300", "1x300")
        | {
            'llmservice_service_accelerators{namespace="chat",name="qwen",accelerator="nvidia-h200"}': "2x300"
        },
        at="200m",
    ),
)
