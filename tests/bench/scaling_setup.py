"""What the comparison of scaling rules runs on: services, loads, fleets. Fixed before any rule of ours ran.

A service's engine is as `llmservice estimate` says with vLLM's own defaults, its speed as the speed model says. Loads
are thinned until a rate rule would want `peak` replicas in the busiest five minutes; time is never compressed.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.scaling_servegen import busiest_rate, servegen_day
from llmservice_operator.perfmodel.accelerators import (
    AcceleratorRow,
    builtin_catalogue_text,
    find_row,
    load_catalogue,
)
from llmservice_operator.perfmodel.architecture import read_architecture
from llmservice_operator.perfmodel.open_loop import Lengths
from llmservice_operator.perfmodel.quantization import read_quantization
from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
from llmservice_operator.planning.estimate import EstimateInputs, estimate
from llmservice_operator.simulation.loads import (
    Load,
    Pair,
    Stage,
    counted_arrivals,
    drawn_load,
    llmd_ramp,
    make_load,
    normal_lengths,
    staged_arrivals,
)
from llmservice_operator.simulation.peers.registry import Profile, profile
from llmservice_operator.simulation.score import Objective
from llmservice_operator.simulation.tables import Tables, build_tables
from llmservice_operator.simulation.trace_text import COUNT_SECONDS, builtin_trace, share_of_peak

TESTS = Path(__file__).resolve().parents[1]
TRACES = TESTS / "data" / "traces"
PAIRS = TESTS / "truth" / "speed" / "azureconv_pairs.json"
FIRST_SECONDS = 60.0
RATE_RULE_SHARE = 0.85
"""Of a replica's rate within the objectives, that a rate rule would load it with."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """An engine and what its clients are promised."""

    name: str
    model: str
    """Folder of tests/data/models."""
    accelerator: str
    ranks: int
    engine_version: str
    objective: Objective
    lengths: Lengths
    """Of the load that it is profiled with."""

    @property
    def row(self) -> AcceleratorRow:
        """Of the catalogue."""
        row = find_row(load_catalogue(builtin_catalogue_text()), self.accelerator)
        if row is None:
            raise ValueError(f"{self.accelerator} is no row of the catalogue")
        return row


QWEN = Service(
    name="qwen3-32b",
    model="Qwen--Qwen3-32B",
    accelerator="nvidia-h100-80gb",
    ranks=2,
    engine_version="0.19.1",
    objective=Objective(ttft_seconds=3.0, tpot_seconds=0.1),
    lengths=Lengths(input_p50=4000, output_p50=1000),
)
"""As llm-d measured it (guides/optimized-baseline, vllm/vllm-openai:v0.19.1), with its objectives."""
CHAT = replace(
    QWEN,
    objective=Objective(ttft_seconds=1.0, tpot_seconds=0.05),
    lengths=Lengths(input_p50=1020, output_p50=129, input_p95=4083, output_p95=451),
)
"""The same engine with the objectives of chat; lengths by the quantiles of Azure's conversations."""
CODE = replace(CHAT, lengths=Lengths(input_p50=1469, output_p50=13, input_p95=7315, output_p95=90))
"""The same for Azure's code."""
SERVEGEN = replace(CHAT, lengths=Lengths(input_p50=765, output_p50=65, input_p95=3589, output_p95=580))
"""The same for ServeGen's m-large."""


def make_service_speed(service: Service) -> SpeedModel:
    """Its engine with vLLM's defaults."""
    config: Mapping[str, Any] = json.loads(
        (TESTS / "data" / "models" / service.model / "config.json").read_text()
    )
    told = estimate(
        EstimateInputs(
            config=config,
            card=service.row,
            engine_version=service.engine_version,
            flags=(("tensor_parallel_size", str(service.ranks)),),
        )
    )
    model = read_architecture(config)
    major, minor, patch = (int(part) for part in service.engine_version.split("."))
    return SpeedModel(
        SpeedCase(
            model=model,
            quantization=read_quantization(config),
            accelerator=service.row,
            tensor_parallel_size=service.ranks,
            dtype=told.settings["dtype"],
            kv_cache_dtype=told.settings["kv_cache_dtype"],
            max_num_seqs=told.settings["max_num_seqs"],
            max_num_batched_tokens=told.settings["max_num_batched_tokens"],
            max_model_len=told.settings["max_model_len"],
            engine_version=(major, minor, patch),
            kv_cache_tokens=told.kv_cache.tokens,
        )
    )


speed_of = cache(make_service_speed)


@cache
def tables_of(service: Service, slowdown: float = 1.0) -> Tables:
    """Step times of that engine."""
    return build_tables(speed_of(service), slowdown=slowdown)


@cache
def profile_of(service: Service, static_replicas: int = 8) -> Profile:
    """What its peers are told of it."""
    return profile(
        speed_of(service),
        ttft_seconds=service.objective.ttft_seconds,
        tpot_seconds=service.objective.tpot_seconds,
        lengths=service.lengths,
        static_replicas=static_replicas,
    )


# ── loads ──


@cache
def conversation_pairs() -> tuple[Pair, ...]:
    """Lengths of Azure's conversations of 2023."""
    return tuple(Pair(prompt, max(1, answer)) for prompt, answer in json.loads(PAIRS.read_text()))


@cache
def code_requests() -> tuple[tuple[float, Pair], ...]:
    """Azure's code of 2023: seconds and lengths."""
    with (TRACES / "azure2023_code.csv").open() as lines:
        return tuple(
            (
                int(row["milliseconds"]) / 1000.0,
                Pair(int(row["prompt_tokens"]), max(1, int(row["answer_tokens"]))),
            )
            for row in csv.DictReader(lines)
        )


def day(kind: str, date: str, *, service: Service, peak: int, seed: int) -> Load:
    """A day of Azure's counts of 2024, thinned or thickened to this peak."""
    text = builtin_trace(f"azure2024-{kind}-{date}")
    counts = [int(each) for each in text.split()]
    usable = profile_of(service).engine_requests_per_second * RATE_RULE_SHARE
    share = share_of_peak(text, peak * usable)
    arrivals = counted_arrivals(counts, COUNT_SECONDS, share=share, seed=seed)
    pairs = conversation_pairs() if kind == "conv" else [pair for _, pair in code_requests()]
    return drawn_load(
        f"azure2024 {kind} {date}",
        arrivals,
        pairs,
        seconds=len(counts) * COUNT_SECONDS,
        seed=seed + 1000,
    )


def servegen(day_of_trace: int, *, peak: int, seed: int) -> Load:
    """A day of ServeGen's m-large, thinned to this peak."""
    usable = profile_of(SERVEGEN).engine_requests_per_second * RATE_RULE_SHARE
    return servegen_day(day_of_trace, share=peak * usable / busiest_rate(day_of_trace), seed=seed)


def code_hour(*, seed: int) -> Load:
    """Azure's code of 2023 as recorded: long silences and steep bursts."""
    del seed  # nothing is drawn
    requests = code_requests()
    return make_load(
        "azure2023 code",
        np.array([at for at, _ in requests]),
        np.array([pair.prompt for _, pair in requests]),
        np.array([pair.answer for _, pair in requests]),
        seconds=requests[-1][0],
    )


def mooncake(*, seed: int) -> Load:
    """Mooncake's conversations as recorded, arrivals spread within their batches of three seconds."""
    with (TRACES / "mooncake_conversation.csv").open() as lines:
        rows = np.array([[int(each) for each in row] for row in list(csv.reader(lines))[1:]])
    arrivals = rows[:, 0] / 1000.0 + np.random.default_rng(seed).uniform(0.0, 3.0, len(rows))
    rows, arrivals = rows[np.argsort(arrivals)], np.sort(arrivals)
    load = make_load("mooncake", arrivals, rows[:, 1], rows[:, 2], seconds=float(arrivals[-1]))
    load.cached_tokens[:] = rows[:, 3]
    return load


def bursty(*, seed: int) -> Load:
    """llm-d's bursty rates, 15-2-10-15-5-2 a second for five minutes each, with the ramp's lengths over four."""
    stages = [Stage(rate, 300.0) for rate in (15.0, 2.0, 10.0, 15.0, 5.0, 2.0)]
    arrivals = staged_arrivals(stages, seed=seed)
    count = len(arrivals)
    return make_load(
        "llm-d bursty",
        arrivals,
        normal_lengths(count, mean=1000, deviation=75, least=875, most=1125, seed=2 * seed),
        normal_lengths(count, mean=250, deviation=20, least=225, most=275, seed=2 * seed + 1),
        seconds=1800.0,
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One load on one service."""

    name: str
    service: Service
    load: Callable[[int], Load]
    """By seed."""
    min_replicas: int = 1
    max_replicas: int = 16


REPORTED_DAYS, FIT_DAY = ("2024-05-15", "2024-05-12"), "2024-05-14"
"""A Wednesday and a Sunday; the Tuesday that peers are tuned on."""
REPORTED_SERVEGEN, FIT_SERVEGEN = 8, 9
FIT_HOURS = (6.0, 14.0)
"""Of those days: the climb to the peak, and most of it."""
_HOURS = f"{FIT_HOURS[0]:.0f} to {FIT_HOURS[1]:.0f}"


def _azure_case(kind: str, date: str, peak: int) -> Case:
    service = {"conv": CHAT, "code": CODE}[kind]
    return Case(
        name=f"{kind} {date}",
        service=service,
        load=lambda seed: day(kind, date, service=service, peak=peak, seed=seed),
        max_replicas=2 * peak,
    )


def _servegen_case(day_of_trace: int, peak: int) -> Case:
    return Case(
        name=f"servegen day {day_of_trace}",
        service=SERVEGEN,
        load=lambda seed: servegen(day_of_trace, peak=peak, seed=seed),
        max_replicas=2 * peak,
    )


def cases(peak: int = 8) -> tuple[Case, ...]:
    """All of them; the days are named here, before any rule runs."""
    ramp = Case(
        name="llm-d ramp",
        service=QWEN,
        load=lambda seed: llmd_ramp(seed=seed),
        min_replicas=3,
        max_replicas=8,
    )
    return (
        ramp,
        replace(ramp, name="llm-d ramp, unwaited", load=lambda seed: llmd_ramp(seed=seed, waits=False)),
        Case(name="llm-d bursty", service=QWEN, load=lambda seed: bursty(seed=seed)),
        *(_azure_case(kind, date, peak) for kind in ("conv", "code") for date in REPORTED_DAYS),
        _servegen_case(REPORTED_SERVEGEN, peak),
        Case(name="azure2023 code", service=CODE, load=lambda seed: code_hour(seed=seed)),
        Case(name="mooncake", service=QWEN, load=lambda seed: mooncake(seed=seed)),
    )


def fit_cases(peak: int = 8) -> Mapping[str, Case]:
    """What peers are tuned on, by the case that is reported: another day's hours; for the ramp its other kind."""
    days = {
        f"conv {REPORTED_DAYS[0]}": _azure_case("conv", FIT_DAY, peak),
        f"code {REPORTED_DAYS[0]}": _azure_case("code", FIT_DAY, peak),
        f"servegen day {REPORTED_SERVEGEN}": _servegen_case(FIT_SERVEGEN, peak),
    }
    named = {name: replace(by_hours(case), name=f"{case.name}, {_HOURS} h") for name, case in days.items()}
    unwaited = next(case for case in cases(peak) if case.name == "llm-d ramp, unwaited")
    return {"llm-d ramp": unwaited, **named}


def by_hours(case: Case) -> Case:
    """Its FIT_HOURS alone."""
    begin, end = (hours * 3600.0 for hours in FIT_HOURS)

    def load(seed: int) -> Load:
        whole = case.load(seed)
        inside = slice(*np.searchsorted(whole.arrival_seconds, (begin, end)))
        return make_load(
            whole.name,
            whole.arrival_seconds[inside] - begin,
            whole.prompt_tokens[inside],
            whole.answer_tokens[inside],
            seconds=end - begin,
        )

    return replace(case, load=load)


def first_replicas(case: Case, load: Load) -> int:
    """What every rule begins with: what a rate rule would have for the first minute."""
    usable = profile_of(case.service).engine_requests_per_second * RATE_RULE_SHARE
    rate = float((load.arrival_seconds < FIRST_SECONDS).sum()) / FIRST_SECONDS
    return min(max(case.min_replicas, math.ceil(rate / usable)), case.max_replicas)
