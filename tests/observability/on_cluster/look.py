"""A look at the dashboards: which of their queries have no data, and why that is right or not."""

import math
import re
import time
from dataclasses import dataclass
from typing import Any

from observability.on_cluster import cast
from observability.panels import Chosen, dashboard, names, panels
from observability.stage.server import Prometheus

NOW = ("stat", "table", "bargauge")
"""Panels that show one moment: it must have data now, and not some time ago."""
STEP_SECONDS, RATE_SECONDS = 5.0, 20.0
KNOWN = (("DCGM_", "no DCGM exporter: there is no GPU"),)
"""(in the query, why it has no data on this cluster)."""


@dataclass(frozen=True, kw_only=True)
class Empty:
    """A query without data."""

    dashboard: str
    panel: str
    query: str
    why: str
    """Empty: nothing explains it."""


def look(prometheus: Prometheus, range_seconds: float) -> tuple[int, tuple[Empty, ...]]:
    """How many queries there are, and those without data."""
    found: list[Empty] = []
    count = 0
    for name in names():
        chosen = Chosen(
            namespace=".+" if name == "fleet" else cast.NAMESPACE,
            service=cast.STEADY,
            range_seconds=range_seconds,
            rate_seconds=RATE_SECONDS,
        )
        for panel in panels(dashboard(name)):
            for target in panel.get("targets", ()):
                count += 1
                query = chosen.filled(target["expr"])
                if not _has_data(prometheus, panel, query, range_seconds):
                    words = re.sub(r"\s+", " ", target["expr"])
                    why = next((why for part, why in KNOWN if part in query), "")
                    found.append(Empty(dashboard=name, panel=panel["title"], query=words, why=why))
    return count, tuple(found)


def _has_data(prometheus: Prometheus, panel: dict[str, Any], query: str, range_seconds: float) -> bool:
    now = time.time()
    if panel["type"] in NOW:
        values = [float(row["value"][1]) for row in prometheus.query(query, now)]
    else:
        rows = prometheus.query_range(query, now - range_seconds, now, STEP_SECONDS)
        values = [float(value) for row in rows for _, value in row["values"]]
    return any(math.isfinite(value) for value in values)
