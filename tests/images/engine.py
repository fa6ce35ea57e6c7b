"""The real engine in a virtual environment of the cache: what the CPU image holds, runnable without a container."""

import hashlib
import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

from images import preflight
from images.errors import BuildError, PreflightError
from images.layout import ROOT, cache_folder
from images.shell import run, say, timed
from images.store import only_one

_LOCK = ROOT / "requirements" / "engine-cpu.lock"
_STUBS = ROOT / "runtime_image" / "cpu" / "stub_cuda_libraries.py"
_DISK_BYTES = 6 * 1024**3


def engine_python() -> Path:
    """The interpreter of the environment; installs it first where it is missing, and removes older, idle ones."""
    folder = cache_folder() / "engine-cpu"
    seed = f"{sys.version_info[:2]}".encode() + _LOCK.read_bytes() + _STUBS.read_bytes()
    environment = folder / hashlib.sha256(seed).hexdigest()[:12]
    python = environment / "bin" / "python"
    complete = environment / ".complete"
    if complete.is_file():
        return python
    with only_one(folder):
        if not complete.is_file():
            _check(folder)
            for older in folder.iterdir():
                if older.is_dir() and not is_running(older):
                    shutil.rmtree(older)
            with timed("vLLM's CPU build into a virtual environment (once)"):
                _install(environment, python)
            complete.touch()
    return python


def is_running(environment: Path, processes: Path = Path("/proc")) -> bool:
    """Whether a process was started from the environment."""
    prefix = f"{environment}/".encode()
    for cmdline in processes.glob("[0-9]*/cmdline"):
        try:
            if cmdline.read_bytes().startswith(prefix):
                return True
        except OSError:  # the process has ended meanwhile
            continue
    return False


def _check(folder: Path) -> None:
    preflight.check(folder, needed_bytes=_DISK_BYTES, with_buildah=False)
    header = Path(sysconfig.get_path("include"), "Python.h")
    missing = [name for name in ("g++", "readelf") if shutil.which(name) is None]
    if missing or not header.is_file():
        raise PreflightError(
            f"the engine compiles at start and needs g++, binutils and {header}: "
            "on Debian or Ubuntu: sudo apt-get install g++ python3-dev"
        )


def _install(environment: Path, python: Path) -> None:
    if importlib.util.find_spec("uv") is None:
        raise BuildError(f"{sys.executable} has no uv: run `make venv`, and use .venv/bin/python")
    uv = [sys.executable, "-m", "uv"]
    run([*uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
    hashed = ["--no-deps", "--require-hashes", "--requirement", str(_LOCK)]
    run([*uv, "pip", "install", "--quiet", "--python", str(python), *hashed])
    run([str(python), str(_STUBS)])
    say(f"engine: {python}")
