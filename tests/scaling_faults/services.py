"""The services of the scenario: each has two replicas under a load that needs both, and room for more.

Those that lie about their metrics run the law of a real engine on one H200 each, so that the operator knows what they
can take. Those that need more replicas than they get let two requests in at once and take seconds for each. Windows of
the policy are short: without a reason against it a replica goes within half a minute, as the idle one shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.fleet import FAKE_ENGINE, LITTLE, Object, llmservice
from load.generator import Request
from soak.setting import Setting
from soak.setting import manifest as soak_manifest

FIRST_POLICY, POLICY, FAULT = "balanced", "hasty", "fault"
REPLICAS = 2
H200_RATE, H200_PROMPT, H200_ANSWER = 1.0, 5000, 8
"""Requests a second of these lengths: more than one replica's worth by the capacity model, and less than two's."""
SLOW_RATE, SLOW_PROMPT, SLOW_ANSWER = 2.0, 20, 20
SLOW_TOKEN_SECONDS, SLOW_AT_ONCE = "0.2", 2  # 0.5 requests a second and replica
BROKEN_START = "die:step=load,code=3"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One service and what goes wrong with it."""

    name: str
    what: str
    """In words, for the table."""
    fault: str = ""
    """Of the fake engine, for `pods` of its pods."""
    pods: int | None = None
    """None: all."""
    seconds: float | None = None
    """How long it lasts; None: the whole watch."""
    reasons: tuple[str, ...] = ()
    """Reasons of MetricsAvailable or ScalingActive, one of which must be told."""
    on_h200: bool = True
    loaded: bool = True
    most: int = REPLICAS
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wants_more(self) -> bool:
        """Whether its load is more than it gets replicas for."""
        return self.loaded and not self.on_h200


def _slow(*environment: Object) -> Object:
    """An engine of little capacity."""
    slow = {"name": "FAKE_ENGINE_TPOT_SECONDS", "value": SLOW_TOKEN_SECONDS}
    return {
        "engine": {
            "image": FAKE_ENGINE,
            "pin": {"maxNumSeqs": SLOW_AT_ONCE},
            "env": [slow, *environment],
        },
        "slo": {"ttft": {"p95": "2s"}},
    }


_BREAKS = {"name": "FAKE_ENGINE_FAULT", "valueFrom": {"configMapKeyRef": {"name": FAULT, "key": "fault"}}}
_APART = {
    "podTemplate": {
        "resources": LITTLE,
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"llmservice.dev/service": "unschedulable"}},
                    }
                ]
            }
        },
    }
}

IDLE, OTHER_WRITER = "idle", "other-writer"
CASES = (
    Case(name=IDLE, what="none, and no load: the rule takes a replica", on_h200=False, loaded=False),
    Case(name="empty", what="pages without the engine's series", fault="metrics-empty", reasons=("MetricsMissing",)),
    Case(name="nan", what="every value NaN", fault="metrics-nan:counters=yes", reasons=("MetricsInvalid",)),
    Case(name="frozen", what="the same page again and again", fault="metrics-frozen", reasons=("MetricsStale",)),
    Case(name="reset", what="counters begin anew, twice", fault="metrics-reset",
         reasons=("MetricsReset", "MetricsFresh")),
    Case(name="gap", what="no answer to scrapes for 60 s", fault="metrics-hang", seconds=60.0,
         reasons=("MetricsMissing", "MetricsStale")),
    Case(name="half", what="one of two pods cuts scrapes off", fault="metrics-cut", pods=1,
         reasons=("MetricsMissing", "MetricsStale")),
    Case(name="hung", what="one of two engines stands still", fault="hang:tokens=0", pods=1,
         reasons=("MetricsStale",)),
    Case(name="prometheus", what="Prometheus slow, wrong, then down",
         reasons=("MetricsInvalid", "MetricsStale", "MetricsFresh")),
    Case(name="unschedulable", what="no node for a third replica", on_h200=False, most=5, reasons=("Unschedulable",),
         spec={**_slow(), **_APART}),
    Case(name="crash-loop", what="new replicas crash", on_h200=False, most=5, reasons=("Unschedulable",),
         spec=_slow(_BREAKS)),
    Case(name=OTHER_WRITER, what="an HPA on the Deployment", on_h200=False, loaded=False, most=5,
         reasons=("ReplicasOwnedByOther",)),
)  # fmt: skip


def scaling_policy() -> Object:
    """`balanced` with short windows."""
    return {
        "apiVersion": "llmservice.dev/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "leastStabilizationSeconds": 20,
            "mostStabilizationSeconds": 30,
            "scaleInPeriodSeconds": 10,
        },
    }


QUICK_START = {
    "FAKE_ENGINE_LOAD_SECONDS": "1",
    "FAKE_ENGINE_COMPILE_SECONDS": "0",
    "FAKE_ENGINE_CAPTURE_SECONDS": "0",
}


def manifest(case: Case, namespace: str, setting: Setting) -> Object:
    """The case's service, with a fixed number of replicas."""
    spec: dict[str, Any] = {"replicas": REPLICAS, "drain": {"timeout": "5s"}, **case.spec}
    if not case.on_h200:
        return llmservice(case.name, namespace, **spec)
    like = soak_manifest({**setting.engine_environment, **QUICK_START})["spec"]
    kept = {key: like[key] for key in ("model", "engine", "accelerator", "workload", "slo", "podTemplate")}
    return llmservice(case.name, namespace, **kept, **spec)


def scaling(case: Case, policy: str) -> Object:
    """What is then added to its spec."""
    return {"policy": policy, "maxReplicas": case.most}


def other_writer(namespace: str) -> Object:
    """An autoscaler that wants three, and has no metrics to want anything else by."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": OTHER_WRITER, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": OTHER_WRITER},
            "minReplicas": REPLICAS + 1,
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def requests(seconds: float) -> list[Request]:
    """Evenly spaced, of each loaded case from the begin to the end; targets in the order of `loaded_cases`."""
    found = []
    for target, case in enumerate(loaded_cases()):
        rate = H200_RATE if case.on_h200 else SLOW_RATE
        lengths = (H200_PROMPT, H200_ANSWER) if case.on_h200 else (SLOW_PROMPT, SLOW_ANSWER)
        # Each case at its own offset within the interval.
        offset = target / len(CASES) / rate
        found += [Request(offset + count / rate, target, *lengths) for count in range(int(seconds * rate))]
    return sorted(found, key=lambda each: each.at_seconds)


def loaded_cases() -> list[Case]:
    """Those with a load."""
    return [case for case in CASES if case.loaded]
