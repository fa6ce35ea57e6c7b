"""A scaled engine's record as a picture: load, latency against its objective, replicas; dashed: the simulator's run."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from gpu.ramp import stages
from llmservice_operator.simulation.score import Objective

if TYPE_CHECKING:
    from gpu.scale_report import Seen

INK, GOOD, BAD, MUTED = "#1f2933", "#2f6f4f", "#b3402a", "#8a97a6"
WINDOW_SECONDS = 10.0


def draw(
    path: Path, archive: dict[str, Any], reality: "Seen", simulation: "Seen", objective: Objective
) -> None:
    """Write a PNG."""
    figure, (load, latency, replicas) = plt.subplots(
        3, 1, figsize=(10, 8), sharex=True, height_ratios=(1, 1.3, 1), layout="constrained"
    )
    record = archive["record"]
    _load(load, archive)
    _latency(latency, reality, simulation, objective)
    end = sum(seconds for _, seconds in stages(record["load"]))
    _replicas(replicas, reality, simulation, end)
    replicas.set_xlim(0, end)
    card = record["machine"]["gpus"][0].partition(",")[0]
    figure.suptitle(
        f"vLLM {record['plan']['engine_version']} with Qwen3-8B on {card}s, scaled by the operator's loop",
        color=INK, fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _load(axes: Any, archive: dict[str, Any]) -> None:
    rates, seconds = zip(*stages(archive["record"]["load"]), strict=True)
    axes.stairs(rates, np.cumsum([0.0, *seconds]), color=INK, linewidth=1.5, label="sent (mean of the stage)")
    began = archive["record"]["began"]
    rows = [row for row in archive["outcomes"] if row["at"] > began and row["decision"]]
    times = [row["at"] - began for row in rows]
    seen = [_number(row["signals"]["arrivals_per_second"][0]) for row in rows]
    axes.plot(times, seen, color=GOOD, linewidth=1, label="seen by the operator")
    capacity = [
        row["decision"]["capacity_requests_per_second"] * row["decision"]["correction"] for row in rows
    ]
    axes.plot(times, capacity, color=MUTED, linewidth=1, label="one replica's, as corrected")
    axes.set_ylabel("requests/s")
    axes.set_ylim(0, 1.5 * max(rates))
    _finish(axes)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _latency(axes: Any, reality: "Seen", simulation: "Seen", objective: Objective) -> None:
    for seen, style, word in ((reality, "-", ""), (simulation, "--", ", simulated")):
        places = (seen.at / WINDOW_SECONDS).astype(int)
        windows = range(int(places.max()) + 1)
        p95 = [np.quantile(seen.ttft_seconds[places == each], 0.95) if (places == each).any() else math.nan
               for each in windows]  # fmt: skip
        times = (np.arange(len(p95)) + 0.5) * WINDOW_SECONDS
        axes.plot(times, p95, style, color=INK if not word else MUTED, linewidth=1.3, label=f"TTFT p95{word}")
    axes.axhline(objective.ttft_seconds, color=BAD, linewidth=1, linestyle="--", label="objective")
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    _finish(axes)


def _replicas(axes: Any, reality: "Seen", simulation: "Seen", end: float) -> None:
    times, counts = zip(*reality.ready, (end, reality.ready[-1][1]), strict=True)
    axes.fill_between(times, counts, step="post", color=GOOD, alpha=0.25, label="ready")
    for changes, style, colour, label in (
        (reality.wanted, "-", INK, "wanted"), (simulation.wanted, "--", MUTED, "wanted, simulated"),
    ):  # fmt: skip
        times, counts = zip(*changes, (end, changes[-1][1]), strict=True)
        axes.step(times, counts, style, where="post", color=colour, label=label)
    axes.set_ylabel("replicas")
    axes.set_ylim(0, 2.9)
    axes.set_yticks([0, 1, 2])
    axes.set_xlabel("seconds")
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.legend(loc="upper right", fontsize=8, frameon=False, ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
