"""`llmservice simulate`: an LLMService under a load, by the operator's scaling rule or another system's, offline."""

import argparse
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmservice_operator.cli_documents import read_text
from llmservice_operator.cli_plan import add_inputs, plan_services
from llmservice_operator.errors import InvalidInputError
from llmservice_operator.planning.explain import explain_refusal
from llmservice_operator.planning.types import Plan, PlanInputs, Refusal

if TYPE_CHECKING:
    from llmservice_operator.simulation.faults import Fault
    from llmservice_operator.simulation.fleet import Run
    from llmservice_operator.simulation.loads import Load
    from llmservice_operator.simulation.policies import Service
    from llmservice_operator.simulation.score import Score

# numpy and numba are the extra `simulate`: whatever needs them is imported once it is known that they are there.
# ruff: noqa: PLC0415

REFUSED, UNUSABLE = 1, 2
CHART_WIDTH = 72
_BLOCKS = " ▁▂▃▄▅▆▇█"
DEFAULT_TTFT_SECONDS, DEFAULT_TPOT_SECONDS = 3.0, 0.1
"""Objectives where spec.slo has none: those of llm-d's benchmark."""


def add_parser(subparsers: Any) -> None:
    """Add `simulate` to the command's subcommands."""
    parser = subparsers.add_parser(
        "simulate",
        help="play a load on a simulated fleet of an LLMService, offline",
        description="Play a load on a simulated fleet of the file's first LLMService: how many requests keep the "
        "objectives, and what it costs, under the operator's scaling rule and under other systems'.",
        epilog="TRACE: ramp:RATExSECONDS,… (Poisson), a .csv with seconds or milliseconds, prompt_tokens, "
        "answer_tokens and perhaps cached_tokens, or a .txt with counts per ten seconds. Lengths that a trace "
        "hasn't are the workload's. Exit code 1: the plan is refused; 2: something given can't be used.",
    )
    add_inputs(parser)
    parser.add_argument("--trace", required=True, metavar="TRACE", help="the load")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of a .txt's requests (above 1: more of them)"
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
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print."""
    missing = [name for name in ("numba", "numpy") if importlib.util.find_spec(name) is None]
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
    if not 1 <= least <= most:
        raise InvalidInputError(
            f"{least} to {most} replicas: 1 <= --min-replicas <= --max-replicas is expected"
        )
    if not 0 < arguments.start_seconds <= 1e6:
        raise InvalidInputError(f"--start-seconds {arguments.start_seconds}: a positive number is expected")
    service = _service(inputs, plan, static_replicas=most, start_seconds=arguments.start_seconds)
    load = _load(service, plan, arguments)
    settings = FleetSettings(
        min_replicas=least,
        max_replicas=most,
        start_seconds=(("start", arguments.start_seconds),),
        routing=Routing(arguments.routing),
        faults=tuple(_fault(each) for each in arguments.fault),
        seed=arguments.seed,
    )
    others = (
        POLICIES if arguments.compare == "all" else [each for each in arguments.compare.split(",") if each]
    )
    names = list(dict.fromkeys([arguments.policy, *others]))
    rules = [service.policy(name) for name in names]
    tables = build_tables(service.speed)
    found = []
    for rule in rules:
        print(f"{rule.name} …", end="\r", file=sys.stderr, flush=True)
        # A fixed fleet is there from the begin.
        pods = replace(settings, initial_replicas=most) if rule.name == "static" else settings
        played = simulate(tables, load, rule, pods)
        found.append((rule.name, played, score(played, service.objective)))
    if arguments.output == "json":
        print(json.dumps([_as_json(name, of, plan) for name, _, of in found], indent=2))
        return
    _print_table(inputs.service_name, service, load, found, plan)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _service(inputs: PlanInputs, plan: Plan, *, static_replicas: int, start_seconds: float) -> "Service":
    """The plan's engine, and what its clients are promised."""
    from llmservice_operator.engines.versions import known_version
    from llmservice_operator.perfmodel.architecture import read_architecture
    from llmservice_operator.perfmodel.open_loop import Lengths
    from llmservice_operator.perfmodel.quantization import read_quantization
    from llmservice_operator.perfmodel.speed import SpeedCase, SpeedModel
    from llmservice_operator.simulation.policies import Service
    from llmservice_operator.simulation.score import Objective

    speed = plan.speed
    if speed is None or inputs.model is None or plan.accelerator.is_cpu:
        raise InvalidInputError("an engine on CPUs can't be simulated: its speed is known too roughly")
    model = read_architecture(inputs.model.config)
    case = SpeedCase(
        model=model,
        quantization=read_quantization(inputs.model.config),
        accelerator=plan.accelerator,
        tensor_parallel_size=plan.knobs.tensor_parallel_size,
        dtype=model.dtype,
        kv_cache_dtype=plan.knobs.kv_cache_dtype,
        max_num_seqs=plan.knobs.max_num_seqs,
        max_num_batched_tokens=plan.knobs.max_num_batched_tokens,
        max_model_len=plan.knobs.max_model_len,
        engine_version=known_version(plan.engine_version).version,
        kv_cache_tokens=plan.kv_cache_tokens,
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
    from llmservice_operator.simulation.trace_text import counts_load, ramp_load, requests_load

    trace, longest = arguments.trace, plan.knobs.max_model_len
    if trace.startswith("ramp:"):
        return ramp_load(trace.removeprefix("ramp:"), service.lengths, longest=longest, seed=arguments.seed)
    if not 0 < arguments.share <= 1e6:
        raise InvalidInputError(f"--share {arguments.share}: a positive number is expected")
    text = read_text(trace)
    name = Path(trace).name
    if name.endswith(".csv"):
        return requests_load(name, text.splitlines())
    return counts_load(
        name, text, service.lengths, share=arguments.share, longest=longest, seed=arguments.seed
    )


def _fault(text: str) -> "Fault":
    from llmservice_operator.simulation.faults import Fault, FaultKind

    kind, _, times = text.partition("@")
    at, _, seconds = times.partition("+")
    if kind not in list(FaultKind):
        raise InvalidInputError(f"--fault {text}: {kind} is none of {', '.join(FaultKind)}")
    try:
        return Fault(kind=FaultKind(kind), at_seconds=float(at), seconds=float(seconds))
    except ValueError as error:
        raise InvalidInputError(f"--fault {text}: KIND@SECONDS+SECONDS is expected") from error


def _as_json(name: str, found: "Score", plan: Plan) -> Mapping[str, Any]:
    hours = found.replica_hours * plan.accelerators_per_replica
    return {"policy": name, **asdict(found), "gpu_hours": hours}


def _print_table(
    name: str, service: "Service", load: "Load", found: Sequence[tuple[str, "Run", "Score"]], plan: Plan
) -> None:
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
    print(f"\n{'requests':22} {_chart(_rates(load))}")
    for policy, played, _ in found:
        print(f"{policy:22} {_chart(_replicas(played))}")


def _rates(load: "Load") -> list[float]:
    import numpy as np

    counts, _ = np.histogram(load.arrival_seconds, bins=CHART_WIDTH)
    return [float(each) for each in counts]


def _replicas(played: "Run") -> list[float]:
    """Over the time that requests come."""
    points, found, last = iter(played.points), [], played.points[0]
    for place in range(CHART_WIDTH):
        until = (place + 1) * played.load.seconds / CHART_WIDTH
        while last.at_seconds < until and (following := next(points, None)) is not None:
            last = following
        found.append(float(last.provisioned))
    return found


def _chart(values: Sequence[float]) -> str:
    """A line of blocks from 0 to the largest, which is told beside it."""
    largest = max(values)
    blocks = (_BLOCKS[round(each / largest * (len(_BLOCKS) - 1))] if largest else " " for each in values)
    return f"{''.join(blocks)} {largest:g}"
