"""`make test`: every proof in order of cost, each stage timed, the first failure ends it.

What an earlier run that was killed has left is cleaned before, and what this one starts is ended after,
also when it is interrupted.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One proof: a name and the commands that make it."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    real_engine: bool = False
    """Whether the real engine is made and named to the commands."""


def pytest(*arguments: str) -> tuple[str, ...]:
    return (PYTHON, "-m", "pytest", "-q", *arguments)


STAGES = (
    Stage(
        name="lint",
        commands=(
            (str(BIN / "ruff"), "format", "--check", "."),
            (str(BIN / "ruff"), "check", "."),
            (str(BIN / "mypy"),),
            (str(BIN / "lint-imports"),),
        ),
    ),
    Stage(name="unit tests", commands=(pytest("tests/unit", "-n", "2"),)),
    Stage(name="cluster binaries", commands=((PYTHON, "-m", "devcluster", "build"),)),
    Stage(name="generated files", commands=((PYTHON, "-m", "generate", "--check"),)),
    Stage(
        name="dashboards and alerts",
        commands=((PYTHON, "-m", "observability.programs"), pytest("tests/observability")),
    ),
    Stage(name="real API server", commands=(pytest("tests/integration", "tests/manifests", "tests/docs"),)),
    Stage(name="20 kills of the operator", commands=(pytest("tests/chaos", "-s", "--kills", "20"),)),
    Stage(
        name="images and model",
        commands=((PYTHON, "-m", "images", "build", "all"), (PYTHON, "-m", "images", "model")),
    ),
    Stage(name="engines' contract", commands=(pytest("tests/contract"),), real_engine=True),
    Stage(name="real cluster, real engine", commands=(pytest("tests/e2e"),)),
)


def clean() -> None:
    """End the clusters of test runs that were killed; those of others, and a demo's, stay."""
    subprocess.run((PYTHON, "-m", "devcluster", "down", "--orphans"), cwd=ROOT, check=False)


def real_engine() -> dict[str, str]:
    """Where the contract's tests find the real engine, made where it is missing."""

    def path(*command: str) -> str:
        done = subprocess.run(
            (PYTHON, "-m", "images", *command), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip().splitlines()[-1]

    return {"REAL_ENGINE_PYTHON": path("engine"), "REAL_ENGINE_MODEL": path("model")}


def run(stage: Stage) -> int:
    """Run the commands of a stage until one fails; its exit code."""
    environ = os.environ | (real_engine() if stage.real_engine else {})
    for command in stage.commands:
        status = subprocess.run(command, cwd=ROOT, check=False, env=environ).returncode
        if status:
            print(f"== failed: {' '.join(command).replace(str(ROOT) + '/', '')}", flush=True)
            return status
    return 0


def interrupted(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    wanted = sys.argv[1:]
    stages = tuple(stage for stage in STAGES if not wanted or any(word in stage.name for word in wanted))
    began = time.monotonic()
    times: list[tuple[str, float]] = []
    status = 0
    clean()
    try:
        for stage in stages:
            print(f"== {stage.name}", flush=True)
            start = time.monotonic()
            status = run(stage)
            times.append((stage.name, time.monotonic() - start))
            print(f"== {stage.name}: {'ok' if not status else 'FAILED'}, {times[-1][1]:.0f} s", flush=True)
            if status:
                break
    finally:
        clean()
    minutes = (time.monotonic() - began) / 60
    free_gib = shutil.disk_usage(ROOT).free / 2**30
    print(f"== {'RED' if status else 'green'} in {minutes:.1f} min, {free_gib:.0f} GiB of disk free")
    for name, seconds in times:
        print(f"--   {seconds:7.1f} s  {name}")
    return status


if __name__ == "__main__":
    sys.exit(main())
