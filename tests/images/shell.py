"""Runs external commands: output goes to standard error, so that standard output holds results alone."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from images.errors import BuildError


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    say(f"{what} ...")
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


def run(command: Sequence[str], *, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command; its output is progress. Raises BuildError if it fails or does not exist."""
    try:
        status = subprocess.run(
            command, env=_with(environ), cwd=cwd, stdout=sys.stderr, check=False
        ).returncode
    except FileNotFoundError:
        raise BuildError(f"{command[0]}: no such command on PATH") from None
    if status:
        raise BuildError(f"exit code {status} from: {' '.join(command)}")


def output(command: Sequence[str], *, environ: Mapping[str, str] | None = None) -> str:
    """A command's standard output. Raises BuildError if it fails or does not exist."""
    try:
        done = subprocess.run(command, env=_with(environ), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(f"{command[0]}: no such command on PATH") from None
    if done.returncode:
        raise BuildError(
            f"exit code {done.returncode} from: {' '.join(command)}: {done.stderr.strip()[-2000:]}"
        )
    return done.stdout


def _with(environ: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(environ or {})}
