"""`make alerts-staged`: four faults at once, each of its own service, on a real Prometheus that scrapes their pages.

The rules are the chart's with every window and wait a thirtieth as long, so that an hour is two minutes. It prints when
each alert fired after its fault, and fails where one did not, or another did.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmservice_operator.telemetry.metrics import Metrics
from llmservice_operator.telemetry.scaling import ScalingSample, ServiceState, SloSample
from observability.reference import scaling_sample
from observability.rules import RULES
from observability.stage.cluster import Target
from observability.stage.engine_page import H200, grown, template
from observability.stage.live import Live
from observability.stage.samples import read
from observability.stage.server import Prometheus
from ports import free_port

FASTER = 30
WELL_SECONDS, FAULT_SECONDS = 25, 60
_NAMESPACE = "staged"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])|(?<=for: )(\d+)([smhd])")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one service, and the alert that must tell it."""

    service: str
    alert: str
    gauges: Callable[[float], dict[str, float]] = lambda _: {}
    """Of its engine, by the seconds since the fault."""
    is_killed: bool = False
    bad_condition: str = ""


FAULTS = (
    Fault(service="killed", alert="LLMServiceUnavailable", is_killed=True, bad_condition="Available"),
    Fault(service="cut", alert="LLMServiceMetricsMissing", bad_condition="MetricsAvailable"),
    Fault(
        service="flooded",
        alert="LLMServiceQueueGrowsAtMaximum",
        gauges=lambda since: {"vllm:num_requests_waiting": 20.0 * since},
    ),
    Fault(
        service="full",
        alert="LLMServiceKVCacheSaturated",
        gauges=lambda _: {"vllm:kv_cache_usage_perc": 0.98},
    ),
)
_CONDITIONS = ("Ready", "Planned", "Available", "Progressing", "UpToDate", "PlanAccurate", "MetricsAvailable")


def faster(rules: str) -> str:
    """The rules with every duration a thirtieth as long, a second at least."""

    def shorter(found: re.Match[str]) -> str:
        number, unit = (group for group in found.groups() if group is not None)
        return f"{max(1, int(number) * _SECONDS[unit] // FASTER)}s"

    return _DURATION.sub(shorter, rules)


def frame(second: int) -> Iterator[Target]:
    """All targets at this second of the play."""
    since = second - WELL_SECONDS
    yield Target(
        (("instance", "operator"), ("job", "llmservice-operator")), tuple(read(_operator(second, since)))
    )
    for fault in FAULTS:
        if fault.is_killed and since >= 0:
            continue
        gauges = {
            "vllm:num_requests_running": 8.0,
            "vllm:num_requests_waiting": 0.0,
            "vllm:kv_cache_usage_perc": 0.4,
        }
        gauges |= fault.gauges(since) if since >= 0 else {}
        pod = f"{fault.service}-1"
        labels = {"namespace": _NAMESPACE, "pod": pod, "llmservice": fault.service}
        labels |= {"job": "llmservice-engine", "instance": f"{pod}:8000"}
        page = grown(template(H200), (60 + second) / 60, gauges)
        yield Target(tuple(sorted(labels.items())), tuple(page))


def _operator(second: int, since: int) -> str:
    metrics = Metrics()
    metrics.leader.set(1)
    metrics.last_sweep.labels("pods").set(time.time())
    metrics.watch_services(
        lambda: [_state(fault, is_bad=since >= 0) for fault in FAULTS],
        lambda: [_sample(fault, second) for fault in FAULTS],
    )
    return metrics.page().decode()


def _state(fault: Fault, *, is_bad: bool) -> ServiceState:
    bad = {fault.bad_condition} if is_bad else set()
    told = [(kind, "False" if kind in bad else "True", "Staged") for kind in _CONDITIONS]
    ready = 0 if is_bad and fault.is_killed else 1
    return ServiceState(
        _NAMESPACE, fault.service, (*told, ("Stalled", "False", "Staged")), 1, ready, "nvidia-h200", 1
    )


def _sample(fault: Fault, second: int) -> ScalingSample:
    """At its maximum, and all of its requests in time."""
    sample = scaling_sample(_NAMESPACE, fault.service)
    fields = {name: getattr(sample, name) for name in ScalingSample.__slots__}
    slo = [SloSample(name, 1.0, 10.0 * second, 10.0 * second) for name in ("ttft", "tpot")]
    return ScalingSample(**{**fields, "slo": slo, "desired": 2, "bounds": (1, 2)})


def fired(prometheus: Prometheus) -> set[tuple[str, str]]:
    """(alert, service) of all that fire."""
    found = prometheus.query('ALERTS{alertstate="firing"}', time.time())
    labels = (each["metric"] for each in found)
    return {(each["alertname"], each.get("name") or each.get("llmservice", "")) for each in labels}


def main() -> int:
    """Play, and print the table."""
    wanted = {(fault.alert, fault.service) for fault in FAULTS}
    seen: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as place:
        rules = Path(place) / "rules.yaml"
        rules.write_text(faster(RULES.read_text()))
        prometheus = Prometheus(Path(place), port=free_port())
        live = Live((frame(second) for second in range(WELL_SECONDS + FAULT_SECONDS)), seconds_each=1.0)
        began = time.monotonic()
        try:
            prometheus.start(live.scrapes(), rules_file=rules, lookback="10s")
            while (now := time.monotonic() - began) < WELL_SECONDS + FAULT_SECONDS:
                for each in fired(prometheus):
                    seen.setdefault(each, now - WELL_SECONDS)
                time.sleep(0.5)
        finally:
            prometheus.stop()
            live.close()
    for alert, service in sorted(wanted | seen.keys()):
        at = seen.get((alert, service))
        when = (
            "did not fire"
            if at is None
            else f"fired {at:.0f} s after the fault, {at * FASTER / 60:.0f} min unhurried"
        )
        print(f"{service:10} {alert:32} {when}{'' if (alert, service) in wanted else '  << unasked'}")
    return 0 if seen.keys() == wanted and min(seen.values()) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
