"""Three hours of one service under load, simulated: engines, pods, and the operator's decisions on the way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.scaling_setup import Service, conversation_pairs, speed_of, tables_of
from llmservice_operator.autoscaling.decision import Decision
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.fleet import FleetSettings, Phase, Simulation
from llmservice_operator.simulation.loads import counted_arrivals, drawn_load
from llmservice_operator.simulation.observation import Observation
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.policies import Service as Scaled
from llmservice_operator.simulation.records import Records
from llmservice_operator.simulation.score import Objective

SECONDS = 3 * 3600.0
SAMPLE_SECONDS = 30.0
START_SECONDS = 90.0
MAX_REPLICAS = 6
OBJECTIVE = Objective(ttft_seconds=0.5, tpot_seconds=0.025)
LLAMA = Service(
    name="llama-3-8b",
    model="meta-llama--Meta-Llama-3.1-8B",
    accelerator="nvidia-h200",
    ranks=1,
    engine_version="0.26.0",
    objective=OBJECTIVE,
    lengths=Lengths(input_p50=1020, output_p50=129, input_p95=4083, output_p95=451),
)
UNSEEN = Fault(kind=FaultKind.GAP, at_seconds=4800.0, seconds=180.0)
"""No page can be read for three minutes."""
_RATES = (
    (0, 9),
    (1800, 14),
    (4200, 46),
    (5400, 52),
    (5430, 84),
    (5820, 84),
    (5850, 50),
    (7800, 22),
    (10800, 10),
)
"""(second, requests a second): a morning with a burst that is faster than a start."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One pod at one time."""

    number: int
    phase: Phase
    created_seconds: float
    ready_seconds: float
    """Infinite while it isn't."""
    engine: Records
    kv_use: float


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The service at one time, in seconds since the begin."""

    at_seconds: float
    replicas: tuple[Replica, ...]
    decision: Decision
    signals: Signals
    changes: tuple[tuple[tuple[str, str], int], ...]
    """Decisions so far that changed the replicas, by (direction, ruling)."""


class _Remembering(ServiceObserver):
    """Keeps the signals that it told last."""

    last: Signals = Signals()

    def signals(self, ready: dict[str, float], now: float, context: Context) -> Signals:  # type: ignore[override]
        self.last = super().signals(ready, now, context)
        return self.last


@dataclass
class _Watched:
    """The operator's rule, and every so often a look at the fleet."""

    inner: OperatorPolicy
    observer: _Remembering
    pool_tokens: float
    half_block: float
    simulation: Simulation | None = None
    moments: list[Moment] = field(default_factory=list)
    name: str = "operator"
    period_seconds: float = 15.0
    _changes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def step(self, seen: Observation) -> int:
        decisions: list[Decision] = []
        self.inner.keep = lambda _, decision: decisions.append(decision)
        desired = self.inner.step(seen)
        if desired != seen.provisioned:
            self._changes["out" if desired > seen.provisioned else "in", decisions[0].ruling] += 1
        if not self.moments or seen.now_seconds - self.moments[-1].at_seconds >= SAMPLE_SECONDS - 1e-6:
            self.moments.append(self._look(seen, decisions[0]))
        return desired

    def _look(self, seen: Observation, decision: Decision) -> Moment:
        assert self.simulation is not None
        return Moment(
            at_seconds=seen.now_seconds,
            replicas=tuple(
                Replica(
                    number=pod.pod,
                    phase=pod.phase,
                    created_seconds=pod.created_seconds,
                    ready_seconds=pod.ready_seconds if pod.phase is not Phase.STARTING else np.inf,
                    engine=self.simulation._fleet.engines[pod.slot].copy(),
                    kv_use=self._kv_use(self.simulation._fleet.engines[pod.slot]),
                )
                for pod in self.simulation._pods
            ),
            decision=decision,
            signals=self.observer.last,
            changes=tuple(self._changes.items()),
        )

    def _kv_use(self, engine: Records) -> float:
        taken = engine["context"] + engine["promised"] + self.half_block * engine["running"]
        return float(min(1.0, taken / self.pool_tokens))


def play(seconds: float = SECONDS) -> Sequence[Moment]:
    """The service's moments, one each SAMPLE_SECONDS. The same every time."""
    tables = tables_of(LLAMA)
    scaled = Scaled(
        speed=speed_of(LLAMA),
        objective=OBJECTIVE,
        lengths=LLAMA.lengths,
        static_replicas=1,
        start_seconds=START_SECONDS,
    )
    rule = scaled.policy("operator")
    assert isinstance(rule, OperatorPolicy)
    observer = _Remembering()
    rule._observer = observer
    watched = _Watched(
        inner=rule,
        observer=observer,
        pool_tokens=float(tables[0]["pool_tokens"]),
        half_block=float(tables[0]["half_block"]),
    )
    times = np.arange(0.0, seconds, 10.0)
    counts = np.interp(times, [at for at, _ in _RATES], [rate for _, rate in _RATES]) * 10.0
    load = drawn_load(
        "morning",
        counted_arrivals(np.rint(counts).astype(int).tolist(), 10.0, share=1.0, seed=1),
        conversation_pairs(),
        seconds=seconds,
        seed=2,
        cached_share=0.2,
    )
    settings = FleetSettings(
        max_replicas=MAX_REPLICAS,
        start_seconds=(("start", START_SECONDS),),
        tail_seconds=0.0,
        faults=(UNSEEN,),
        seed=3,
    )
    watched.simulation = Simulation(tables, load, watched, settings)
    watched.simulation.play()
    return watched.moments
