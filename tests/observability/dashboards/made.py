"""The dashboards' files in the chart."""

from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from observability.dashboards import fleet, operator_page, service, sizing

FOLDER = Path(__file__).resolve().parents[3] / "charts" / "llmservice-operator" / "dashboards"
PAGES: dict[str, Callable[[], Dashboard]] = {
    "fleet": fleet.dashboard,
    "service": service.dashboard,
    "operator": operator_page.dashboard,
    "sizing": sizing.dashboard,
}


def text(page: Callable[[], Dashboard]) -> str:
    """A dashboard as Grafana imports it."""
    return JSONEncoder(sort_keys=True, indent=1).encode(page()) + "\n"


def write() -> None:
    """Write every dashboard."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / f"{name}.json").write_text(text(page))
