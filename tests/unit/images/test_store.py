"""The cache of archives."""

from pathlib import Path

import pytest

from images import builders, store
from images.builders import Secrets
from images.errors import BuildError
from images.layout import cache_folder
from images.recipes import Recipe

RECIPE = Recipe(name="thing", tag="1", dockerfile="Makefile", inputs=("LICENSE",), disk_bytes=1)


class Writer:
    """A builder that writes what it is told, or fails half-way."""

    salt = "test"

    def __init__(self, content: bytes, *, fails: bool = False) -> None:
        self.builds = 0
        self._content, self._fails = content, fails

    def build(self, recipe: Recipe, archive: Path, *, work: Path, secrets: Secrets) -> None:
        del recipe, work, secrets
        self.builds += 1
        archive.write_bytes(self._content)
        if self._fails:
            raise BuildError("exit code 1 from: something")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "llmservice" / "images"


def use(builder: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "choose", lambda _folder: builder)


def test_a_built_image_is_not_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Writer(b"image")
    use(builder, monkeypatch)

    first = store.build([RECIPE])
    second = store.build([RECIPE])

    assert first == second
    assert first[0].read_bytes() == b"image"
    assert first[0].parent == cache
    assert builder.builds == 1


def test_a_failed_build_leaves_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Writer(b"half", fails=True), monkeypatch)

    with pytest.raises(BuildError):
        store.build([RECIPE])

    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_older_archives_of_the_same_image_go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Writer(b"image"), monkeypatch)
    cache.mkdir(parents=True)
    older = cache / f"thing-{'0' * 16}.tar"
    other = cache / f"thing-else-{'0' * 16}.tar"
    older.touch()
    other.touch()

    (archive,) = store.build([RECIPE])

    assert sorted(cache.glob("*.tar")) == sorted([archive, other])


def test_what_a_killed_build_left_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Writer(b"image"), monkeypatch)
    (cache / "work" / "graph").mkdir(parents=True)
    (cache / "work" / "graph" / "layer").touch()

    store.build([RECIPE])

    assert not (cache / "work").exists()


def test_an_unknown_builder_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="IMAGE_BUILDER is 'podman'; it may be buildah or docker"):
        builders.choose(tmp_path, {"IMAGE_BUILDER": "podman"})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/big", "HOME": "/home/a"}, "/big/llmservice"),
        ({"HOME": "/home/a"}, "/home/a/.cache/llmservice"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.cache/llmservice"),
    ],
)
def test_the_cache_is_where_the_xdg_standard_says(environ: dict[str, str], expected: str) -> None:
    assert cache_folder(environ) == Path(expected)
