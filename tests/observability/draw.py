"""Draws a dashboard to a picture: its JSON, its layout, its queries answered by a real Prometheus.

A small stand-in for Grafana, for the docs and for looking at a panel with data in it; it knows what our panels use.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure

from observability.drawing import (
    CARD,
    COLOURS,
    FAINT,
    INK,
    PALETTE,
    PAPER,
    cell,
    days,
    draw_legend,
    dress,
    scaled,
    second_axis,
    series_name,
    short,
    shrink,
    step_colour,
    styles_of,
    wrapped,
)
from observability.panels import Chosen, dashboard, panels
from observability.stage.server import Prometheus

mpl.use("Agg")
UNIT_PIXELS = 0.62
"""Inches of one of Grafana's 24 columns."""
ROW_INCHES = 0.42
POINTS = 180


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    name: str
    times: Sequence[float]
    values: Sequence[float]
    ref: str


class Picture:
    """One dashboard at one time."""

    def __init__(self, prometheus: Prometheus, chosen: Chosen, *, end: float) -> None:
        self._ask, self._chosen, self._end = prometheus, chosen, end

    def draw(self, name: str, file: Path) -> None:
        """Write the picture."""
        page = dashboard(name)
        boxes = list(panels(page))
        height = max(box["gridPos"]["y"] + box["gridPos"]["h"] for box in boxes) + 1.4
        figure = Figure(figsize=(24 * UNIT_PIXELS, height * ROW_INCHES), facecolor=PAPER)
        figure.text(
            0.008,
            1 - 0.9 / height,
            page["title"].replace(" / ", "  /  "),
            color=INK,
            fontsize=13,
            weight="bold",
        )
        where = self._where(page)
        figure.text(0.992, 1 - 0.9 / height, where, color="#8e8e8e", fontsize=9, ha="right")
        for box in boxes:
            self._panel(figure, box, height)
        figure.savefig(file, dpi=82, facecolor=PAPER, pil_kwargs={"optimize": True})
        shrink(file)

    def _where(self, page: Mapping[str, Any]) -> str:
        known = {"namespace": self._chosen.namespace, "service": self._chosen.service}
        variables = [each["name"] for each in page["templating"]["list"]]
        chosen = [f"{name}: {known[name]}" for name in variables if name in known]
        hours = self._chosen.range_seconds / 3600
        return "    ".join([*chosen, f"last {hours:.0f} hours"]).replace(".+", "All")

    def _panel(self, figure: Figure, box: Mapping[str, Any], height: float) -> None:
        place = box["gridPos"]
        left, top = place["x"] / 24, 1 - (place["y"] + 1.4) / height
        width, tall = place["w"] / 24, place["h"] / height
        if box["type"] == "row":
            figure.text(
                left + 0.008, top - tall * 0.62, f"▾ {box['title']}", color=INK, fontsize=10, weight="bold"
            )
            return
        gap = 0.0025
        frame = figure.add_axes(
            (left + gap, top - tall + gap, width - 2 * gap, tall - 2 * gap), facecolor=CARD
        )
        frame.set_xticks([])
        frame.set_yticks([])
        for side in frame.spines.values():
            side.set_color(FAINT)
        title = box["title"]
        figure.text(left + 0.007, top - 0.52 / height, title, color=INK, fontsize=8.5, va="center")
        inside = (left + 0.008, top - tall + 0.25 / height, width - 0.016, tall - 1.15 / height)
        kinds: dict[str, Callable[[Figure, Any, Mapping[str, Any]], None]] = {
            "timeseries": self._lines,
            "stat": self._number,
            "table": self._table,
            "bargauge": self._bars,
            "state-timeline": self._states,
            "text": self._words,
        }
        kinds[box["type"]](figure, inside, box)

    # ── what a panel asks ──

    def _ranges(self, box: Mapping[str, Any]) -> list[Series]:
        step = self._chosen.range_seconds / POINTS
        begin = self._end - self._chosen.range_seconds
        found = []
        for target in box["targets"]:
            expr = self._chosen.filled(target["expr"])
            for row in self._ask.query_range(expr, begin, self._end, step):
                times, values = zip(*((float(at), float(value)) for at, value in row["values"]), strict=True)
                found.append(Series(series_name(target, row["metric"]), times, values, target["refId"]))
        return found

    def _instants(self, box: Mapping[str, Any]) -> list[tuple[str, dict[str, str], float, str]]:
        return [
            (series_name(target, row["metric"]), row["metric"], float(row["value"][1]), target["refId"])
            for target in box["targets"]
            for row in self._ask.query(self._chosen.filled(target["expr"]), self._end)
        ]

    # ── kinds of panels ──

    def _lines(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, width, tall = inside
        defaults, styles = box["fieldConfig"]["defaults"], styles_of(box)
        right = 0.025 if any("custom.axisPlacement" in style for style in styles.values()) else 0.0
        place_of = (left + 0.034, bottom + 0.23 * tall, width - 0.036 - right, tall * 0.77)
        axes = figure.add_axes(place_of, facecolor=CARD)
        custom, unit = defaults.get("custom", {}), defaults.get("unit", "none")
        stacked = custom.get("stacking", {}).get("mode") == "normal"
        base: list[float] | None = None
        for place, series in enumerate(self._ranges(box)):
            style = styles.get(series.name) or styles.get(series.ref, {})
            colour = COLOURS.get(style.get("color", {}).get("fixedColor", ""), PALETTE[place % len(PALETTE)])
            dashed = "custom.lineStyle" in style
            times = [days(at) for at in series.times]
            target = second_axis(axes) if "custom.axisPlacement" in style else axes
            if stacked and not dashed:
                grid = {round(at): value for at, value in zip(series.times, series.values, strict=True)}
                below = base or [0.0] * len(self._grid())
                base = [
                    low + max(0.0, grid.get(at, 0.0)) for low, at in zip(below, self._grid(), strict=True)
                ]
                across = [days(at) for at in self._grid()]
                axes.fill_between(
                    across, below, base, color=colour, alpha=0.6, linewidth=0, label=series.name
                )
                continue
            target.plot(
                times,
                series.values,
                color=colour,
                linewidth=1.4,
                label=series.name,
                linestyle="--" if dashed else "-",
            )
        self._limits(axes, box)
        dress(axes, unit, defaults)
        self._time(axes)
        draw_legend(axes, figure, defaults.get("noValue", "No data"))

    def _grid(self) -> list[int]:
        step = self._chosen.range_seconds / POINTS
        begin = self._end - self._chosen.range_seconds
        return [round(begin + step * place) for place in range(POINTS + 1)]

    def _limits(self, axes: Axes, box: Mapping[str, Any]) -> None:
        custom = box["fieldConfig"]["defaults"].get("custom", {})
        if custom.get("thresholdsStyle", {}).get("mode", "off") == "off":
            return
        for step in box["fieldConfig"]["defaults"]["thresholds"]["steps"]:
            if step["value"] is not None:
                colour = COLOURS[step["color"]]
                axes.axhline(step["value"], color=colour, linewidth=1, linestyle=(0, (4, 3)))
                text = scaled(step["value"], box["fieldConfig"]["defaults"].get("unit", "none"))
                is_high = step["value"] > 0.93 * axes.get_ylim()[1]
                axes.annotate(
                    *(text, (1, step["value"]), (0, -2 if is_high else 1)),
                    xycoords=("axes fraction", "data"), textcoords="offset points",
                    color=colour, fontsize=7, ha="right", va="top" if is_high else "bottom",
                )  # fmt: skip

    def _time(self, axes: Axes) -> None:
        begin = self._end - self._chosen.range_seconds
        axes.xaxis_date(UTC)
        axes.set_xlim(days(begin), days(self._end))
        axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=6, tz=UTC))  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]

    def _number(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, width, tall = inside
        defaults = box["fieldConfig"]["defaults"]
        found = self._instants(box)
        text, colour = defaults.get("noValue", "No data"), "text"
        if found and not math.isnan(found[0][2]):
            value = found[0][2]
            text = scaled(value, defaults.get("unit", "none"))
            decimals = defaults.get("decimals")
            if defaults.get("unit") == "percentunit" and decimals is not None:
                text = f"{value * 100:.{int(decimals)}f} %"
            elif decimals == 0:
                text = scaled(round(value), defaults.get("unit", "none"))
            if box["options"].get("textMode") == "name":
                text = found[0][0]
            colour = step_colour(defaults["thresholds"]["steps"], value)
        figure.text(
            *(left + width / 2, bottom + tall * 0.52, text),
            color=COLOURS[colour],
            fontsize=19,
            ha="center",
            va="center",
            weight="bold",
        )

    def _bars(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, width, tall = inside
        unit, styles = box["fieldConfig"]["defaults"].get("unit", "none"), styles_of(box)
        found = self._instants(box)
        axes = figure.add_axes((left + 0.075, bottom, width - 0.13, tall), facecolor=CARD)
        largest = max((value for *_, value, _ in found), default=1.0) or 1.0
        for place, (name, _, value, ref) in enumerate(found):
            colour = COLOURS[styles.get(ref, {}).get("color", {}).get("fixedColor", "blue")]
            axes.barh(-place, largest, color=FAINT, height=0.7)
            axes.barh(-place, value, color=colour, height=0.7)
            axes.text(-0.02 * largest, -place, name, color=INK, fontsize=7.5, ha="right", va="center")
            axes.text(largest * 1.02, -place, scaled(value, unit), color=colour, fontsize=8.5, va="center")
        axes.set_xlim(0, largest)
        axes.axis("off")

    def _states(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, width, tall = inside
        axes = figure.add_axes((left + 0.085, bottom + 0.1 * tall, width - 0.09, tall * 0.9), facecolor=CARD)
        words = box["fieldConfig"]["defaults"]["mappings"][0]["options"]
        step = self._chosen.range_seconds / POINTS / 86400
        found = [each for each in self._ranges(box) if any(each.values)]
        for place, series in enumerate(found):
            axes.text(-0.01, -place, short(series.name, 20), color=INK, fontsize=7, ha="right", va="center",
                      transform=axes.get_yaxis_transform())  # fmt: skip
            for at, value in zip(series.times, series.values, strict=True):
                colour = COLOURS.get(words.get(f"{value:.0f}", {}).get("color", "transparent"), "none")
                if colour != "none":
                    axes.barh(-place, step, left=days(at), color=colour, height=0.75, linewidth=0)
        if not found:
            nothing = box["fieldConfig"]["defaults"].get("noValue", "none")
            axes.text(0.5, 0.5, nothing, color="#8e8e8e", fontsize=9, ha="center", transform=axes.transAxes)
        axes.set_ylim(-max(1, len(found)) + 0.5, 0.6)
        dress(axes, "none", {})
        axes.set_yticks([])
        self._time(axes)

    def _words(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, _, tall = inside
        text = box["options"]["content"].replace("**", "").replace("*", "").replace("`", "")
        paragraphs = (part.replace("\n", " ") for part in text.strip().split("\n\n"))
        lines = "\n\n".join(wrapped(part, 74) for part in paragraphs)
        figure.text(
            left + 0.004, bottom + tall * 0.97, lines, color=INK, fontsize=7.6, va="top", linespacing=1.35
        )

    def _table(self, figure: Figure, inside: Any, box: Mapping[str, Any]) -> None:
        left, bottom, width, tall = inside
        organized = next(each for each in box["transformations"] if each["id"] == "organize")["options"]
        renamed, order = organized["renameByName"], organized["indexByName"]
        columns = sorted(order, key=lambda each: int(order[each]))
        rows: dict[tuple[tuple[str, str], ...], dict[str, float | str]] = {}
        single = len(box["targets"]) == 1
        for _, metric, value, ref in self._instants(box):
            labels = {name: text for name, text in metric.items() if name in columns}
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            row["Value" if single else f"Value #{ref}"] = value
        cells = {
            override["matcher"]["options"]: {each["id"]: each.get("value") for each in override["properties"]}
            for override in box["fieldConfig"]["overrides"]
        }
        shown = int(tall * figure.get_figheight() / 0.24 - 1.5)
        down = tall / max(shown + 1.2, 6.0)
        for index, column in enumerate(columns):
            across, title = left + 0.004 + width * index / len(columns), renamed[column]
            figure.text(across, bottom + tall - down * 0.6, title, color="#6e9fff", fontsize=8, va="center")
            for down_index, key in enumerate(sorted(rows)[:shown]):
                text, colour = cell(rows[key].get(column, ""), cells.get(title, {}))
                figure.text(
                    *(across, bottom + tall - down * (1.7 + down_index), text),
                    color=COLOURS[colour],
                    fontsize=8.5,
                    va="center",
                )
