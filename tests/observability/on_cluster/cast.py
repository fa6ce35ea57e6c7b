"""The services, what goes wrong with four of them, and the load on all.

Those on H200s step by the law of a real engine and are planned for it. The others are a small model on the CPU, made
slow: a queue and a full cache need few requests then, and little of the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from e2e.fleet import FAKE_ENGINE, Object, llmservice
from load.generator import Request, Target
from soak.setting import Setting
from soak.setting import manifest as soak_manifest

NAMESPACE = "alerts"
STEADY, QUIET, KILLED, CUT, FLOODED, FULL = "steady", "quiet", "killed", "cut", "flooded", "full"
NAMES = (STEADY, QUIET, KILLED, CUT, FLOODED, FULL)
READY = {STEADY: 3, QUIET: 1, KILLED: 1, CUT: 2, FLOODED: 1, FULL: 1}
"""Replicas before the faults."""
MOST = {STEADY: 4, CUT: 3, FLOODED: 2}
"""spec.scaling.maxReplicas of those that are scaled."""
WELL_SECONDS, FAULT_SECONDS = 45.0, 110.0
PLAY_SECONDS = WELL_SECONDS + FAULT_SECONDS
LOAD_SECONDS = PLAY_SECONDS + 60.0
"""The load outlasts the look at the dashboards; it ends with the play."""
QUIET_FROM_SECONDS = WELL_SECONDS + 40.0
"""From here on one service has nothing to do: a dashboard has idle accelerators to show, too few for the alert."""

SLOW_START = "slow-load:seconds=300"
"""A killed engine is away for as long as a real one takes to load."""
_FULL_ANSWER_TOKENS, _FULL_TOKEN_SECONDS = 60, 2.0  # 120 s of full cache
_FULL_REQUEST_TOKENS = 1950
_LONG, _SHORT, _FLOOD = (5000, 80), (20, 8), (20, 60)
"""Tokens of prompt and answer. Of the flood two run at once in a replica, for 12 s each. One replica is there when it
comes, and the second is the operator's decision; both answer so few that the error budget hardly burns meanwhile."""
_KEPT = ("model", "engine", "accelerator", "workload", "slo", "podTemplate")
_START = {
    "FAKE_ENGINE_LOAD_SECONDS": "1",
    "FAKE_ENGINE_COMPILE_SECONDS": "0",
    "FAKE_ENGINE_CAPTURE_SECONDS": "0",
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one service, and the alert that must tell it."""

    service: str
    what: str
    alert: str
    is_windowed: bool
    """Whether what the alert waits for grows with its rule's windows; else it is the operator's, in real time."""
    within_minutes: float
    """From the fault to the alert, with the windows as they are; two minutes are for scrapes and the operator."""


FAULTS = (
    Fault(
        service=KILLED,
        what="the only engine is killed, and loads for minutes",
        alert="LLMServiceUnavailable",
        is_windowed=False,
        within_minutes=7,
    ),
    Fault(
        service=CUT,
        what="one of two replicas cuts scrapes off",
        alert="LLMServiceMetricsMissing",
        is_windowed=False,
        within_minutes=7,
    ),
    Fault(
        service=FLOODED,
        what="more requests than the most replicas take; one is there",
        alert="LLMServiceQueueGrowsAtMaximum",
        is_windowed=True,
        within_minutes=15,
    ),
    Fault(
        service=FULL,
        what="long requests that fill the cache",
        alert="LLMServiceKVCacheSaturated",
        is_windowed=True,
        within_minutes=19,
    ),
)


def fault_map(fault: str) -> Object:
    """What the killed service's engine reads when it starts."""
    metadata = {"name": KILLED, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"fault": fault}}


def manifests(setting: Setting) -> Iterator[Object]:
    """All services."""
    yield _on_h200(STEADY, setting, scaling=_scaling(STEADY))
    yield _on_h200(QUIET, setting, replicas=1)
    yield _on_h200(CUT, setting, scaling=_scaling(CUT))
    told = {"configMapKeyRef": {"name": KILLED, "key": "fault"}}
    yield llmservice(KILLED, NAMESPACE, engine=_engine({"name": "FAKE_ENGINE_FAULT", "valueFrom": told}))
    slow = _engine({"name": "FAKE_ENGINE_TPOT_SECONDS", "value": "0.2"}, most_at_once=2)
    slo = {"ttft": {"p95": "2s"}}
    yield llmservice(FLOODED, NAMESPACE, engine=slow, slo=slo, scaling=_scaling(FLOODED))
    slower = _engine({"name": "FAKE_ENGINE_TPOT_SECONDS", "value": str(_FULL_TOKEN_SECONDS)})
    yield llmservice(FULL, NAMESPACE, engine=slower)


def _engine(*environment: Object, most_at_once: int = 16) -> Object:
    return {"image": FAKE_ENGINE, "pin": {"maxNumSeqs": most_at_once}, "env": list(environment)}


def _scaling(name: str) -> Object:
    return {"minReplicas": READY[name], "maxReplicas": MOST[name]}


def _on_h200(name: str, setting: Setting, **spec: Any) -> Object:
    """A service of the soak's model."""
    like = soak_manifest({**setting.engine_environment, **_START})["spec"]
    return llmservice(name, NAMESPACE, **{key: like[key] for key in _KEPT}, **spec)


def targets() -> list[Target]:
    """The services' addresses, in the order of `NAMES`."""
    return [Target(f"{name}.{NAMESPACE}.svc", 8000, name) for name in NAMES]


def requests(full_tokens: int) -> list[Request]:
    """All of the load, by time. `full_tokens`: what the cache to be filled holds."""
    found = [
        *_evenly(STEADY, 1.0, until=LOAD_SECONDS, tokens=_LONG),
        *_evenly(QUIET, 0.5, until=QUIET_FROM_SECONDS, tokens=_LONG),
        *_evenly(CUT, 0.5, until=LOAD_SECONDS, tokens=_LONG),
        *_evenly(KILLED, 1.0, until=LOAD_SECONDS, tokens=_SHORT),
        *_evenly(FLOODED, 0.1, until=WELL_SECONDS, tokens=_FLOOD),
        *_evenly(FLOODED, 1.5, begin=WELL_SECONDS, until=LOAD_SECONDS, tokens=_FLOOD),
        *_evenly(FULL, 0.1, until=WELL_SECONDS - 10.0, tokens=_SHORT),
        *_filling(full_tokens),
    ]
    return sorted(found, key=lambda each: each.at_seconds)


def _evenly(
    name: str, rate: float, *, begin: float = 0.0, until: float, tokens: tuple[int, int]
) -> Iterator[Request]:
    """So many a second; each service at its own offset within the interval."""
    offset = NAMES.index(name) / len(NAMES) / rate
    for count in range(int((until - begin) * rate)):
        yield Request(begin + offset + count / rate, NAMES.index(name), *tokens)


def _filling(full_tokens: int) -> Iterator[Request]:
    """As many as fit exactly: none has to wait for another's room."""
    count = -(-full_tokens // _FULL_REQUEST_TOKENS)
    prompt = full_tokens // count - _FULL_ANSWER_TOKENS
    for _ in range(count):
        yield Request(WELL_SECONDS, NAMES.index(FULL), prompt, _FULL_ANSWER_TOKENS)
