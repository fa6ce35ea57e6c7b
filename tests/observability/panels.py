"""The dashboards as the chart ships them: their panels and queries, with Grafana's variables filled in."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "llmservice-operator" / "dashboards"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a user has chosen: variables, and the time range in seconds."""

    namespace: str
    service: str
    range_seconds: float
    rate_seconds: float
    """Grafana's $__rate_interval: four scrapes at least."""

    def filled(self, expr: str) -> str:
        """A query as Grafana sends it."""
        values = {
            "$__rate_interval": f"{self.rate_seconds:.0f}s",
            "$__range": f"{self.range_seconds:.0f}s",
            "$namespace": self.namespace,
            "$service": self.service,
        }
        for name, value in values.items():
            expr = expr.replace(name, value)
        return expr


def names() -> list[str]:
    """Of the dashboards."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard's JSON."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def panels(page: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels in their order, rows' headings included."""
    for panel in page["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries() -> Iterator[tuple[str, str, str]]:
    """(dashboard, panel's title, expression) of all."""
    for name in names():
        for panel in panels(dashboard(name)):
            for target in panel.get("targets", ()):
                yield name, panel["title"], target["expr"]
