"""Releases of the chart as files to be looked at: the defaults, every switch on, and a namespaced one.

    python -m golden.chart.render

The CRDs are left out: they stand in crds/ as they are. So are rules and dashboards: they are files of the chart.
"""

from pathlib import Path
from typing import Any

import yaml

from integration.chart.releases import render, render_monitored
from integration.chart.test_switches import CASES

FOLDER = Path(__file__).resolve().parent
OWN_FILES = ("ConfigMap", "PrometheusRule", "CustomResourceDefinition")


def releases() -> dict[str, list[dict[str, Any]]]:
    """Objects of each case, in the order in which Helm renders them."""
    return {
        "defaults": render(),
        "everything": render_monitored(**CASES["everything"]),
        "namespaced": render(**CASES["namespaced"]),
    }


def files() -> dict[Path, str]:
    """Path → content of every golden file."""
    return {
        FOLDER / f"{name}.yaml": yaml.safe_dump_all(
            [each for each in objects if each["kind"] not in OWN_FILES], sort_keys=False, width=1000
        )
        for name, objects in releases().items()
    }


def main() -> None:
    for path, text in files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
