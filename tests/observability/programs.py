"""Prometheus and promtool, built once from a pinned Go module, beside the test cluster's programs.

Without service discovery (the tests name their targets) and without the web page: a build of two minutes.
"""

from pathlib import Path

from devcluster.binaries import Binaries, Program

SOURCES = Path(__file__).resolve().parent / "go"


def _program(name: str) -> Program:
    package = f"github.com/prometheus/prometheus/cmd/{name}"
    return Program(name=name, module="prometheus", package=package, tags="remove_all_sd")


PROGRAMS = (_program("prometheus"), _program("promtool"))


def binaries() -> Binaries:
    """Both programs; `ensure` builds what is missing, with progress, and says what is needed for it."""
    return Binaries(sources=SOURCES, programs=PROGRAMS)


if __name__ == "__main__":
    binaries().ensure()
