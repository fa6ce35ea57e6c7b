"""The Prometheus operator's own CRDs, from its pinned Go module, which go.sum holds to what it was."""

import json
import os
import subprocess
from pathlib import Path

from devcluster.binaries import SOURCES, find_go
from devcluster.errors import PreflightError

MODULE = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("servicemonitors", "podmonitors", "prometheusrules")


def files() -> list[Path]:
    """The CRDs of what the chart makes; downloaded the first time."""
    go = find_go(os.environ)
    if go is None:
        raise PreflightError("Go is not on PATH; install it (https://go.dev/dl)")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=SOURCES / "prometheus-operator",
        env=os.environ | {"GOWORK": "off", "GOFLAGS": ""},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]
