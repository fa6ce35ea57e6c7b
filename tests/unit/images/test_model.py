"""A model in the cache is used again only if it is the right one, every byte of it."""

from pathlib import Path

import pytest

from images.errors import BuildError
from images.model import is_right, make, write_manifest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\1\2\3")
    write_manifest(folder, "source 1")
    return folder


def test_a_whole_model_is_right(model: Path) -> None:
    assert is_right(model, "source 1")


def test_a_model_of_another_source_is_not(model: Path) -> None:
    assert not is_right(model, "source 2")


def test_one_changed_byte_is_seen(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"\1\2\4")

    assert not is_right(model, "source 1")


def test_a_missing_file_is_seen(model: Path) -> None:
    (model / "config.json").unlink()

    assert not is_right(model, "source 1")


@pytest.mark.parametrize(
    "manifest", ["", "[]", "{}", '{"source": "source 1", "sha256": {}}', '{"source": "source 1"}']
)
def test_a_broken_manifest_is_not_trusted(model: Path, manifest: str) -> None:
    (model / "manifest.json").write_text(manifest)

    assert not is_right(model, "source 1")


def test_a_folder_of_somebody_elses_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")

    with pytest.raises(BuildError, match="holds something else than a model of ours"):
        make(tmp_path)

    assert (tmp_path / "letters.txt").read_text() == "dear"
