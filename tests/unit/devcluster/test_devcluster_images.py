"""Image archives: written so that a runtime takes them, and read so that a bad one is named."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from devcluster.errors import ImageError
from devcluster.images import ArchiveInfo, check_room, inspect, is_loaded, write_archive

GIB = 1024**3
NAME = "example.org/team/tool:1"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELF tool")
    return path


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {item.name: handle.read() for item in tar if (handle := tar.extractfile(item)) is not None}


def make_archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def index(annotations: dict[str, str]) -> bytes:
    entry = {"digest": "sha256:" + "a" * 64, "annotations": annotations}
    return json.dumps({"manifests": [entry]}).encode()


def test_every_blob_is_under_its_own_digest(tmp_path: Path, program: Path) -> None:
    write_archive(tmp_path / "a.tar", name=NAME, program=program)

    blobs = {
        name: content for name, content in members(tmp_path / "a.tar").items() if name.startswith("blobs/")
    }

    assert len(blobs) == 3
    assert all(
        name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}" for name, content in blobs.items()
    )


def test_program_is_the_entry_point_and_not_root(tmp_path: Path, program: Path) -> None:
    write_archive(tmp_path / "a.tar", name=NAME, program=program)
    found = members(tmp_path / "a.tar")

    def blob(descriptor: dict[str, Any]) -> bytes:
        return found["blobs/" + descriptor["digest"].replace(":", "/")]

    manifest = json.loads(blob(json.loads(found["index.json"])["manifests"][0]))
    config = json.loads(blob(manifest["config"]))["config"]
    with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as layer:
        modes = {item.name: item.mode for item in layer}

    assert (config["Entrypoint"], config["User"]) == (["/tool"], "65532:65532")
    assert modes == {"tool": 0o755}


def test_equal_input_gives_equal_bytes(tmp_path: Path, program: Path) -> None:
    for name in ("a.tar", "b.tar"):
        write_archive(
            tmp_path / name, name=NAME, program=program, files={"/etc/x": b"1"}, environment={"A": "1"}
        )

    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_written_archive_is_read_back(tmp_path: Path, program: Path) -> None:
    write_archive(tmp_path / "a.tar", name=NAME, program=program)

    assert inspect(tmp_path / "a.tar").name == NAME


def test_name_of_buildah_archives_is_found(tmp_path: Path) -> None:
    """Buildah writes the full name as the reference."""
    archive = make_archive(
        tmp_path / "a.tar", {"index.json": index({"org.opencontainers.image.ref.name": NAME})}
    )

    assert inspect(archive).name == NAME


def test_id_is_the_digest_of_the_configuration(tmp_path: Path, program: Path) -> None:
    write_archive(tmp_path / "a.tar", name=NAME, program=program)
    configurations = [
        f"sha256:{hashlib.sha256(content).hexdigest()}"
        for content in members(tmp_path / "a.tar").values()
        if b'"rootfs"' in content
    ]

    assert [inspect(tmp_path / "a.tar").image_id] == configurations


@pytest.mark.parametrize("config", ["c0ffee.json", "blobs/sha256/c0ffee"])
def test_id_of_docker_archives_is_in_the_name_of_the_configuration(tmp_path: Path, config: str) -> None:
    manifest = json.dumps([{"RepoTags": [NAME], "Config": config}]).encode()

    assert inspect(make_archive(tmp_path / "a.tar", {"manifest.json": manifest})).image_id == "sha256:c0ffee"


@pytest.mark.parametrize(
    ("images", "loaded"),
    [
        ({NAME: "sha256:i", "sha256:c": "sha256:i"}, True),
        ({NAME: "sha256:other", "sha256:c": "sha256:i"}, False),
        ({NAME: "sha256:other"}, False),
        ({"sha256:c": "sha256:i"}, False),
        ({}, False),
    ],
)
def test_image_is_loaded_if_its_name_leads_to_it(images: dict[str, str], loaded: bool) -> None:
    """A rebuilt image of the same name is imported again."""
    assert is_loaded(ArchiveInfo(NAME, "sha256:c", 1), images) is loaded


def test_name_of_docker_archives_is_found(tmp_path: Path) -> None:
    """`docker save` writes manifest.json only, or both with a bare tag as the reference."""
    manifest = json.dumps([{"RepoTags": [NAME]}]).encode()
    reference = index({"org.opencontainers.image.ref.name": "1"})
    archive = make_archive(tmp_path / "a.tar", {"manifest.json": manifest, "index.json": reference})

    assert inspect(archive).name == NAME


def test_archive_without_a_name_says_how_to_make_one(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.tar", {"index.json": index({})})

    with pytest.raises(ImageError, match="does not say its image's name; push with a full name and tag"):
        inspect(archive)


def test_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"none.tar: no such file"):
        inspect(tmp_path / "none.tar")


@pytest.mark.parametrize("content", [b"", b"no archive at all" * 100])
def test_file_that_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.tar"
    path.write_bytes(content)

    with pytest.raises(ImageError, match=r"bad.tar is no OCI or Docker image archive"):
        inspect(path)


def test_compressed_layer_needs_room_for_what_it_unpacks_to(tmp_path: Path) -> None:
    """Stored once as it is, and once unpacked at three times its size; a plain layer twice its size."""
    packed = gzip.compress(bytes(range(256)) * 8192, compresslevel=0)
    files = {"index.json": index({"io.containerd.image.name": NAME})}
    small = inspect(
        make_archive(tmp_path / "a.tar", files | {"blobs/plain": b"x" * len(packed)})
    ).needed_bytes
    large = inspect(make_archive(tmp_path / "b.tar", files | {"blobs/packed": packed})).needed_bytes

    assert large - small == pytest.approx(2 * len(packed), rel=0.01)


def test_image_that_does_not_fit_is_refused_before_the_import() -> None:
    with pytest.raises(
        ImageError, match=r"needs 26\.0 GiB under /x for 2 node\(s\).*25\.0 GiB are free.*--node"
    ):
        check_room(ArchiveInfo(NAME, "", 12 * GIB), nodes=2, free_bytes=25 * GIB, where=Path("/x"))


def test_image_that_fits_is_let_through() -> None:
    check_room(ArchiveInfo(NAME, "", 12 * GIB), nodes=1, free_bytes=15 * GIB, where=Path("/x"))
