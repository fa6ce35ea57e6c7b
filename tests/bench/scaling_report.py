"""What the comparison says, from the runs that are kept: every cell, then targets, oracle, tuned peers, losses."""

import datetime as dt
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench.scaling import HEADER, Cell, line, played_cell
from bench.scaling_cells import Conditions, is_kept, play
from bench.scaling_oracle import search
from bench.scaling_plan import DAYS, LARGE, TUNING_SEED, WRONG, Matrix, best_setting, is_tuned, ramp_for
from bench.scaling_setup import cases, fit_cases, profile_of
from bench.scaling_truth import missed
from bench.scaling_tuned import GRIDS, tuned_rule
from llmservice_operator.simulation.policies import OPERATOR, POLICIES

ENOUGH = 0.99
"""Attainment at which costs are compared."""
Cells = Mapping[tuple[str, str], Cell]


def report(matrix: Matrix, date: dt.date) -> str:
    """The page."""
    cells = {(cell.case, cell.policy): cell for cell in _cells(matrix, matrix.starts[0])}
    left = len(cases()) * len(POLICIES) - len(cells)
    parts = [
        _head(matrix, date),
        *(
            [f"NOT FINISHED: {left} cells at starts of {matrix.starts[0]:.0f} s are not played yet."]
            if left
            else []
        ),
        _table("Starts of 120 s, a peak of 8 replicas, peers at their defaults.", cells.values()),
        *(
            _table(f"Starts of {start:.0f} s.", _cells(matrix, start))
            for start in matrix.starts
            if start != matrix.starts[0]
        ),
        *(
            _table(
                f"llm-d ramp with {ramp_for(factors[0]).max_replicas} replicas at most, {words}.",
                _wrong(matrix, *factors),
            )
            for words, *factors in WRONG
        ),
        *([_table("A peak of 32 replicas.", _large())] if matrix.large else []),
        _equal_attainment(cells),
        _oracle(cells, matrix),
        *(_tuned(name, cells) for name in matrix.tuned if is_tuned(name)),
        _targets(cells, matrix),
        _losses(cells),
    ]
    return "\n\n".join(parts) + "\n"


def _head(matrix: Matrix, date: dt.date) -> str:
    lines = [
        f"Scaling rules on the same simulated loads. {date.isoformat()}, matrix '{matrix.name}'.",
        f"Means over {matrix.seeds} seeds, {matrix.day_seeds} of days, the same for every rule.",
        "Made by: make bench-scaling ARGS=quick (or full). A replica is Qwen3-32B on two H100.",
    ]
    if misses := missed():
        lines += ["", "The simulator misses targets of its validation; take the comparison as INVALID where"]
        lines += ["differences are as small as those errors:", *(f"  {miss}" for miss in misses)]
    return "\n".join(lines)


def _cells(matrix: Matrix, start_seconds: float) -> Iterator[Cell]:
    """Those that were played."""
    for case in cases():
        seeds = range(matrix.day_seeds if case.name in DAYS else matrix.seeds)
        for policy in POLICIES:
            under = [Conditions(start_seconds=start_seconds, seed=seed) for seed in seeds]
            if all(is_kept(case, policy, each) for each in under):
                yield played_cell(case, policy, seeds, start_seconds=start_seconds)


def _wrong(matrix: Matrix, slowdown: float, start_factor: float) -> Iterator[Cell]:
    ramp = ramp_for(slowdown)
    under = {"peak": ramp.max_replicas, "slowdown": slowdown, "start_factor": start_factor}
    for policy in POLICIES:
        yield played_cell(ramp, policy, range(matrix.seeds), **under)


def _large() -> Iterator[Cell]:
    for case in cases(32):
        if case.name in LARGE:
            for policy in POLICIES:
                yield played_cell(case, policy, range(1), peak=32)


def _table(title: str, cells: Sequence[Cell] | Iterator[Cell] | object) -> str:
    return "\n".join([title, HEADER, *(line(cell) for cell in cells)])  # type: ignore[attr-defined]


def _compared(cells: Cells) -> list[str]:
    """Cases that all rules were played on."""
    names = dict.fromkeys(name for name, _ in cells)
    return [name for name in names if all((name, policy) in cells for policy in POLICIES)]


def _best(cells: Cells, case: str, *, with_static: bool = False) -> Cell | None:
    """The cheapest peer that attains enough."""
    enough = [
        cell
        for (name, policy), cell in cells.items()
        if name == case
        and policy != OPERATOR
        and (with_static or policy != "static")
        and cell.mean("attainment") >= ENOUGH
    ]
    return min(enough, key=lambda cell: cell.gpu_hours, default=None)


def _equal_attainment(cells: Cells) -> str:
    lines = ["GPU-hours at 99 % attainment: the operator's, and the cheapest peer's at its defaults."]
    for case in _compared(cells):
        ours, best = cells[case, OPERATOR], _best(cells, case)
        fixed = cells[case, "static"].gpu_hours
        attained = ours.mean("attainment")
        peer = f"{best.policy} {best.gpu_hours:.1f}" if best else "no peer attains 99 %"
        saved = f"{1.0 - ours.gpu_hours / best.gpu_hours:+.0%}" if best else ""
        lines.append(
            f"{case:20} operator {ours.gpu_hours:8.1f} at {attained:7.2%}   {peer:32} saved {saved:>5}   "
            f"static {fixed:.1f}"
        )
    return "\n".join(lines)


def _oracle(cells: Cells, matrix: Matrix) -> str:
    lines = ["A rule that knows the future and attains 99 %: the operator's GPU-hours over its."]
    for case in cases():
        if case.name not in matrix.searched or case.name not in _compared(cells):
            continue
        share, found = search(case)
        ours = cells[case.name, OPERATOR].gpu_hours
        lines.append(
            f"{case.name:20} clairvoyant at {share:.2f} {found.gpu_hours:8.1f} at {found.score.attainment:7.2%}   "
            f"ratio {ours / found.gpu_hours:.2f}"
        )
    return "\n".join(lines)


def _tuned(name: str, cells: Cells) -> str:
    case = next(case for case in cases() if case.name == name)
    ours = cells[name, OPERATOR].played[0]
    lines = [
        f"{name}: peers with the best of ten settings, tuned on {fit_cases()[name].name}.",
        f"The operator attains {ours.score.attainment:.2%} for {ours.gpu_hours:.1f} GPU-h.",
        f"{'policy':22} {'setting':>16} {'attained':>9} {'GPU-h':>9} {'operator saves':>15}",
    ]
    for peer in GRIDS:
        setting = best_setting(name, peer)
        chosen = next(each for each in GRIDS[peer][0] if str(each) == setting)
        found = play(
            case,
            peer,
            Conditions(),
            setting=setting,
            make=lambda peer=peer, chosen=chosen: tuned_rule(peer, chosen, profile_of(case.service)),  # type: ignore[misc]
        )
        lines.append(
            f"{peer:22} {_short(setting):>16} {found.score.attainment:9.2%} {found.gpu_hours:9.2f} "
            f"{1.0 - ours.gpu_hours / found.gpu_hours:+15.0%}"
        )
    return "\n".join([*lines, "", *_tries(name)])


def _tries(name: str) -> Iterator[str]:
    yield f"All settings on {fit_cases()[name].name}: setting, attainment, GPU-hours."
    for peer, (settings, _) in GRIDS.items():
        tried = []
        for setting in map(str, settings):
            found = play(fit_cases()[name], peer, Conditions(seed=TUNING_SEED), setting=setting)
            tried.append(f"{_short(setting)}: {found.score.attainment:.1%} {found.gpu_hours:.0f}")
        yield f"{peer:22} " + " | ".join(tried)


def _short(setting: str) -> str:
    return ", ".join(f"{float(part):.3g}" for part in setting.strip("()").split(",") if part.strip())


def _targets(cells: Cells, matrix: Matrix) -> str:
    """Each target with what was found."""
    rows = [
        _target(cells, "llm-d ramp", ENOUGH, 5.2),
        _target(cells, "azure2023 code", 0.95, 5.0),
    ]
    for name in (name for name in DAYS if name in _compared(cells)):
        ours, best = cells[name, OPERATOR], _best(cells, name)
        saved = 1.0 - ours.gpu_hours / best.gpu_hours if best else 0.0
        is_met = ours.mean("attainment") >= ENOUGH and saved >= 0.25
        found = f"{ours.mean('attainment'):.2%}, {saved:.0%} fewer" if best else "no peer attains 99 %"
        rows.append((f"{name}: 99 %, a quarter fewer GPU-hours than the best peer", found, is_met))
        turns = ours.mean("reversals_per_hour")
        rows.append((f"{name}: less than one reversal an hour", f"{turns:.2f}", turns < 1.0))
    for words, slowdown, factor in WRONG:
        (cell,) = (each for each in _wrong(matrix, slowdown, factor) if each.policy == OPERATOR)
        attained = cell.mean("attainment")
        rows.append((f"llm-d ramp, {words}: 99 %", f"{attained:.2%}", attained >= ENOUGH))
    if "conv 2024-05-15" in _compared(cells):
        cpu = statistics.mean(each.cpu_seconds for each in cells["conv 2024-05-15", OPERATOR].played)
        rows.append(
            ("a day at a peak of 8 within 15 s of CPU, the operator's rule", f"{cpu:.1f} s", cpu <= 15.0)
        )
    return "\n".join(["Targets.", *(f"{'ok  ' if met else 'MISS'} {words}: {of}" for words, of, met in rows)])


def _target(cells: Cells, case: str, attainment: float, replicas: float) -> tuple[str, str, bool]:
    words = f"{case}: {attainment:.0%} at {replicas:g} replicas at most"
    if case not in _compared(cells):
        return words, "not played yet", False
    ours = cells[case, OPERATOR]
    attained, mean = ours.mean("attainment"), ours.mean("mean_replicas")
    return words, f"{attained:.2%} at {mean:.2f}", attained >= attainment and mean <= replicas


def _losses(cells: Cells) -> str:
    """Where a peer attains as much for less, or enough where the operator doesn't."""
    lines = [
        "Losses: a peer that attains 99 % with fewer GPU-hours, or where the operator attains less than 99 %."
    ]
    for (case, policy), cell in cells.items():
        if case not in _compared(cells):
            continue
        ours = cells[case, OPERATOR]
        if policy == OPERATOR or cell.mean("attainment") < ENOUGH:
            continue
        if cell.gpu_hours < ours.gpu_hours or ours.mean("attainment") < ENOUGH:
            lines.append(
                f"{case:20} {policy:22} {cell.mean('attainment'):7.2%} for {cell.gpu_hours:.1f} GPU-h; "
                f"operator {ours.mean('attainment'):.2%} for {ours.gpu_hours:.1f}"
            )
    return "\n".join(lines if len(lines) > 1 else [*lines, "none"])
