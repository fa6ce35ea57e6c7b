"""The operator's page: its own `Metrics`, told of the simulated service and of two that stand still."""

import random
from collections.abc import Iterator

from llmservice_operator.simulation.fleet import Phase
from llmservice_operator.simulation.operator import EPOCH_SECONDS
from llmservice_operator.simulation.records import TPOT_BOUNDS_SECONDS, TTFT_BOUNDS_SECONDS
from llmservice_operator.telemetry.metrics import Metrics, PlanTerm
from llmservice_operator.telemetry.scaling import ScalingSample, ServiceState, SignalSample, SloSample
from observability.stage.samples import Sample, read
from observability.stage.supervisor_page import FACTS
from observability.stage.world import MAX_REPLICAS, OBJECTIVE, SAMPLE_SECONDS, Moment

_GIB = 2**30
MEMORY_BYTES = 83 * 2**20
CPU_SHARE = 0.012
DECIDED_EACH_SECONDS = 15.0
"""In the place of those of the process that plays; the memory is as `make bench-operator` measures it."""
PLANNED = {
    "weights": 15.0 * _GIB,
    "activation": 1.14 * _GIB,
    "non_torch": 0.25 * _GIB,
    "cuda_graphs": 0.6 * _GIB,
    "kv_cache": 111.6 * _GIB,
    "requested": 128.62 * _GIB,
    "total": 139.8 * _GIB,
}
SMALL = {
    ("edge", "mistral-7b"): {"weights": 13.5 * _GIB, "kv_cache": 4.1 * _GIB},
    ("edge", "smollm2"): {"weights": 0.503 * _GIB, "kv_cache": 1.0 * _GIB},
}
"""Of services that are a row in a table here."""


class OperatorPage:
    """Sees moments in their order."""

    def __init__(self, *, begin: float) -> None:
        self._begin = begin
        self._chance = random.Random(4)
        self._moment: Moment | None = None
        self._counts = {"ttft": [0.0, 0.0], "tpot": [0.0, 0.0]}
        self._seen: dict[tuple[int, str], tuple[float, float]] = {}
        self.metrics = Metrics()
        self.metrics.leader.set(1)
        self.metrics.watch(
            queue_depth=lambda: self._chance.choice([0, 0, 0, 1, 2]),
            queue_delayed=lambda: 3,
            queue_age_seconds=lambda: self._chance.random() * 0.05,
            objects=lambda: {"LLMService": 5, "Deployment": 5, "Pod": 8, "Service": 10, "Node": 3},
            services=lambda: {("True", "Ready"): 4, ("False", "NoReadyReplicas"): 1},
            plans=self._plans,
        )
        self.metrics.watch_services(self._states, self._scaling)

    def page(self, moment: Moment) -> Iterator[Sample]:
        """The page at this moment."""
        self._moment = moment
        self._work(moment)
        self._count(moment)
        process = {
            "process_resident_memory_bytes": MEMORY_BYTES,
            "process_cpu_seconds_total": CPU_SHARE * moment.at_seconds,
        }
        for sample in read(self.metrics.page().decode()):
            yield sample._replace(value=process.get(sample.name, sample.value))

    def _plans(self) -> Iterator[PlanTerm]:
        actual = {
            "weights": FACTS.weights_bytes,
            "activation": FACTS.activation_bytes,
            "non_torch": FACTS.non_torch_bytes,
            "cuda_graphs": FACTS.cuda_graph_bytes,
            "kv_cache": FACTS.kv_cache_bytes,
            "requested": FACTS.requested_bytes,
            "total": FACTS.total_bytes,
        }
        for namespace, name, off in (("chat", "llama-3-8b", 1.0), ("research", "qwen-3-32b", 1.03)):
            for term, planned in PLANNED.items():
                given = 1.0 if term in ("requested", "total") else off
                yield PlanTerm(namespace, name, term, int(planned * given), actual[term])
        for (namespace, name), terms in SMALL.items():
            for term, planned in terms.items():
                yield PlanTerm(namespace, name, term, int(planned), int(planned * 1.001))

    def _work(self, moment: Moment) -> None:
        """What reconciles, watches and the API server would have counted in the time since the last moment."""
        metrics, chance = self.metrics, self._chance
        now = self._begin + moment.at_seconds
        for _ in range(chance.randint(4, 9)):
            metrics.reconciles.labels("success").inc()
            metrics.reconcile_seconds.observe(self._about(0.015))
            metrics.queue_wait_seconds.observe(self._about(0.002))
            metrics.applied("Deployment", chance.choice(["unchanged"] * 9 + ["updated"]))
            metrics.requested(chance.choice(["get", "apply", "apply", "patch"]), "200", self._about(0.008))
        if chance.random() < 0.05:
            metrics.reconciles.labels("error").inc()
            metrics.requested("apply", "409", 0.01)
        for kind in ("LLMService", "Pod", "Deployment"):
            metrics.watch_events.labels(kind).inc(chance.randint(0, 3))
            metrics.watch_last_event.labels(kind).set(now - chance.uniform(0, 60))
            metrics.last_sweep.labels(kind).set(now - moment.at_seconds % 600)
            metrics.watch_restarts.labels(kind).inc(chance.random() < 0.01)
        if chance.random() < 0.3:
            metrics.recorded(chance.choice(["posted", "repeated", "repeated"]))
        for _ in range(int(len(moment.replicas) * SAMPLE_SECONDS / 5)):
            metrics.scraped("timeout" if chance.random() < 0.01 else "", self._about(0.006))

    def _about(self, seconds: float) -> float:
        """A time with this median, and a tail."""
        return seconds * self._chance.lognormvariate(0.0, 0.6)

    def _count(self, moment: Moment) -> None:
        """Requests within the objectives; both lie on a bound of the engine's buckets, so that nothing is guessed."""
        for replica in moment.replicas:
            for name, counts, bounds, limit in (
                ("ttft", replica.engine["ttft"], TTFT_BOUNDS_SECONDS, OBJECTIVE.ttft_seconds),
                ("tpot", replica.engine["tpot"], TPOT_BOUNDS_SECONDS, OBJECTIVE.tpot_seconds),
            ):
                now = float(counts.sum()), float(counts[:-1][bounds <= limit].sum())
                before = self._seen.get((replica.number, name), (0.0, 0.0))
                self._seen[replica.number, name] = now
                for place in (0, 1):
                    self._counts[name][place] += now[place] - before[place]

    def _states(self) -> Iterator[ServiceState]:
        moment = self._moment
        assert moment is not None
        ready = sum(replica.phase is Phase.READY for replica in moment.replicas)
        pods = sum(replica.phase is not Phase.DRAINING for replica in moment.replicas)
        unseen = bool(moment.decision) and not moment.decision.metrics_available
        scaled = _good(MetricsAvailable="MetricsStale" if unseen else "", ScalingActive="", SLOMet="")
        yield ServiceState("chat", "llama-3-8b", scaled, moment.decision.desired, ready, "nvidia-h200", pods)
        yield ServiceState("edge", "smollm2", _good(), 1, 1, "cpu", 0)
        yield ServiceState("edge", "mistral-7b", _good(), 1, 1, "nvidia-l4", 1)
        inaccurate = _good(PlanAccurate="KvCacheOverPromised")
        yield ServiceState("research", "qwen-3-32b", inaccurate, 1, 1, "nvidia-h100-80gb", 2)
        stuck = _good(Ready="NoReadyReplicas", Available="NoReadyReplicas", Progressing="Unschedulable")
        unseen_plan = tuple(
            ("PlanAccurate", "Unknown", "NotYetReported") if each[0] == "PlanAccurate" else each
            for each in stuck
        )
        yield ServiceState("research", "gpt-oss-120b", unseen_plan, 1, 0, "nvidia-h100-80gb", 0)

    def _scaling(self) -> Iterator[ScalingSample]:
        moment = self._moment
        assert moment is not None
        decision = moment.decision
        phases = [replica.phase for replica in moment.replicas]
        yield ScalingSample(
            namespace="chat",
            name="llama-3-8b",
            ready=phases.count(Phase.READY),
            pending=phases.count(Phase.STARTING),
            unschedulable=0,
            signals=[
                SignalSample(name, str(signal.state), signal.value, self._here(signal.at))
                for name, signal in moment.signals.items()
            ],
            capacity_requests_per_second=decision.capacity_requests_per_second,
            start_seconds=decision.start_seconds,
            slo=[
                SloSample(name, limit, *self._counts[name])
                for name, limit in (("ttft", OBJECTIVE.ttft_seconds), ("tpot", OBJECTIVE.tpot_seconds))
            ],
            desired=decision.desired,
            bounds=(1, MAX_REPLICAS),
            correction=decision.correction,
            decided_at=self._begin + moment.at_seconds - self._chance.uniform(0.0, DECIDED_EACH_SECONDS),
            steps=[(step.name, step.replicas) for step in decision.steps if step.replicas is not None],
            ruling=decision.ruling,
            decisions=[(*what, count) for what, count in moment.changes],
        )

    def _here(self, at: float) -> float:
        """A time of the simulated operator's clock on the stage's."""
        return at - EPOCH_SECONDS + self._begin if at else 0.0


def _good(**reasons: str) -> tuple[tuple[str, str, str], ...]:
    """Conditions that are good, but for those with a reason here."""
    kinds = ("Ready", "Stalled", "Planned", "Available", "Progressing", "UpToDate", "PlanAccurate")
    told = []
    for kind in (*kinds, *(kind for kind in reasons if kind not in kinds)):
        good = "False" if kind == "Stalled" else "True"
        told.append((kind, "False" if reasons.get(kind) else good, reasons.get(kind) or "Fine"))
    return tuple(told)
