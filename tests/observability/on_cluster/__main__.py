"""`make alerts-on-cluster`: four faults at once on a real cluster, scraped by a real Prometheus as the chart says.

    python -m observability.on_cluster        from tests/

The rules are the chart's with every window and wait a thirtieth as long. Prints when each alert fired, what
the operator decided, and which queries of the dashboards have no data; writes
operator/docs/reference/alerts-on-cluster.txt. Exit code 1 if an alert did not fire in time, another did, or a query has
no data that should have.
"""

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import deploy
from bench.operator import machine
from observability.on_cluster import cast
from observability.on_cluster.cast import FAULTS, Fault
from observability.on_cluster.play import Decided, Seen, play, prepare
from observability.rules import ROOT, alerts
from observability.staged import FASTER

TEXT = ROOT / "operator" / "docs" / "reference" / "alerts-on-cluster.txt"
_UNITS = {"s": 1, "m": 60, "h": 3600}


def main() -> int:
    """Play, print, write."""
    with deploy.platform("alerts", "fake-engine", namespace=cast.NAMESPACE, gpus=8) as cluster:
        tokens = prepare(cluster)
        with tempfile.TemporaryDirectory() as folder:
            seen = play(cluster, Path(folder), tokens)
    for name, words in seen.conditions.items():
        print(f"{name}: {words}", file=sys.stderr)
    told = report(seen)
    print(told)
    if not is_right(seen):
        return 1
    TEXT.write_text(f"$ make alerts-on-cluster        # {datetime.now(tz=UTC).date().isoformat()}\n{told}\n")
    return 0


def is_right(seen: Seen) -> bool:
    """Whether each fault raised its alert in time, nothing else fired, and every query has data that can have.

    And whether the operator itself took the flooded service to its maximum.
    """
    wanted = {(fault.alert, fault.service) for fault in FAULTS}
    if seen.fired.keys() != wanted or min(seen.fired.values()) <= 0 or _most_at_seconds(seen) is None:
        return False
    in_time = all(_minutes(fault, seen) <= fault.within_minutes for fault in FAULTS)
    return in_time and all(each.why for each in seen.empty)


def _most_at_seconds(seen: Seen) -> float | None:
    """When the flooded service's replicas were decided to be the most there may be; None: never."""
    most = cast.MOST[cast.FLOODED]
    reached = (
        each.at_seconds
        for each in seen.decided
        if each.service == cast.FLOODED and each.new == most > each.old
    )
    return next(reached, None)


def _minutes(fault: Fault, seen: Seen) -> float:
    """From the fault to the alert with the windows as they are."""
    since = _most_at_seconds(seen) or 0.0 if fault.service == cast.FLOODED else 0.0
    return full_seconds(fault, seen.pending[fault.alert, fault.service], since_seconds=since) / 60


def report(seen: Seen) -> str:
    """The tables."""
    head = f"{'service':9}{'fault':60}{'alert':31}{'pending':>8}{'fires':>7}{'unhurried':>11}{'allowed':>9}"
    wanted = {(fault.alert, fault.service) for fault in FAULTS}
    others = sorted((key, at) for key, at in seen.fired.items() if key not in wanted)
    told = [f"{alert} of {service or 'all'} at {at:.0f} s  << unasked" for (alert, service), at in others]
    why = [
        f"{each.dashboard}: {each.panel}: {each.why or each.query + '  << unexplained'}"
        for each in seen.empty
    ]
    return "\n".join(
        [
            head,
            *(_line(fault, seen) for fault in FAULTS),
            f"others of the {len(alerts())} alerts that fired, before the faults or after: {', '.join(told) or 'none'}",
            "",
            "decided after the faults:",
            *(f"  {line}" for line in map(_decision, seen.decided)),
            "",
            f"dashboards: {seen.queries - len(seen.empty)} of {seen.queries} queries have data; without:",
            *(f"  {line}" for line in dict.fromkeys(why)),
            "",
            f"{len(cast.NAMES)} services with {sum(cast.READY.values())} fake engines, one operator; {machine()}",
            f"Times are from the fault on. The rules' windows and waits are a {FASTER}th as long here; unhurried: with",
            "them as they are, and the operator's own time as it was.",
        ]
    )


def _decision(each: Decided) -> str:
    return (
        f"{each.service}: from {each.old} to {each.new} at {each.at_seconds:.0f} s, "
        f"{each.ruling}: {each.reason}"
    )


def _line(fault: Fault, seen: Seen) -> str:
    key = (fault.alert, fault.service)
    if key not in seen.fired:
        return f"{fault.service:9}{fault.what:60}{fault.alert:31}  did not fire"
    minutes = _minutes(fault, seen)
    late = "" if minutes <= fault.within_minutes else "  << late"
    return (
        f"{fault.service:9}{fault.what:60}{fault.alert:31}{seen.pending[key]:6.0f} s{seen.fired[key]:5.0f} s"
        f"{minutes:7.0f} min{fault.within_minutes:5.0f} min{late}"
    )


def full_seconds(fault: Fault, pending_seconds: float, *, since_seconds: float = 0.0) -> float:
    """From the fault to the alert with the windows as they are.

    What the operator tells comes after the same time, whatever the windows are; so does what it has decided by
    `since_seconds`.
    """
    wait = alerts()[fault.alert]["for"]
    grown = since_seconds + (pending_seconds - since_seconds) * (FASTER if fault.is_windowed else 1)
    return grown + float(wait[:-1]) * _UNITS[wait[-1]]


if __name__ == "__main__":
    sys.exit(main())
