"""`make pictures`: the dashboards of the docs, drawn from three hours of the stage.

python -m observability.pictures [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

from observability.draw import Picture
from observability.panels import Chosen
from observability.rules import ROOT
from observability.stage.cluster import Cluster
from observability.stage.server import Prometheus, openmetrics
from observability.stage.world import SAMPLE_SECONDS, SECONDS, play
from ports import free_port

FOLDER = ROOT / "operator" / "docs" / "images" / "dashboards"
BEGIN = 1_780_300_800.0
"""1 June 2026, 8:00 UTC: pictures don't change with the day that they are drawn on."""
LOOKBACK = "45s"
"""A history made from text has no marks of series that ended; so that one counts until the next sample only."""
CHOSEN = {
    "fleet": (".+", ""),
    "service": ("chat", "llama-3-8b"),
    "sizing": ("chat", "llama-3-8b"),
    "operator": ("", ""),
}


def draw(folder: Path) -> None:
    """Write every picture into this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    moments = play()
    cluster = Cluster(moments, begin=BEGIN)
    with tempfile.TemporaryDirectory() as place:
        prometheus = Prometheus(Path(place), port=free_port())
        prometheus.fill(openmetrics((BEGIN + each.at_seconds, cluster.targets(each)) for each in moments))
        try:
            prometheus.start(rules_file=None, lookback=LOOKBACK)
            prometheus.record(BEGIN, BEGIN + SECONDS)
            prometheus.stop()
            prometheus.start(rules_file=None, lookback=LOOKBACK)
            for name, (namespace, service) in CHOSEN.items():
                chosen = Chosen(
                    namespace=namespace,
                    service=service,
                    range_seconds=SECONDS,
                    rate_seconds=4 * SAMPLE_SECONDS,
                )
                file = folder / f"{name}.png"
                Picture(prometheus, chosen, end=BEGIN + moments[-1].at_seconds).draw(name, file)
                print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")
        finally:
            prometheus.stop()


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
