"""What each rule does while its metrics lie, its pods don't start, its process restarts or its clock jumps.

    python -m bench.scaling_faults [--write FILE] [POLICY ...]        from tests/

A steady load that needs three to four of eight replicas; each fault lasts ten minutes, but for those that a number of
seconds is named of. Wrong is a scale-in to fewer than there were when the fault began, since the load is the same.
"""

import argparse
import datetime as dt
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scaling_cells import make_policy
from bench.scaling_setup import CHAT, conversation_pairs, profile_of, tables_of
from llmservice_operator.simulation.faults import Fault, FaultKind
from llmservice_operator.simulation.fleet import FleetSettings, simulate
from llmservice_operator.simulation.loads import Load, Stage, drawn_load, staged_arrivals
from llmservice_operator.simulation.observation import Observation, Policy
from llmservice_operator.simulation.operator import OperatorPolicy
from llmservice_operator.simulation.policies import OPERATOR, POLICIES
from llmservice_operator.simulation.score import score

REPLICAS = 4
START_SECONDS = 60.0
BEGIN_SECONDS, FAULT_SECONDS, LOAD_SECONDS = 600.0, 600.0, 1500.0
RATE_SHARE = 0.8
"""Of what four replicas take within the objectives."""
NONE, RESTART, SHORT_GAP = "none", "restart", "gap of 60 s"
FAULTS = (NONE, *FaultKind, SHORT_GAP, RESTART)


@dataclass(frozen=True)
class Told:
    """One rule under one fault."""

    wrong: int
    """Scale-ins to fewer than there were when the fault began."""
    most: int
    attainment: float


class Restarted:
    """A rule whose process ends and begins anew once a minute of the fault: what it remembered is gone.

    The operator's state is in the service's status, and outlives it.
    """

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make, self._rule = make, make()
        self._next = BEGIN_SECONDS
        self.name, self.period_seconds = self._rule.name, self._rule.period_seconds

    def step(self, seen: Observation) -> int:
        """That rule's."""
        if self._next <= seen.metrics_seconds < BEGIN_SECONDS + FAULT_SECONDS:
            self._next += 60.0
            if isinstance(self._rule, OperatorPolicy):
                self._rule.restart()
            else:
                self._rule = self._make()
        return self._rule.step(seen)


def steady_load(seed: int = 0) -> Load:
    """Chat at four replicas' rate."""
    rate = REPLICAS * RATE_SHARE * profile_of(CHAT).engine_requests_per_second
    arrivals = staged_arrivals([Stage(rate, LOAD_SECONDS)], seed=seed)
    return drawn_load("steady", arrivals, conversation_pairs(), seconds=LOAD_SECONDS, seed=seed)


def play(policy: str, fault: str) -> Told:
    """The rule begins with what the load needs, and has ten minutes before the fault."""

    def make() -> Policy:
        return make_policy(policy, CHAT, static_replicas=REPLICAS, start_seconds=START_SECONDS)

    settings = FleetSettings(
        initial_replicas=REPLICAS,
        start_seconds=(("start", START_SECONDS),),
        faults=_faults(fault),
        tail_seconds=60.0,
    )
    run = simulate(tables_of(CHAT), steady_load(), Restarted(make) if fault == RESTART else make(), settings)
    during = [
        point for point in run.points if BEGIN_SECONDS <= point.at_seconds < BEGIN_SECONDS + FAULT_SECONDS
    ]
    return Told(
        wrong=sum(point.desired < min(point.provisioned, during[0].provisioned) for point in during),
        most=max(point.desired for point in during),
        attainment=score(run, CHAT.objective).attainment,
    )


def _faults(name: str) -> tuple[Fault, ...]:
    if name in {NONE, RESTART}:
        return ()
    if name == SHORT_GAP:
        return (Fault(kind=FaultKind.GAP, at_seconds=BEGIN_SECONDS, seconds=60.0),)
    return (Fault(kind=FaultKind(name), at_seconds=BEGIN_SECONDS, seconds=FAULT_SECONDS),)


def main(arguments: Sequence[str]) -> int:
    """Prints two tables; exit code 1 if the operator takes a replica away in any fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="the tables, beside printing them")
    parser.add_argument("policies", nargs="*", default=POLICIES)
    given = parser.parse_args(arguments)
    told: dict[tuple[str, str], Told] = {}
    for policy in given.policies or POLICIES:
        for fault in FAULTS:
            told[policy, fault] = play(policy, fault)
        print(policy, file=sys.stderr)
    text = _page(told)
    print(text, end="")
    if given.write:
        given.write.write_text(text)
    return (
        1
        if any(each.wrong for (policy, fault), each in told.items() if policy == OPERATOR and fault != NONE)
        else 0
    )


def _page(told: dict[tuple[str, str], Told]) -> str:
    policies = list(dict.fromkeys(policy for policy, _ in told))
    lines = [
        f"Rules under faults, simulated. {dt.datetime.now(tz=dt.UTC).date().isoformat()}.",
        "Made by: python -m bench.scaling_faults (in tests/).",
        "A steady load of four replicas' worth from the begin; the fault lasts ten minutes.",
        "",
        "Wrong scale-ins during the fault / most replicas asked for.",
        *_table(policies, lambda policy, fault: f"{told[policy, fault].wrong} / {told[policy, fault].most}"),
        "",
        "Requests that kept the objectives, the whole run.",
        *_table(policies, lambda policy, fault: f"{told[policy, fault].attainment:.1%}"),
    ]
    return "\n".join(lines) + "\n"


def _table(policies: Sequence[str], cell: Callable[[str, str], str]) -> list[str]:
    width = max(len(fault) for fault in FAULTS) + 1
    rows = [f"{'':22}" + "".join(f"{fault:>{width}}" for fault in FAULTS)]
    rows += [
        f"{policy:22}" + "".join(f"{cell(policy, fault):>{width}}" for fault in FAULTS) for policy in policies
    ]
    return rows


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
