"""Runs external commands; a failure tells the command, its exit code and its last words."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from devcluster.errors import CommandError


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """The command's stdout; raises CommandError if it exits with anything but 0."""
    try:
        result = subprocess.run(
            command,
            input=stdin,
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError(f"{command[0]}: no such command on PATH") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(command)}: no end after {timeout_seconds:g} s") from None
    if result.returncode != 0:
        words = result.stderr.strip() or result.stdout.strip()
        raise CommandError(f"{' '.join(command)}: exit code {result.returncode}: {words[-2000:]}")
    return result.stdout


def succeeds(command: Sequence[str]) -> bool:
    """Whether a command exits with 0; its output is dropped."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
