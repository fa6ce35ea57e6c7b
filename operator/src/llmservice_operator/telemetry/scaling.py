"""The series of each service: its state, what the scaling loop sees and why it decides. They vanish with the service.

All are read when Prometheus asks, from what the loop and the store have then: nothing is kept here. The text is written
by a few lines of our own: a thousand services are 130,000 samples, for which prometheus_client's writer holds the event
loop for 1.7 s (and with it every deadline of a scrape), this one for an eighth of that.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_PREFIX = "llmservice"
_WHERE = ("namespace", "name")


class SignalSample(NamedTuple):
    """One signal."""

    name: str
    state: str
    value: float | None
    at: float


class SloSample(NamedTuple):
    """Requests under one objective, since the operator began to count."""

    objective: str
    limit_seconds: float
    requests: float
    met: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSample:
    """What is told of one service that the loop looks at. Times are seconds since the Unix epoch."""

    namespace: str
    name: str
    ready: int
    pending: int
    unschedulable: int
    signals: Sequence[SignalSample]
    capacity_requests_per_second: float
    start_seconds: float
    slo: Sequence[SloSample]
    desired: int | None = None
    """None, as the rest below: the service isn't scaled, or another manager sets its replicas."""
    bounds: tuple[int, int] | None = None
    correction: float | None = None
    decided_at: float | None = None
    steps: Sequence[tuple[str, float]] = ()
    ruling: str = ""
    decisions: Sequence[tuple[str, str, int]] = ()
    """Changes since the operator began: (direction, ruling, how many)."""


class ServiceState(NamedTuple):
    """The state of one service, as its status tells it."""

    namespace: str
    name: str
    conditions: Sequence[tuple[str, str, str]]
    """(type, status, reason)."""
    desired: int
    ready: int
    accelerator: str
    accelerators: int
    """Held by its pods; 0 on CPUs."""


class Family:
    """One metric with its samples, as lines of Prometheus' text format."""

    def __init__(self, name: str, kind: str, text: str, labels: Sequence[str]) -> None:
        self.name, self.kind, self.help, self.labels = name, kind, text, tuple(labels)
        named = ",".join(f'{label}="%s"' for label in labels)
        self._format = f"{name}{{{named}}} %s\n"
        self._lines: list[str] = []

    def add(self, labels: Iterable[str], value: float) -> None:
        """Another sample."""
        self._lines.append(self._format % (*map(_escaped, labels), _number(value)))

    def text(self) -> str:
        """The lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n" + "".join(self._lines)


@lru_cache(maxsize=65_536)
def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(f"{_PREFIX}_{name}", "gauge", text, (*_WHERE, *labels))


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(f"{_PREFIX}_{name}_total", "counter", text, (*_WHERE, *labels))


class ServiceSeries:
    """See the module."""

    def __init__(
        self,
        states: Callable[[], Iterable[ServiceState]],
        scaling: Callable[[], Iterable[ScalingSample]] = tuple,
    ) -> None:
        self._states = states
        self._scaling = scaling

    def page(self) -> str:
        """All families as text."""
        return "".join(family.text() for family in self.families())

    def families(self) -> Iterator[Family]:
        """The families, with their values now."""
        yield from _states(self._states())
        samples = list(self._scaling())
        yield from _numbers(samples)
        yield from _signals(samples)
        yield from _steps(samples)
        yield from _objectives(samples)


def _states(states: Iterable[ServiceState]) -> Iterator[Family]:
    conditions = _gauge(
        "service_condition", "1 for each condition's current status and reason.", "type", "status", "reason"
    )
    replicas = _gauge("service_replicas", "Replicas, wanted (desired) and serving (ready).", "state")
    held = _gauge(
        "service_accelerators", "Accelerators that the service's pods hold, by kind.", "accelerator"
    )
    for state in states:
        where = [state.namespace, state.name]
        for condition in state.conditions:
            conditions.add([*where, *condition], 1)
        replicas.add([*where, "desired"], state.desired)
        replicas.add([*where, "ready"], state.ready)
        if state.accelerators:
            held.add([*where, state.accelerator], state.accelerators)
    yield from (conditions, replicas, held)


_NUMBERS: tuple[tuple[str, str, Callable[[ScalingSample], float | None]], ...] = (
    ("desired_replicas", "Replicas wanted by the last decision.", lambda each: each.desired),
    ("ready_replicas", "Replicas that serve.", lambda each: each.ready),
    ("pending_replicas", "Replicas that start.", lambda each: each.pending),
    (
        "unschedulable_replicas",
        "Replicas that no node takes, or that the API server refuses.",
        lambda each: each.unschedulable,
    ),
    ("min_replicas", "spec.scaling.minReplicas.", lambda each: each.bounds and each.bounds[0]),
    ("max_replicas", "spec.scaling.maxReplicas.", lambda each: each.bounds and each.bounds[1]),
    (
        "capacity_requests_per_second",
        "What one replica takes within spec.slo at the lengths that are seen, by the model.",
        lambda each: each.capacity_requests_per_second or None,
    ),
    (
        "capacity_correction_ratio",
        "What is observed over what the model says; the capacity is multiplied by it.",
        lambda each: each.correction,
    ),
    ("start_seconds", "How long a replica takes until it serves.", lambda each: each.start_seconds),
    ("decision_timestamp_seconds", "When it was last decided.", lambda each: each.decided_at),
)


def _numbers(samples: Sequence[ScalingSample]) -> Iterator[Family]:
    for name, text, read in _NUMBERS:
        family = _gauge(f"scaling_{name}", text)
        for each in samples:
            value = read(each)
            if value is not None:
                family.add([each.namespace, each.name], value)
        yield family
    decisions = _counter(
        "scaling_decisions",
        "Changes of the number of replicas, out or in, by what ruled.",
        "direction",
        "ruling",
    )
    for each in samples:
        for direction, ruling, count in each.decisions:
            decisions.add([each.namespace, each.name, direction, ruling], count)
    yield decisions


def _signals(samples: Sequence[ScalingSample]) -> Iterator[Family]:
    """A signal that was never there has a state and nothing else."""
    values = _gauge("scaling_signal", "Value of a signal, in the unit of its name.", "signal")
    states = _gauge("scaling_signal_state", "1 for the state that a signal is in.", "signal", "state")
    times = _gauge(
        "scaling_signal_timestamp_seconds", "When the oldest part of a signal was taken.", "signal"
    )
    for each in samples:
        where = [each.namespace, each.name]
        for signal in each.signals:
            states.add([*where, signal.name, signal.state], 1)
            if signal.value is not None:
                values.add([*where, signal.name], signal.value)
                times.add([*where, signal.name], signal.at)
    yield from (values, states, times)


def _steps(samples: Sequence[ScalingSample]) -> Iterator[Family]:
    asked = _gauge("scaling_step_replicas", "Replicas that a step of the last decision asked for.", "step")
    ruled = _gauge("scaling_ruling_step", "1 for the step that ruled the last decision.", "step")
    for each in samples:
        where = [each.namespace, each.name]
        for step, replicas in each.steps:
            asked.add([*where, step], replicas)
        if each.ruling:
            ruled.add([*where, each.ruling], 1)
    yield from (asked, ruled)


def _objectives(samples: Sequence[ScalingSample]) -> Iterator[Family]:
    limits = _gauge("slo_objective_seconds", "An objective of spec.slo at p95: ttft or tpot.", "objective")
    requests = _counter("slo_requests", "Requests that an objective was measured on.", "objective")
    met = _counter(
        "slo_requests_met",
        "Those within the objective, from the engines' histograms; fractions, where it lies within a bucket.",
        "objective",
    )
    for each in samples:
        for objective in each.slo:
            where = [each.namespace, each.name, objective.objective]
            limits.add(where, objective.limit_seconds)
            requests.add(where, objective.requests)
            met.add(where, objective.met)
    yield from (limits, requests, met)
