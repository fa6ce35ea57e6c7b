"""Which Python can import the engine. Images differ: a venv in /opt, the distribution's own, a second one."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from typing import Iterable, Mapping, Sequence

_PYTHON = re.compile(r"^python(?:3(?:\.\d+)?)?$")
_CHECK = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec(sys.argv[1]) else 1)"
_CHECK_TIMEOUT_SECONDS = 60.0
_WELL_KNOWN = (
    "/opt/venv/bin/python3",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
    "/opt/conda/bin/python3",
)


class EngineNotFoundError(Exception):
    """No interpreter in the image can import the engine."""


def resolve(command: Sequence[str], module: str, environment: Mapping[str, str]) -> list[str]:
    """`command` with a first word like `python3` replaced by the first interpreter that can import `module`.

    Any other first word is left alone: whoever names a program means that program.

    Raises:
        EngineNotFoundError: when none can, or the named program does not exist.

    """
    program = command[0]
    if not _PYTHON.match(program):
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise EngineNotFoundError(
                f"the engine's command starts with {program!r}, which this image does not have"
            )
        return list(command)
    tried = []
    for candidate in candidates(program, environment):
        if can_import(candidate, module):
            return [candidate, *command[1:]]
        tried.append(candidate)
    raise EngineNotFoundError(
        f"no Python of this image can import {module!r} (tried {', '.join(tried) or 'none: there is none'}); "
        "set spec.engine.image to an image with the engine, or spec.engine.command to its program"
    )


def candidates(program: str, environment: Mapping[str, str]) -> list[str]:
    """Interpreters to try, in order, each once: the named one, our own, others on PATH, well-known places."""
    path = environment.get("PATH")
    found = [
        shutil.which(program, path=path),
        sys.executable,
        shutil.which("python3", path=path),
        shutil.which("python", path=path),
    ]
    return _existing_once([item for item in found if item] + list(_WELL_KNOWN))


def can_import(interpreter: str, module: str) -> bool:
    """Whether `interpreter` finds `module`; it is looked up, not run."""
    if interpreter == sys.executable and importlib.util.find_spec(module) is not None:
        return True  # our own needs no second start of Python, which the engine would wait for
    try:
        done = subprocess.run(
            [interpreter, "-c", _CHECK, module],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CHECK_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _existing_once(paths: Iterable[str]) -> list[str]:
    """Paths are compared as written: a venv's python links to another one and is not the same interpreter."""
    return [path for path in dict.fromkeys(paths) if os.access(path, os.X_OK)]
