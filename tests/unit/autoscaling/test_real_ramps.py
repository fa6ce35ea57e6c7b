"""The rule on real engines: metrics pages of an H200 under a load that passes its limit (tests/truth/h200/ramps)."""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmservice_operator.autoscaling.capacity import Capacity, CapacityModel, LengthMix
from llmservice_operator.autoscaling.decide import decide
from llmservice_operator.autoscaling.decision import Decision, Inputs, Objectives
from llmservice_operator.autoscaling.fleet import Fleet
from llmservice_operator.autoscaling.observer import Context, ServiceObserver
from llmservice_operator.autoscaling.signals import Signals
from llmservice_operator.autoscaling.state import ScalerState
from llmservice_operator.autoscaling.track import Windows
from llmservice_operator.engines.metrics_page import parse_page

RAMPS = Path(__file__).parents[2] / "truth" / "h200" / "ramps"
EPOCH = 1_700_000_000.0
READY = {"engine": EPOCH - 300.0}
PEAK_BYTES_PER_SECOND = 4.8e12  # NVIDIA's data sheet of the H200
DECIDE_EACH_PAGES = 3
LATENCY_SECONDS = Windows().latency_seconds


@dataclass(frozen=True)
class Table(CapacityModel):
    """The speed model's answer for the load's mean lengths, as a table of one row."""

    requests_per_second: float

    def capacity(self, mix: LengthMix) -> Capacity:
        return Capacity(requests_per_second=self.requests_per_second)

    def itl_seconds(self, batch: float, mix: LengthMix) -> float | None:
        return None

    def prompt_seconds(self, mix: LengthMix) -> float | None:
        return None


@dataclass(frozen=True)
class Engine:
    """What was promised of a recorded engine, and what the speed model says that it takes within that."""

    name: str
    ttft_seconds: float
    tpot_seconds: float
    modelled_requests_per_second: float

    @property
    def objectives(self) -> Objectives:
        return Objectives(ttft_p95_seconds=self.ttft_seconds, tpot_p95_seconds=self.tpot_seconds)


ENGINES = (
    Engine("qwen3-8b", 1.0, 0.030, 7.26),
    Engine("qwen3-32b", 2.0, 0.060, 1.48),
    Engine("qwen3-32b-decode", 1.0, 0.035, 5.42),
)


@cache
def lines(name: str, kind: str) -> list[dict[str, Any]]:
    with tarfile.open(RAMPS / f"{name}.tar.xz") as archive:
        file = archive.extractfile(f"{name}/{kind}.jsonl")
        assert file is not None
        return [json.loads(line) for line in file]


def looks(engine: Engine) -> Iterator[tuple[float, Signals]]:
    """(seconds, signals) at each time of a decision."""
    observer = ServiceObserver()
    goal = engine.objectives
    context = Context(
        ttft_p95_seconds=goal.ttft_p95_seconds,
        tpot_p95_seconds=goal.tpot_p95_seconds,
        peak_bytes_per_second=PEAK_BYTES_PER_SECOND,
    )
    for number, line in enumerate(lines(engine.name, "pages")):
        now = EPOCH + line["at"]
        observer.record("engine", parse_page(line["page"].encode()), at=now)
        if number % DECIDE_EACH_PAGES == DECIDE_EACH_PAGES - 1:
            yield line["at"], observer.signals(READY, now, context)


@cache
def decisions(engine: Engine, believed: float = 1.0) -> list[tuple[float, Decision]]:
    """What is decided while nothing that is ordered ever comes, with a capacity model that is so far off."""
    state, found = ScalerState(), []
    for at, signals in looks(engine):
        inputs = Inputs(
            signals=signals,
            fleet=Fleet(wanted=1, ready=1, recent_starts=(125.0,)),
            capacity=Table(believed * engine.modelled_requests_per_second),
            expected_mix=LengthMix(input_tokens=2500.0, output_tokens=250.0),
            objectives=engine.objectives,
            max_replicas=8,
        )
        decision = decide(inputs, state, EPOCH + at)
        state = decision.state
        found.append((at, decision))
    return found


def first_order(engine: Engine, believed: float = 1.0) -> float:
    return next(at for at, decision in decisions(engine, believed) if decision.desired > 1)


def ttft_p95(engine: Engine, begin: float, end: float) -> float:
    """As clients saw it."""
    seen = sorted(
        row["first"] - row["sent"]
        for row in lines(engine.name, "requests")
        if row.get("first") and begin <= row["at"] < end
    )
    return float(seen[int(0.95 * (len(seen) - 1))])


def lasting_miss(engine: Engine) -> float:
    """When clients' p95 of the last half minute went beyond the objective for the rest of the ramp up."""
    windows = [(end, ttft_p95(engine, end - 30.0, end)) for end in range(30, 300, 5)]
    return next(
        end for end, _ in windows if all(later > engine.ttft_seconds for at, later in windows if at >= end)
    )


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_two_fifths_of_the_load_that_a_replica_takes_order_none(engine: Engine) -> None:
    assert all(decision.desired == 1 for at, decision in decisions(engine) if at < 60.0)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("believed", [0.7, 1.0, 1.3])
def test_more_is_ordered_a_decision_after_the_objective_is_lost_at_the_latest(
    engine: Engine, believed: float
) -> None:
    """A stage of the ramp is a step: what it holds can't be known before it comes."""
    assert first_order(engine, believed) <= lasting_miss(engine) + 15.0


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_a_model_that_thinks_little_of_a_replica_orders_before_any_miss(engine: Engine) -> None:
    assert first_order(engine, 0.7) < lasting_miss(engine) - 30.0


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_utilisation_says_nothing_of_load(engine: Engine) -> None:
    """GPU-Util is as high with two fifths of the load as beyond the limit: why it is no signal."""
    at_rest = [float(row["utilization.gpu"]) for row in lines(engine.name, "gpu") if row["at"] < 60.0]
    overloaded = [
        float(row["utilization.gpu"]) for row in lines(engine.name, "gpu") if 240 <= row["at"] < 300
    ]
    assert min(sum(at_rest) / len(at_rest), 100.0) > 0.8 * sum(overloaded) / len(overloaded)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_p95_of_the_time_per_token_is_what_clients_measure(engine: Engine) -> None:
    """Within 12 % on average over windows; evenly spread in their buckets samples would say 18 to 50 % too much."""
    rows = [row for row in lines(engine.name, "requests") if row.get("last") and row["output_tokens"] > 1]
    errors = []
    for at, signals in looks(engine):
        seen = sorted(
            (row["last"] - row["first"]) / (row["output_tokens"] - 1)
            for row in rows
            if at - LATENCY_SECONDS <= row["last"] < at
        )
        if len(seen) >= 20 and signals.tpot_p95_seconds.value is not None:
            errors.append(abs(signals.tpot_p95_seconds.value / seen[int(0.95 * (len(seen) - 1))] - 1.0))
    assert len(errors) > 10
    assert sum(errors) / len(errors) < 0.12


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_bandwidth_falls_where_prompts_fill_the_steps(engine: Engine) -> None:
    """Beyond the limit fewer bytes a second are read than before: bandwidth alone is no reason for more replicas."""
    use = {at: signals.bandwidth_use for at, signals in looks(engine)}
    calm, beyond = (
        [signal.value for at, signal in use.items() if low <= at < high and signal.value is not None]
        for low, high in ((60.0, 120.0), (240.0, 300.0))
    )
    assert sum(beyond) / len(beyond) < sum(calm) / len(calm)


def test_what_arrives_is_what_was_sent() -> None:
    """Arrivals are put together from counters of what left and gauges of what is inside; the client knows better."""
    engine = ENGINES[0]
    sent = [row["at"] for row in lines(engine.name, "requests")]
    for at, signals in looks(engine):
        if at >= 130.0 and at <= 300.0:
            expected = sum(at - 120.0 <= each < at for each in sent) / 120.0
            assert signals.sustained_arrivals_per_second.value == pytest.approx(expected, rel=0.1)
