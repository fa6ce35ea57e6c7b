"""The record as a picture: load, latencies against their objectives, replicas with the decisions' words."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

VERSION = "0.32.0"
INK, GOOD, BAD, MUTED = "#1f2933", "#2f6f4f", "#b3402a", "#8a97a6"


def draw(record: dict[str, Any], path: Path) -> None:
    """Write a PNG."""
    figure, (load, latency, replicas) = plt.subplots(
        3, 1, figsize=(10, 8), sharex=True, height_ratios=(1, 1.3, 1.1), layout="constrained"
    )
    _load(load, record)
    _latency(latency, record)
    _replicas(replicas, record)
    figure.suptitle(
        f"vLLM {VERSION} on the CPU, SmolLM2-135M, {record['date']}: one replica, two, one",
        color=INK, fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _load(axes: Any, record: dict[str, Any]) -> None:
    edges, at = [0.0], 0.0
    rates = []
    for rate, seconds in record["stages"]:
        at += seconds
        edges.append(at)
        rates.append(rate)
    axes.stairs(rates, edges, color=INK, linewidth=1.5, label="sent (mean of the stage)")
    points = [_series(point, "_signal{", 'signal="arrivals_per_second"') for point in record["points"]]
    axes.plot(_times(record), points, color=GOOD, linewidth=1, label="seen by the operator")
    capacity = [
        _series(point, "_capacity_requests_per_second") * _series(point, "_capacity_correction_ratio")
        for point in record["points"]
    ]
    axes.plot(_times(record), capacity, color=MUTED, linewidth=1, label="one replica's, as corrected")
    axes.set_ylabel("requests/s")
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    _finish(axes)


def _latency(axes: Any, record: dict[str, Any]) -> None:
    for name, color in (("ttft", INK), ("tpot", GOOD)):
        limit = float(record["objectives"][name]["p95"].removesuffix("ms")) / 1000.0
        values = [
            _series(point, "_signal{", f'signal="{name}_p95_seconds"') / limit for point in record["points"]
        ]
        axes.plot(
            _times(record), values, color=color, linewidth=1.5, label=f"{name.upper()} p95 over its objective"
        )
    axes.axhline(1.0, color=BAD, linewidth=1, linestyle="--")
    axes.set_ylabel("objective = 1")
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    _finish(axes)


def _replicas(axes: Any, record: dict[str, Any]) -> None:
    times = _times(record)
    axes.step(
        times, [point["desired"] for point in record["points"]], where="post", color=INK, label="wanted"
    )
    axes.fill_between(
        times,
        [point["ready"] for point in record["points"]],
        step="post",
        color=GOOD,
        alpha=0.25,
        label="ready",
    )
    before = record["replicas"][0][1]
    for at, count in record["replicas"][1:]:
        axes.annotate(
            f"{before} → {count}", (at - record["began"], max(before, count)), color=INK, fontsize=9,
            xytext=(4, 4), textcoords="offset points",
        )  # fmt: skip
        before = count
    axes.set_ylabel("replicas")
    axes.set_ylim(0, 2.6)
    axes.set_yticks([0, 1, 2])
    axes.set_xlabel("seconds")
    _finish(axes)


def _times(record: dict[str, Any]) -> list[float]:
    return [point["at"] - record["began"] for point in record["points"]]


def _series(point: dict[str, Any], name: str, label: str = "") -> float:
    """The operator's series of this name and label; NaN where it isn't there."""
    for key, value in point["series"].items():
        if key.startswith(f"llmservice_scaling{name}") and label in key:
            return float(value)
    return math.nan


def _finish(axes: Any) -> None:
    axes.legend(loc="upper right", fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
