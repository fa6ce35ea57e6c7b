"""`make alerts-on-cluster`: four faults at once on a real cluster, scraped by a real Prometheus as the chart says.

    python -m observability.on_cluster        from tests/

The rules are the chart's with every window and wait a thirtieth as long. Prints when each alert fired, and which
queries of the dashboards have no data; writes operator/docs/reference/alerts-on-cluster.txt. Exit code 1 if an alert
did not fire, another did, or a query has no data that should have.
"""

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import deploy
from bench.operator import machine
from observability.on_cluster import cast
from observability.on_cluster.cast import FAULTS, Fault
from observability.on_cluster.play import Alert, Seen, play, prepare
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
    """Whether those alerts fired that should, after the faults, and every query has data that can have."""
    wanted = {(fault.alert, fault.service) for fault in FAULTS}
    fired = {key: at for key, at in seen.fired.items() if not _is_of_fakes(key, at)}
    is_in_order = fired.keys() == wanted and min(fired.values()) > 0
    return is_in_order and all(each.why for each in seen.empty)


def _is_of_fakes(key: Alert, at_seconds: float) -> bool:
    """Whether it was there before the faults, as it is with fake engines."""
    return key[0] == cast.OF_FAKES and at_seconds < 0


def report(seen: Seen) -> str:
    """The tables."""
    head = f"{'service':9}{'fault':64}{'alert':31}{'pending after':>14}{'fired after':>13}  at full length"
    wanted = {(fault.alert, fault.service) for fault in FAULTS}
    others = sorted(seen.fired.items() - {key: seen.fired.get(key) for key in wanted}.items())
    before = sorted(
        service for (alert, service), at in seen.fired.items() if _is_of_fakes((alert, service), at)
    )
    told = [
        f"{alert} of {service or 'all'} at {at:.0f} s  << unasked"
        for (alert, service), at in others
        if not _is_of_fakes((alert, service), at)
    ]
    why = [
        f"{each.dashboard}: {each.panel}: {each.why or each.query + '  << unexplained'}"
        for each in seen.empty
    ]
    return "\n".join(
        [
            head,
            *(_line(fault, seen) for fault in FAULTS),
            f"other alerts that fired: {', '.join(told) or 'none'}",
            f"before the faults: {cast.OF_FAKES} of {', '.join(before) or 'none'}, whose memory is made up",
            "",
            f"dashboards: {seen.queries - len(seen.empty)} of {seen.queries} queries have data; without:",
            *(f"  {line}" for line in dict.fromkeys(why)),
            "",
            f"{len(cast.NAMES)} services with {sum(cast.READY.values())} fake engines, one operator; {machine()}",
        ]
    )


def _line(fault: Fault, seen: Seen) -> str:
    key = (fault.alert, fault.service)
    if key not in seen.fired:
        return f"{fault.service:9}{fault.what:64}{fault.alert:31}  did not fire"
    pending, fired = seen.pending[key], seen.fired[key]
    minutes = full_seconds(fault, pending) / 60
    return (
        f"{fault.service:9}{fault.what:64}{fault.alert:31}{pending:12.0f} s{fired:11.0f} s  {minutes:.0f} min"
    )


def full_seconds(fault: Fault, pending_seconds: float) -> float:
    """From the fault to the alert with the windows as they are.

    What the operator tells comes after the same time, whatever the windows are.
    """
    wait = alerts()[fault.alert]["for"]
    grown = pending_seconds * (FASTER if fault.is_windowed else 1)
    return grown + float(wait[:-1]) * _UNITS[wait[-1]]


if __name__ == "__main__":
    sys.exit(main())
