"""Content hashes: an archive is rebuilt exactly when what is in it changes."""

import re
from pathlib import Path

import pytest

from images.layout import ROOT
from images.recipes import Recipe, content_hash, recipes


def recipe(name: str = "thing", tag: str = "1") -> Recipe:
    return Recipe(name=name, tag=tag, dockerfile="Dockerfile", inputs=("src", "lock"), disk_bytes=1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "src" / "inner" / "a.py").write_text("a = 1\n")
    (tmp_path / "lock").write_text("b==1\n")
    return tmp_path


def test_the_same_tree_has_the_same_hash(tree: Path) -> None:
    assert content_hash(tree, recipe(), salt="s") == content_hash(tree, recipe(), salt="s")


@pytest.mark.parametrize("changed", ["Dockerfile", "src/inner/a.py", "lock", "src/new.py"])
def test_a_changed_input_changes_the_hash(tree: Path, changed: str) -> None:
    before = content_hash(tree, recipe(), salt="s")

    (tree / changed).write_text("something else\n")

    assert content_hash(tree, recipe(), salt="s") != before


def test_a_moved_file_changes_the_hash(tree: Path) -> None:
    before = content_hash(tree, recipe(), salt="s")

    (tree / "src" / "inner" / "a.py").rename(tree / "src" / "a.py")

    assert content_hash(tree, recipe(), salt="s") != before


@pytest.mark.parametrize(
    "left", ["__pycache__/a.cpython-311.pyc", ".mypy_cache/a.json", "thing.egg-info/PKG-INFO"]
)
def test_what_tools_leave_behind_does_not_change_the_hash(tree: Path, left: str) -> None:
    before = content_hash(tree, recipe(), salt="s")

    (tree / "src" / left).parent.mkdir()
    (tree / "src" / left).write_bytes(b"\0")

    assert content_hash(tree, recipe(), salt="s") == before


@pytest.mark.parametrize(
    ("name", "tag", "salt"), [("other", "1", "s"), ("thing", "2", "s"), ("thing", "1", "t")]
)
def test_name_tag_and_base_are_part_of_the_hash(tree: Path, name: str, tag: str, salt: str) -> None:
    before = content_hash(tree, recipe(), salt="s")

    assert content_hash(tree, recipe(name, tag), salt=salt) != before


def test_an_input_that_is_not_there_is_named(tree: Path) -> None:
    (tree / "lock").unlink()

    with pytest.raises(FileNotFoundError, match=r"^lock: an image is made from it"):
        content_hash(tree, recipe(), salt="s")


@pytest.mark.parametrize("name", ["operator", "fake-engine", "vllm-cpu"])
def test_every_image_of_the_tree_has_all_its_inputs(name: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", content_hash(ROOT, recipes(ROOT)[name], salt=""))


@pytest.mark.parametrize("name", ["operator", "fake-engine", "vllm-cpu"])
def test_all_that_a_dockerfile_takes_from_the_tree_is_an_input(name: str) -> None:
    found = recipes(ROOT)[name]
    dockerfile = (ROOT / found.dockerfile).read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+)", dockerfile, flags=re.MULTILINE)
    locks = re.findall(r"/build/(requirements/\S+\.lock)", dockerfile)
    mounted = [
        folder
        for folder in re.findall(r"type=bind,source=([^,]+),", dockerfile)
        if folder not in {"requirements", "operator"}
    ]

    assert {*copied, *locks, *mounted} <= set(found.inputs)
