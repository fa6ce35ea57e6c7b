"""The dashboards' JSON as Grafana would import it."""

import re
from itertools import combinations
from typing import Any

import pytest

from observability.dashboards.made import FOLDER, PAGES, text
from observability.panels import dashboard, names, panels

COLUMNS = 24


def _places(page: dict[str, Any]) -> list[tuple[str, int, int, int, int]]:
    return [(each["title"], *(each["gridPos"][side] for side in "xywh")) for each in panels(page)]


@pytest.mark.parametrize("name", names())
def test_the_chart_has_what_the_code_says(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(PAGES[name])


@pytest.mark.parametrize("name", names())
def test_panels_lie_beside_each_other_within_the_grid(name: str) -> None:
    places = _places(dashboard(name))

    beyond = [title for title, x, _, width, _ in places if x + width > COLUMNS]
    over = [
        (one[0], other[0])
        for one, other in combinations(places, 2)
        if one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
        and one[2] < other[2] + other[4]
        and other[2] < one[2] + one[4]
    ]

    assert (beyond, over) == ([], [])


@pytest.mark.parametrize("name", names())
def test_every_query_goes_to_the_chosen_prometheus(name: str) -> None:
    sources = {
        target["datasource"]["uid"] for each in panels(dashboard(name)) for target in each.get("targets", ())
    }

    assert sources == {"$datasource"}


@pytest.mark.parametrize("name", names())
def test_every_panel_with_numbers_says_their_unit(name: str) -> None:
    shown = [each for each in panels(dashboard(name)) if each.get("targets")]

    assert [each["title"] for each in shown if "unit" not in each["fieldConfig"]["defaults"]] == []


def test_links_lead_to_dashboards_that_are_there() -> None:
    known = {dashboard(name)["uid"] for name in names()}
    linked = {
        uid for name in names() for uid in re.findall(r'"/d/([\w-]+)', (FOLDER / f"{name}.json").read_text())
    }

    assert linked
    assert linked <= known
