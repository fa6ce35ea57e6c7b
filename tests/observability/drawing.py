"""How values, names and times are drawn: units in words, round numbers on axes, few colours in files."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, MaxNLocator, MultipleLocator
from PIL import Image

INK, PAPER, CARD, FAINT = "#d8d9da", "#111217", "#181b1f", "#2c3235"
COLOURS = {
    "blue": "#5794f2",
    "light-blue": "#a8c8f9",
    "red": "#f2495c",
    "light-red": "#ff9aa2",
    "orange": "#ff9830",
    "green": "#73bf69",
    "purple": "#b877d9",
    "yellow": "#fade2a",
    "text": INK,
    "transparent": "none",
}
PALETTE = (
    "#73bf69",
    "#f2cc0c",
    "#8ab8ff",
    "#ff780a",
    "#f2495c",
    "#5794f2",
    "#b877d9",
    "#705da0",
    "#37872d",
    "#c4162a",
)
BLENDS = 11
LEGEND_LETTERS = 24
AXIS_POINTS = 7.5
_LETTER_WIDTH = 0.58
"""Of its height."""


def scaled(value: float, unit: str) -> str:
    """A value in words, as Grafana formats this unit."""
    if math.isnan(value):
        return ""
    if unit == "percentunit":
        return f"{value * 100:.3g} %" if abs(value) < 1 else f"{value * 100:.0f} %"
    if unit == "s":
        return _seconds(value)
    if unit == "bytes":
        return _prefixed(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
    if unit == "Bps":
        return _prefixed(value, 1000, (" B/s", " kB/s", " MB/s", " GB/s", " TB/s"))
    suffix = {"reqps": " req/s", "ops": " /s"}.get(unit, "")
    if unit in {"none", "locale"}:
        return f"{value:,.0f}" if value == round(value) else f"{value:.2f}".rstrip("0")
    return _prefixed(value, 1000, ("", " K", " Mil", " Bil")) + suffix


def _seconds(value: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{value / size:.3g} {word}"
    return "0 s"


def _prefixed(value: float, base: int, words: Sequence[str]) -> str:
    place = 0
    while abs(value) >= base and place < len(words) - 1:
        value, place = value / base, place + 1
    return f"{value:.3g}{' ' if base == 1024 else ''}{words[place]}"


def cell(value: float | str, how: Mapping[str, Any]) -> tuple[str, str]:
    """(text, colour) of a table's cell."""
    if isinstance(value, str):
        return value or how.get("noValue", ""), "text"
    steps = how.get("thresholds", {}).get("steps")
    words = how.get("mappings", [{"options": {}}])[0]["options"].get(f"{value:.0f}", {})
    text = words.get("text") or scaled(value, how.get("unit", "short"))
    return text, step_colour(steps, value) if steps else "text"


def days(unix_seconds: float) -> float:
    """As matplotlib counts time."""
    return unix_seconds / 86400


def series_name(target: Mapping[str, Any], metric: Mapping[str, str]) -> str:
    """A series' name by its target's legend format."""
    text: str = target.get("legendFormat", "__auto")
    if text == "__auto":
        return ", ".join(f"{name}={value}" for name, value in metric.items()) or "value"
    return re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found[1], ""), text)


def styles_of(box: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        override["matcher"]["options"]: {each["id"]: each.get("value") for each in override["properties"]}
        for override in box["fieldConfig"]["overrides"]
    }


def step_colour(steps: Sequence[Mapping[str, Any]], value: float) -> str:
    colour = "text"
    for step in steps:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return colour


def short(name: str, letters: int) -> str:
    """A pod's name by its end, which tells it from the others."""
    return name if len(name) <= letters or " " in name else f"…{name[-10:]}"


def second_axis(axes: Axes) -> Axes:
    twin = axes.twinx()
    twin.set_ylim(0, 1)
    twin.tick_params(colors="#8e8e8e", labelsize=AXIS_POINTS, length=0)
    twin.yaxis.set_major_formatter(lambda value, _: scaled(value, "percentunit"))
    for side in twin.spines.values():
        side.set_visible(False)
    return twin


def dress(axes: Axes, unit: str, defaults: Mapping[str, Any]) -> None:
    axes.tick_params(colors="#8e8e8e", labelsize=AXIS_POINTS, length=0)
    axes.tick_params(axis="x", pad=5)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.yaxis.set_major_formatter(lambda value, _: scaled(value, unit))
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"] * 1.02)
    axes.yaxis.set_major_locator(ticks(axes.get_ylim()[1], unit, is_whole=defaults.get("decimals") == 0))


def ticks(largest: float, unit: str, *, is_whole: bool = False) -> Locator:
    """Round numbers of the unit: minutes, or powers of 1024."""
    if unit == "s" and largest > 60:
        steps = [60.0 * each for each in (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 360)]
        return MultipleLocator(next((each for each in steps if largest / each <= 5), steps[-1]))
    if unit == "bytes" and largest > 0:
        step = 2.0 ** math.ceil(math.log2(largest / 5))
        return MultipleLocator(step)
    return MaxNLocator(nbins=5, integer=is_whole, steps=[1, 2, 2.5, 5, 10])


def draw_legend(axes: Axes, figure: Figure, nothing: str) -> None:
    """The names of the lines; `nothing` where there is none."""
    handles, labels = [], []
    for each in figure.axes:
        if each is axes or (each.bbox.bounds == axes.bbox.bounds):
            more, words = each.get_legend_handles_labels()
            handles += more
            labels += words
    if not handles:
        axes.text(0.5, 0.5, nothing, color="#8e8e8e", fontsize=9, ha="center", transform=axes.transAxes)
        return
    shown = 8
    names = [short(label, LEGEND_LETTERS) for label in labels[:shown]]
    letters = axes.bbox.width / figure.dpi * 72 / (AXIS_POINTS * _LETTER_WIDTH)
    columns = max(2, min(4, int(letters / max(len(name) + 4 for name in names))))
    axes.legend(
        handles[:shown], names, loc="upper left", bbox_to_anchor=(-0.03, -0.12), ncols=columns, fontsize=AXIS_POINTS,
        labelcolor=INK, frameon=False, handlelength=1.2, columnspacing=0.9, borderpad=0,
    )  # fmt: skip


def wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def shrink(file: Path) -> None:
    """To the colours that are used, each in steps towards the background: a third of the bytes."""
    inks = dict.fromkeys((*COLOURS.values(), *PALETTE, "#8e8e8e", "#6e9fff", FAINT, PAPER))
    inks.pop("none")
    paper = to_rgb(CARD)
    steps = np.linspace(1.0, 0.1, BLENDS)
    colours = [
        tuple(
            round(255 * (step * ink + (1 - step) * below))
            for ink, below in zip(to_rgb(each), paper, strict=True)
        )
        for each in inks
        for step in steps
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette(
        [value for colour in (tuple(round(255 * each) for each in paper), *colours) for value in colour]
    )
    with Image.open(file) as image:
        small = image.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
