"""What each rule does while its metrics lie, its pods don't start or its clock jumps.

    python -m bench.scaling_faults [POLICY ...]        from tests/

A steady load that needs three to four of eight replicas; the fault lasts ten minutes. Wrong is a scale-in to fewer than
there were when it began, since the load is the same.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scaling import make_policy
from bench.scaling_setup import CHAT, conversation_pairs, profile_of, tables_of
from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load, Stage, drawn_load, staged_arrivals
from llmservice_operator.simulation.policies import OPERATOR, POLICIES
from llmservice_operator.simulation.score import score

REPLICAS = 4
START_SECONDS = 60.0
BEGIN_SECONDS, FAULT_SECONDS, LOAD_SECONDS = 600.0, 600.0, 1500.0
RATE_SHARE = 0.8
"""Of what four replicas take within the objectives."""


@dataclass(frozen=True)
class Told:
    """One rule under one fault."""

    fault: str
    policy: str
    wrong: int
    """Scale-ins to fewer than there were when the fault began."""
    most: int
    attainment: float


def steady_load(seed: int = 0) -> Load:
    """Chat at four replicas' rate."""
    rate = REPLICAS * RATE_SHARE * profile_of(CHAT).engine_requests_per_second
    arrivals = staged_arrivals([Stage(rate, LOAD_SECONDS)], seed=seed)
    return drawn_load("steady", arrivals, conversation_pairs(), seconds=LOAD_SECONDS, seed=seed)


def play(policy: str, kind: FaultKind | None) -> Told:
    """The rule begins with what the load needs, and has ten minutes before the fault."""
    faults = (Fault(kind=kind, at_seconds=BEGIN_SECONDS, seconds=FAULT_SECONDS),) if kind else ()
    settings = FleetSettings(
        initial_replicas=REPLICAS, start_seconds=(("start", START_SECONDS),), faults=faults, tail_seconds=60.0
    )
    rule = make_policy(policy, CHAT, static_replicas=REPLICAS, start_seconds=START_SECONDS)
    run = simulate(tables_of(CHAT), steady_load(), rule, settings)
    during = [
        point for point in run.points if BEGIN_SECONDS <= point.at_seconds < BEGIN_SECONDS + FAULT_SECONDS
    ]
    return Told(
        fault=kind or "none",
        policy=policy,
        wrong=sum(point.desired < min(point.provisioned, during[0].provisioned) for point in during),
        most=max(point.desired for point in during),
        attainment=score(run, CHAT.objective).attainment,
    )


def main(policies: Sequence[str]) -> int:
    """Prints the table; exit code 1 if the operator takes a replica away in any fault."""
    print(f"{'fault':14} {'policy':22} {'wrong':>9} {'most':>5} {'attained':>9}")
    wrong = 0
    for kind in (None, *FaultKind):
        for policy in policies:
            told = play(policy, kind)
            wrong += told.wrong if policy == OPERATOR and kind else 0
            print(
                f"{told.fault:14} {policy:22} {told.wrong:9} {told.most:5} {told.attainment:9.2%}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or POLICIES))
