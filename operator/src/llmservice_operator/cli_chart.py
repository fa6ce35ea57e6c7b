"""Charts of simulated runs: lines of blocks for a terminal, and a PNG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmservice_operator.simulation.score import Objective
    from llmservice_operator.simulation.timeline import Timeline

TERMINAL_STRETCHES, PNG_STRETCHES = 72, 288
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LABEL_WIDTH = 22
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b")
"""Of rules, told apart by colour-blind readers too (Okabe and Ito, 2008)."""
_LOAD, _BOUND, _PENDING = "#4d4d4d", "#b2182b", "#f4a582"


def blocks(values: Sequence[float], most: float | None = None) -> str:
    """A line of blocks from 0 to the largest, or to `most`; a space where there is no value."""
    finite = [each for each in values if math.isfinite(each)]
    top = most if most is not None else max(finite, default=0.0)
    return "".join(_block(each, top) for each in values)


def _block(value: float, top: float) -> str:
    if math.isnan(value) or not top > 0:
        return " "
    share = min(1.0, value / top)
    # What is more than nothing is seen.
    return _BLOCKS[max(math.ceil(share * (len(_BLOCKS) - 1) - 0.5), 1 if value > 0 else 0)]


def terminal_chart(lines: Mapping[str, "Timeline"], objective: "Objective") -> str:
    """The load, then for each rule its replicas, TTFT against the objective, and requests that missed."""
    first = next(iter(lines.values()))
    hours = len(first.ready) * first.stretch_seconds / 3600.0
    rows = [
        _row("requests/s", first.requests_per_second.tolist(), f"max {first.requests_per_second.max():.3g}")
    ]
    most = max(float((line.ready + line.pending).max()) for line in lines.values())
    for name, line in lines.items():
        rows += [
            "",
            name,
            _row("  ready", line.ready.tolist(), f"max {line.ready.max():.0f} of {most:.0f}", most),
            _row("  pending", line.pending.tolist(), f"max {line.pending.max():.0f}", most),
            _row(
                f"  TTFT p95 ≤ {objective.ttft_seconds:g} s",
                line.ttft_p95_seconds.tolist(),
                f"full: the objective; max {_largest(line.ttft_p95_seconds.tolist()):.3g} s",
                objective.ttft_seconds,
            ),
            _row("  missed", line.missed.tolist(), f"max {_largest(line.missed.tolist()):.1%}", 1.0),
        ]
    axis = f"0 h{f'{hours:.3g} h':>{TERMINAL_STRETCHES - 3}}"
    return "\n".join([*rows, f"{'':{_LABEL_WIDTH}} {axis}"])


def _row(label: str, values: Sequence[float], note: str, most: float | None = None) -> str:
    return f"{label:{_LABEL_WIDTH}} {blocks(values, most)} {note}"


def _largest(values: Sequence[float]) -> float:
    return max((each for each in values if not math.isnan(each)), default=0.0)


def write_png(path: Path, title: str, lines: Mapping[str, "Timeline"], objective: "Objective") -> None:
    """Load, replicas, TTFT p95 and missed requests, one above the other. Raises OSError."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (half a second, for this alone)

    figure = Figure(figsize=(11.0, 10.0), layout="constrained")
    load, replicas, ttft, missed = figure.subplots(4, 1, sharex=True, height_ratios=(2, 3, 2, 2))
    figure.suptitle(title, fontsize=12)
    first = next(iter(lines.values()))
    hours = first.begin_hours
    load.fill_between(hours, first.requests_per_second, step="post", color=_LOAD, alpha=0.3, linewidth=0)
    load.step(hours, first.requests_per_second, where="post", color=_LOAD, linewidth=1.2)
    load.set_ylabel("requests/s")
    for place, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        above = 3.0 - place / len(lines)  # the rule that is asked about lies on top
        if len(lines) == 1:
            _draw_pending(replicas, line)
        else:
            replicas.step(
                hours, line.desired, where="post", color=colour, linewidth=0.8, linestyle=":", zorder=above
            )
        label = "ready" if len(lines) == 1 else f"{name} (dotted: desired)"
        replicas.step(hours, line.ready, where="post", color=colour, linewidth=1.8, label=label, zorder=above)
        ttft.step(hours, line.ttft_p95_seconds, where="post", color=colour, linewidth=1.2, zorder=above)
        missed.step(hours, 100.0 * line.missed, where="post", color=colour, linewidth=1.2, zorder=above)
    ttft.axhline(objective.ttft_seconds, color=_BOUND, linestyle="--", linewidth=1.2)
    ttft.annotate(
        f"objective {objective.ttft_seconds:g} s",
        (hours[0], objective.ttft_seconds),
        xytext=(4, 2),
        textcoords="offset points",
        color=_BOUND,
        fontsize=9,
    )
    replicas.set_ylabel("replicas")
    ttft.set(ylabel="TTFT p95, s", yscale="log")
    ttft.yaxis.set_major_formatter("{x:g}")
    missed.set(ylabel="missed an\nobjective, %", xlabel="hours", ylim=(0.0, None))
    for axes in (load, replicas, ttft, missed):
        axes.set_xlim(hours[0], hours[-1] + first.stretch_seconds / 3600.0)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    most = max(float(max((line.ready + line.pending).max(), line.desired.max())) for line in lines.values())
    replicas.set_ylim(0.0, most * 1.25)
    load.set_ylim(bottom=0.0)
    replicas.legend(loc="upper left", fontsize=9, frameon=False, ncols=min(3, len(lines) + 2))
    figure.savefig(path, dpi=110, format="png")


def _draw_pending(axes: Any, line: "Timeline") -> None:
    """Of one rule: what is on its way stands on what is ready."""
    hours = line.begin_hours
    axes.fill_between(hours, line.ready, step="post", color=_COLOURS[0], alpha=0.2, linewidth=0)
    axes.fill_between(
        hours,
        line.ready,
        line.ready + line.pending,
        step="post",
        color=_PENDING,
        linewidth=0,
        label="pending",
    )
    axes.step(hours, line.desired, where="post", color=_LOAD, linewidth=1.0, linestyle=":", label="desired")
