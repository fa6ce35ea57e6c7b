"""`make bench-scaling`: the whole comparison; its cells are named in `scaling_plan`, and every one is reported.

    python -m bench.scaling_matrix [quick|full] [--budget-seconds N] [--write FILE]       from tests/

Runs are kept on disk by the code they came from, so that a broken-off comparison goes on where it was. `quick` is two
seeds, starts of 120 s, a peak of eight replicas: half an hour of one core. `full` takes an hour and a half.
"""

import argparse
import datetime as dt
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.scaling_cells import is_kept
from bench.scaling_plan import DAYS, FULL, QUICK, Run, runs, tuned_runs
from bench.scaling_report import report


def main(arguments: Sequence[str]) -> int:
    """Plays what is missing, then prints the report; exit code 3 if the budget ran out before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("matrix", nargs="?", choices=("quick", "full"), default="full")
    parser.add_argument("--budget-seconds", type=float, default=float("inf"), help="then it breaks off")
    parser.add_argument("--skip", nargs="*", default=(), help="rules that aren't played yet; no report")
    parser.add_argument(
        "--partial", action="store_true", help="report what is there, and say that it isn't all"
    )
    parser.add_argument("--write", type=Path, help="the report, beside printing it")
    given = parser.parse_args(arguments)
    matrix = QUICK if given.matrix == "quick" else FULL
    end = time.monotonic() + given.budget_seconds
    first = sorted(runs(matrix), key=lambda run: (run.setting != "", run.case.name in DAYS))  # what is short
    finished = _play_all(first, given.skip, end) and _play_all(list(tuned_runs(matrix)), (), end)
    if not finished and not given.partial:
        return 3
    if given.skip:
        return 0
    text = report(matrix, dt.datetime.now(tz=dt.UTC).date())
    print(text)
    if given.write:
        given.write.write_text(text)
    return 0


def _play_all(all_runs: Sequence[Run], skip: Sequence[str], end: float) -> bool:
    """Whether all are there."""
    missing = [
        run
        for run in all_runs
        if run.policy not in skip and not is_kept(run.case, run.policy, run.under, run.setting)
    ]
    for count, run in enumerate(missing):
        if time.monotonic() > end:
            print(f"{len(missing) - count} of {len(all_runs)} runs are still to be played", file=sys.stderr)
            return False
        print(f"{count + 1}/{len(missing)} {run.case.name} {run.policy} {run.setting}", file=sys.stderr)
        run.play()
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
