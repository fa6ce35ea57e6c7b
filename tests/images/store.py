"""The archives in the cache: found by content hash, made when absent, older ones of the same image removed."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from images import builders, preflight
from images.layout import ROOT, cache_folder
from images.recipes import Recipe, content_hash
from images.shell import say


def build(wanted: Sequence[Recipe]) -> list[Path]:
    """The archive of each image, in order; what is missing is built, one at a time on a machine."""
    folder = cache_folder() / "images"
    builder = builders.choose(folder)
    archives = [
        folder / f"{recipe.name}-{content_hash(ROOT, recipe, salt=builder.salt)}.tar" for recipe in wanted
    ]
    if all(archive.is_file() for archive in archives):
        return archives
    with only_one(folder):
        for recipe, archive in zip(wanted, archives, strict=True):
            if not archive.is_file():
                _make(builder, recipe, archive)
    return archives


def _make(builder: builders.Builder, recipe: Recipe, archive: Path) -> None:
    folder = archive.parent
    work = folder / "work"
    builders.remove_work(work)  # of a build that was killed
    with_buildah = isinstance(builder, builders.Buildah)
    preflight.check(folder, needed_bytes=recipe.disk_bytes, with_buildah=with_buildah)
    work.mkdir()
    try:
        partial = work / archive.name
        builder.build(recipe, partial, work=work, secrets=builders.write_secrets(work))
        partial.rename(archive)
    finally:
        builders.remove_work(work)
    for older in superseded(folder, archive, recipe.name):
        older.unlink()
    say(f"{recipe.reference}: {archive.stat().st_size / 1e6:.0f} MB in {archive}")


def superseded(folder: Path, archive: Path, name: str) -> list[Path]:
    """Archives of the same image with another content hash."""
    hash_digits = "[0-9a-f]" * 16
    return [path for path in folder.glob(f"{name}-{hash_digits}.tar") if path != archive]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another build is at work in {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
