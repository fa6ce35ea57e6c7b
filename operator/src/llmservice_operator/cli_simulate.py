"""`llmservice simulate`: an LLMService under a load, by the operator's scaling rule or another system's, offline."""

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmservice_operator.cli_chart import PNG_STRETCHES, TERMINAL_STRETCHES, terminal_chart, write_png
from llmservice_operator.cli_documents import read_text
from llmservice_operator.cli_plan import add_inputs, plan_services
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.explain import explain_refusal
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal

if TYPE_CHECKING:
    from llmservice_operator.simulation.faults import Fault
    from llmservice_operator.simulation.fleet import Run
    from llmservice_operator.simulation.loads import Load
    from llmservice_operator.simulation.observation import Observation, Policy
    from llmservice_operator.simulation.policies import Service
    from llmservice_operator.simulation.score import Score

# numpy and numba are the extra `simulate`: whatever needs them is imported once it is known that they are there.
# ruff: noqa: PLC0415

REFUSED, UNUSABLE = 1, 2
MOST_REPLICAS = 1000
"""As spec.scaling has it."""
PEAK_SHARE = 0.6
"""Of what the most replicas take within the objectives: the busiest five minutes of a trace that is in the package."""
DEFAULT_TTFT_SECONDS, DEFAULT_TPOT_SECONDS = 3.0, 0.1
"""Objectives where spec.slo has none: those of llm-d's benchmark."""


def add_parser(subparsers: Any) -> None:
    """Add `simulate` to the command's subcommands."""
    parser = subparsers.add_parser(
        "simulate",
        help="play a load on a simulated fleet of an LLMService, offline",
        description="Play a load on a simulated fleet of the file's first LLMService: how many requests keep the "
        "objectives, and what it costs, under the operator's scaling rule and under other systems'.",
        epilog="TRACE: ramp:RATExSECONDS,… (Poisson); azure2024-conv or azure2024-code, perhaps with -2024-05-12, a "
        "Sunday, -14 or -15; a .csv with seconds or milliseconds, prompt_tokens, answer_tokens and perhaps "
        "cached_tokens; or a .txt with counts per ten seconds. Lengths that a trace hasn't are the workload's. "
        "Exit code 1: the plan is refused; 2: something given can't be used.",
    )
    add_inputs(parser)
    parser.add_argument("--trace", required=True, metavar="TRACE", help="the load")
    parser.add_argument(
        "--share",
        type=float,
        help="of a count's requests (above 1: more of them); default: all of a .txt, and of azure2024-… so many that "
        f"the busiest five minutes take {PEAK_SHARE:.0%}% of the most replicas",
    )
    parser.add_argument("--policy", default="operator", help="the scaling rule")
    parser.add_argument("--compare", default="", metavar="P,P", help="further rules; all: every one")
    parser.add_argument("--start-seconds", type=float, default=120.0, help="from a pod's creation to ready")
    parser.add_argument("--min-replicas", type=int, help="default: spec.scaling's, else 1")
    parser.add_argument("--max-replicas", type=int, help="default: spec.scaling's, else 8")
    parser.add_argument(
        "--routing", choices=("least-loaded", "round-robin", "random"), default="least-loaded"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND@SECONDS+SECONDS",
        help="such as nan@600+300; repeatable",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw the runs over time")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print."""
    needed = ("numba", "numpy", *(("matplotlib",) if arguments.chart else ()))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        words = f"{' and '.join(missing)} not installed; pip install 'llmservice-operator[simulate]'"
        print(f"llmservice simulate: {words}", file=sys.stderr)
        return UNUSABLE
    try:
        inputs, plan = plan_services(arguments)[0]
        if isinstance(plan, Refusal):
            print(explain_refusal(inputs.service_name, plan), end="", file=sys.stderr)
            return REFUSED
        _simulate(inputs, plan, arguments)
    except (InvalidInputError, OSError, ValueError) as error:
        print(f"llmservice simulate: {error}", file=sys.stderr)
        return UNUSABLE
    return 0


def _simulate(inputs: PlanInputs, plan: Plan, arguments: argparse.Namespace) -> None:
    from llmservice_operator.simulation.fleet import FleetSettings, Routing, simulate
    from llmservice_operator.simulation.policies import POLICIES
    from llmservice_operator.simulation.score import score
    from llmservice_operator.simulation.tables import build_tables

    scaling = inputs.spec.scaling
    least = _given(arguments.min_replicas, scaling.min_replicas if scaling else 1)
    most = _given(arguments.max_replicas, scaling.max_replicas if scaling else max(8, least))
    if not 1 <= least <= most <= MOST_REPLICAS:
        raise InvalidInputError(
            f"{least} to {most} replicas: 1 <= --min-replicas <= --max-replicas <= {MOST_REPLICAS} is expected"
        )
    if arguments.seed < 0:
        raise InvalidInputError(f"--seed {arguments.seed}: a number of at least 0 is expected")
    if arguments.chart and not arguments.chart.absolute().parent.is_dir():
        raise InvalidInputError(f"--chart {arguments.chart}: there is no such folder")
    if not 0 < arguments.start_seconds <= 1e6:
        raise InvalidInputError(f"--start-seconds {arguments.start_seconds}: a positive number is expected")
    service = simulated_service(inputs, plan, static_replicas=most, start_seconds=arguments.start_seconds)
    load = _load(service, plan, arguments)
    settings = FleetSettings(
        min_replicas=least,
        max_replicas=most,
        start_seconds=(("start", arguments.start_seconds),),
        routing=Routing(arguments.routing),
        faults=tuple(_fault(each, load.seconds) for each in arguments.fault),
        seed=arguments.seed,
    )
    others = (
        POLICIES
        if arguments.compare == "all"
        else [each for each in map(str.strip, arguments.compare.split(",")) if each]
    )
    names = list(dict.fromkeys([arguments.policy, *others]))
    rules = [service.policy(name) for name in names]
    tables = build_tables(service.speed)
    longest, room = int((load.prompt_tokens + load.answer_tokens).max()), int(tables[0]["pool_tokens"])
    if longest > room:
        raise InvalidInputError(
            f"{load.name} has a request of {longest} tokens, and a replica's KV cache holds {room}"
        )
    found = []
    for rule in rules:
        # A fixed fleet is there from the begin.
        pods = replace(settings, initial_replicas=most) if rule.name == "static" else settings
        played = simulate(tables, load, _Watched(rule, load.seconds) if sys.stderr.isatty() else rule, pods)
        found.append((rule.name, played, score(played, service.objective)))
    if arguments.chart:
        _draw(arguments.chart, f"{inputs.service_name}: {load.name}", service, found)
    if arguments.output == "json":
        print(json.dumps([_as_json(policy, of, plan) for policy, _, of in found], indent=2))
        return
    _print_table(inputs.service_name, service, load, found, plan)


def _draw(path: Path, title: str, service: "Service", found: Sequence[tuple[str, "Run", "Score"]]) -> None:
    from llmservice_operator.simulation.timeline import timeline

    lines = {policy: timeline(run, service.objective, PNG_STRETCHES) for policy, run, _ in found}
    write_png(path, title, lines, service.objective)
    print(f"{path} is written", file=sys.stderr)


class _Watched:
    """A rule that tells how far its run is."""

    def __init__(self, rule: "Policy", load_seconds: float) -> None:
        self._rule, self._load_seconds, self._told = rule, load_seconds, -1
        self.name, self.period_seconds = rule.name, rule.period_seconds

    def step(self, seen: "Observation") -> int:
        """That rule's."""
        percent = min(100, int(100.0 * seen.metrics_seconds / self._load_seconds))
        if percent != self._told:
            self._told = percent
            end = "\r" if percent < 100 else "\r\033[K"
            print(f"{self.name} {percent} %", end=end, file=sys.stderr, flush=True)
        return self._rule.step(seen)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def simulated_service(
    inputs: PlanInputs, plan: Plan, *, static_replicas: int, start_seconds: float
) -> "Service":
    """The plan's engine, and what its clients are promised."""
    from llmservice_operator.perfmodel.open_loop import Lengths
    from llmservice_operator.perfmodel.speed import SpeedModel
    from llmservice_operator.planning.prediction import planned_speed_case
    from llmservice_operator.simulation.policies import Service
    from llmservice_operator.simulation.score import Objective

    speed = plan.speed
    if speed is None or inputs.model is None or plan.accelerator.is_cpu:
        raise InvalidInputError("an engine on CPUs can't be simulated: its speed is known too roughly")
    case = planned_speed_case(
        inputs.model.config,
        plan.accelerator,
        plan.knobs,
        engine_version=plan.engine_version,
        kv_cache_tokens=plan.kv_cache_tokens,
        flags=plan.speed_flags,
    )
    slo = inputs.spec.slo
    return Service(
        speed=SpeedModel(case),
        objective=Objective(
            ttft_seconds=_seconds(slo.ttft.p95, DEFAULT_TTFT_SECONDS),
            tpot_seconds=_seconds(slo.tpot.p95, DEFAULT_TPOT_SECONDS),
        ),
        lengths=Lengths(
            input_p50=speed.input_tokens, input_p95=speed.input_p95_tokens, output_p50=speed.output_tokens
        ),
        static_replicas=static_replicas,
        start_seconds=start_seconds,
    )


def _seconds(text: str | None, default: float) -> float:
    from llmservice_operator.api.durations import parse_duration_seconds

    return default if text is None else parse_duration_seconds(text)


def _load(service: "Service", plan: Plan, arguments: argparse.Namespace) -> "Load":
    from llmservice_operator.simulation.trace_text import (
        builtin_trace,
        counts_load,
        ramp_load,
        requests_load,
        share_of_peak,
    )

    trace, longest, seed = arguments.trace, plan.knobs.max_model_len, arguments.seed
    if trace.startswith("ramp:"):
        return ramp_load(trace.removeprefix("ramp:"), service.lengths, longest=longest, seed=seed)
    share = arguments.share
    if share is not None and not 0 < share <= 1e6:
        raise InvalidInputError(f"--share {share}: a positive number is expected")
    if trace.startswith("azure2024-"):
        name, text = trace, builtin_trace(trace)
        peak = PEAK_SHARE * service.static_replicas * service.profile.engine_requests_per_second
        share = share_of_peak(text, peak) if share is None else share
    else:
        name, text = Path(trace).name, read_text(trace)
        if name.endswith(".csv"):
            return requests_load(name, text.splitlines())
    share = 1.0 if share is None else share
    return counts_load(name, text, service.lengths, share=share, longest=longest, seed=seed)


def _fault(text: str, load_seconds: float) -> "Fault":
    from llmservice_operator.simulation.faults import Fault, FaultKind

    kind, _, times = text.partition("@")
    at, _, seconds = times.partition("+")
    if kind not in list(FaultKind):
        raise InvalidInputError(f"--fault {text}: {kind} is none of {', '.join(FaultKind)}")
    try:
        fault = Fault(kind=FaultKind(kind), at_seconds=float(at), seconds=float(seconds))
    except ValueError as error:
        raise InvalidInputError(f"--fault {text}: KIND@SECONDS+SECONDS is expected") from error
    if not 0 <= fault.at_seconds < load_seconds or not 0 < fault.seconds < math.inf:
        raise InvalidInputError(
            f"--fault {text}: it never is; a begin within the {load_seconds:g} s of the load and a length above 0 are "
            "expected"
        )
    return fault


def _as_json(name: str, found: "Score", plan: Plan) -> Mapping[str, Any]:
    hours = found.replica_hours * plan.accelerators_per_replica
    figures = {**asdict(found), "gpu_hours": hours}
    # What never came has no time, and JSON has no word for that but null.
    return {
        "policy": name,
        **{key: value if math.isfinite(value) else None for key, value in figures.items()},
    }


def _print_table(
    name: str, service: "Service", load: "Load", found: Sequence[tuple[str, "Run", "Score"]], plan: Plan
) -> None:
    from llmservice_operator.simulation.timeline import timeline

    bounds = (
        f"TTFT ≤ {service.objective.ttft_seconds:g} s, TPOT ≤ {service.objective.tpot_seconds * 1e3:g} ms"
    )
    replica = f"a replica is {plan.accelerators_per_replica} x {plan.accelerator.name}"
    print(f"{name}: {len(load)} requests in {load.seconds / 3600:.2f} h ({load.name}); {bounds}; {replica}")
    print(
        f"{'policy':22} {'attained':>9} {'worst h':>8} {'GPU-h':>9} {'replicas':>8} {'p99 TTFT':>9} "
        f"{'starts':>6} {'turns/h':>7} {'aborted':>7}"
    )
    for policy, _, of in found:
        print(
            f"{policy:22} {of.attainment:9.2%} {of.worst_hour:8.1%} "
            f"{of.replica_hours * plan.accelerators_per_replica:9.2f} {of.mean_replicas:8.2f} "
            f"{of.ttft_p99_seconds:8.2f}s {of.starts:6} {of.reversals_per_hour:7.2f} {of.aborted:7}"
        )
    lines = {policy: timeline(run, service.objective, TERMINAL_STRETCHES) for policy, run, _ in found}
    print(f"\n{terminal_chart(lines, service.objective)}")
