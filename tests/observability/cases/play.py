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


def replicas(desired: str, ready: str) -> dict[str, str]:
    return {
        'llmservice_service_replicas{namespace="chat",name="qwen",state="desired"}': desired,
        'llmservice_service_replicas{namespace="chat",name="qwen",state="ready"}': ready,
    }


def of_pod(name: str, values: str, more: str = "", pod: str = "qwen-1") -> dict[str, str]:
    return {f'{name}{{namespace="chat",llmservice="qwen",pod="{pod}",instance="{pod}:9410"{more}}}': values}
