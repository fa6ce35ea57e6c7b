"""Panels as the project draws them: few kinds, each with what every panel of its kind shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    text,
)
from grafana_foundation_sdk.builders import timeseries as lines
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from observability.dashboards.theme import GOOD, NEUTRAL, PROMISED

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")
NOTHING = "-"
"""In a table's cell without a value."""
Steps = Sequence[tuple[float | None, str]]
"""Thresholds: (from this value on, colour); the first one's value is None."""
Panel = lines.Panel | stat.Panel | table.Panel | statetimeline.Panel | bargauge.Panel | text.Panel
_Any = TypeVar("_Any", lines.Panel, stat.Panel, table.Panel, statetimeline.Panel, bargauge.Panel)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel. `legend` is its name in the legend, or a table's column."""

    expr: str
    legend: str = ""
    colour: str | None = None
    """None: of the palette, by series."""
    dashed: bool = False
    right: bool = False
    """On an axis of its own, as a share."""


def _target(query: Query, place: int, *, instant: bool, as_table: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(" ".join(query.expr.split())).ref_id(chr(ord("A") + place))
    target = target.legend_format(query.legend or "__auto").datasource(DATASOURCE)
    if as_table:
        target = target.format(PromQueryFormat.TABLE)
    return target.instant() if instant else target.range()


def _common(panel: _Any, title: str, unit: str, size: tuple[int, int], description: str) -> _Any:
    width, height = size
    panel.title(title).unit(unit).span(width).height(height).datasource(DATASOURCE)
    if description:
        panel.description(description)
    return panel


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _fixed(colour: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def graph(
    title: str,
    *queries: Query,
    unit: str,
    width: int = 8,
    height: int = 7,
    description: str = "",
    limits: Steps = (),
    stacked: bool = False,
    colours: Mapping[str, str] | None = None,
    largest: float | None = None,
    is_count: bool = False,
    nothing: str = "",
) -> lines.Panel:
    """Lines over time, from 0. `limits` are drawn as dashed lines; `colours` by the name in the legend.

    `is_count`: of whole things, so that an axis has no halves of them. `nothing`: why there may be no line.
    """
    panel = _common(lines.Panel(), title, unit, (width, height), description).min(0)
    panel.line_width(2).fill_opacity(60 if stacked else 0).show_points(shapes.VisibilityMode.NEVER)
    panel.legend(
        common.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.LIST)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
    if largest is not None:
        panel.max(largest)
    if is_count:
        panel.decimals(0)
    if nothing:
        panel.no_value(nothing)
    if stacked:
        panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    if limits:
        panel.thresholds(_thresholds([(None, "transparent"), *limits]))
        panel.axis_soft_max(1.05 * max(value for value, _ in limits if value is not None))  # in sight always
        panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        )
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place, instant=False))
        if properties := _style(query):
            panel.override_by_query(chr(ord("A") + place), properties)
    for name, colour in (colours or {}).items():
        panel.override_by_name(name, [_fixed(colour)])
    return panel


def _style(query: Query) -> list[models.DynamicConfigValue]:
    properties = []
    if query.colour:
        properties.append(_fixed(query.colour))
    if query.dashed:
        style = {"fill": "dash", "dash": [8, 8]}
        properties.append(models.DynamicConfigValue("custom.lineStyle", style))
        properties.append(models.DynamicConfigValue("custom.fillOpacity", 0))
        properties.append(models.DynamicConfigValue("custom.stacking", {"mode": "none"}))
    if query.right:
        properties.append(models.DynamicConfigValue("custom.axisPlacement", "right"))
        properties.append(models.DynamicConfigValue("unit", "percentunit"))
    return properties


def number(
    title: str,
    query: Query,
    *,
    unit: str = "short",
    width: int = 4,
    height: int = 3,
    description: str = "",
    steps: Steps = ((None, NEUTRAL),),
    decimals: int | None = None,
    nothing: str = "none",
    is_name: bool = False,
) -> stat.Panel:
    """The last value, coloured by thresholds; or the name of the series that has it."""
    panel = _common(stat.Panel(), title, unit, (width, height), description)
    panel.color_mode(shapes.BigValueColorMode.VALUE).graph_mode(shapes.BigValueGraphMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.thresholds(_thresholds(steps)).no_value(nothing)
    if is_name:
        panel.text_mode(shapes.BigValueTextMode.NAME)
    if decimals is not None:
        panel.decimals(decimals)
    return panel.with_target(_target(query, 0, instant=True))


def bars(
    title: str,
    *queries: Query,
    unit: str,
    width: int = 8,
    height: int = 7,
    description: str = "",
) -> bargauge.Panel:
    """The last values beside each other, horizontally."""
    panel = _common(bargauge.Panel(), title, unit, (width, height), description).min(0)
    panel.orientation(shapes.VizOrientation.HORIZONTAL).display_mode(shapes.BarGaugeDisplayMode.BASIC)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place, instant=True))
        if query.colour:
            panel.override_by_query(chr(ord("A") + place), [_fixed(query.colour)])
    return panel


def states(
    title: str,
    query: Query,
    *,
    width: int = 12,
    height: int = 7,
    description: str = "",
    words: Mapping[str, tuple[str, str]],
    nothing: str = "none",
) -> statetimeline.Panel:
    """What was the case when. `words`: value → (text, colour)."""
    panel = _common(statetimeline.Panel(), title, "none", (width, height), description).no_value(nothing)
    results = {
        value: models.ValueMappingResult(text=word, color=colour) for value, (word, colour) in words.items()
    }
    panel.mappings([models.ValueMap(options=results)]).show_value(shapes.VisibilityMode.NEVER)
    panel.fill_opacity(80).line_width(0).merge_values(True)
    return panel.with_target(_target(query, 0, instant=False))


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: a query, or a label of the queries."""

    name: str
    query: str = ""
    label: str = ""
    unit: str = "short"
    steps: Steps = ()
    link: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    """What is shown in the place of a value."""


def rows(
    title: str, *columns: Column, width: int = 24, height: int = 8, description: str = "", sort: str = ""
) -> table.Panel:
    """One row for each set of labels, one column for each query."""
    panel = _common(table.Panel(), title, "short", (width, height), description)
    renamed: dict[str, str] = {}
    order: dict[str, int] = {}
    place = 0
    for index, column in enumerate(columns):
        source = column.label
        if column.query:
            panel.with_target(_target(Query(expr=column.query), place, instant=True, as_table=True))
            source = f"Value #{chr(ord('A') + place)}"
            place += 1
        renamed[source], order[source] = column.name, index
        panel.override_by_name(column.name, _cell(column))
    if place == 1:
        renamed["Value"], order["Value"] = renamed.pop("Value #A"), order.pop("Value #A")
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    hidden = {"Time": True}
    panel.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "indexByName": order, "renameByName": renamed},
        )
    )
    if sort:
        panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(False)])
    return panel


def _cell(column: Column) -> list[models.DynamicConfigValue]:
    properties = [models.DynamicConfigValue("unit", column.unit)]
    if column.query:
        properties.append(models.DynamicConfigValue("noValue", NOTHING))
    if column.words:
        options = {value: {"text": word} for value, word in column.words.items()}
        properties.append(models.DynamicConfigValue("mappings", [{"type": "value", "options": options}]))
    if column.steps:
        steps = [{"value": value, "color": colour} for value, colour in column.steps]
        properties += [
            models.DynamicConfigValue("thresholds", {"mode": "absolute", "steps": steps}),
            models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
        ]
    if column.link:
        link = {"title": "Open", "url": column.link}
        properties.append(models.DynamicConfigValue("links", [link]))
    return properties


def note(title: str, markdown: str, *, width: int = 8, height: int = 7) -> text.Panel:
    """Words."""
    return text.Panel().title(title).mode(TextMode.MARKDOWN).content(markdown).span(width).height(height)


def is_met(least: float) -> Steps:
    """Green from `least` on, red below."""
    return ((None, PROMISED), (least, GOOD))


def page(
    uid: str,
    title: str,
    description: str,
    sections: Mapping[str, Sequence[Panel]],
    *,
    variables: Sequence[dashboard.QueryVariable],
    since: str = "now-3h",
) -> models.Dashboard:
    """A dashboard of these rows of panels, with a link to each of the others."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["llmservice"]).readonly()
    made.time(since, "now").refresh("30s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    others = dashboard.DashboardLink("LLMService dashboards").type(models.DashboardLinkType.DASHBOARDS)
    made.link(others.tags(["llmservice"]).include_vars(True).keep_time(True))
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in variables:
        made.with_variable(variable)
    for name, panels in sections.items():
        made.with_row(dashboard.Row(name))
        for panel in panels:
            made.with_panel(panel)
    return made.build()


def variable(name: str, label: str, query: str, *, several: bool) -> dashboard.QueryVariable:
    """A variable whose values Prometheus tells."""
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(DATASOURCE)
    made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    return made.multi(True).include_all(True).all_value(".+") if several else made
