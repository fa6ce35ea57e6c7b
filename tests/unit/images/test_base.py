"""The stand-in base is a valid OCI image layout."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from images.base import write_layout


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    layer = folder / "layer.tar"
    layer.write_bytes(b"layer")
    write_layout(folder, layer)
    return folder


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    return (layout / "blobs" / "sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()


def test_every_blob_is_named_by_its_digest(layout: Path) -> None:
    blobs = list((layout / "blobs" / "sha256").iterdir())

    assert len(blobs) == 3
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in blobs)


def test_index_leads_to_manifest_config_and_layer(layout: Path) -> None:
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(layout, entry))
    config = json.loads(blob(layout, manifest["config"]))
    (layer,) = manifest["layers"]

    assert blob(layout, layer) == b"layer"
    assert layer["size"] == len(b"layer")
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]


def test_only_the_layout_is_left(layout: Path) -> None:
    assert sorted(path.name for path in layout.iterdir()) == ["blobs", "index.json", "oci-layout"]
