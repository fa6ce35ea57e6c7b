"""Where sources are and where results are kept."""

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CACHE_HOME/llmservice`; the standard's default is `~/.cache`."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The standard says that a relative path is to be ignored.
    home = Path(base) if base.startswith("/") else Path(environ.get("HOME", "/"), ".cache")
    return home / "llmservice"
