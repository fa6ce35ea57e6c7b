"""Container images without an engine: small archives from one static program, and imports into nodes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.errors import CommandError, ImageError
from devcluster.layout import NodeLayout
from devcluster.shell import run

# A compressed layer is stored as it is and once more unpacked; text and libraries pack to about a third.
UNPACKED_FACTOR = 3.0
RESERVE_BYTES = 2 * 1024**3
_NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_GZIP_MAGIC = b"\x1f\x8b"
_LARGEST_DOCUMENT_BYTES = 1 << 20


@dataclass(frozen=True)
class ArchiveInfo:
    """An image archive: the image's full name, its id, and the room it takes.

    The id is the digest of the image's configuration, as in ``crictl images``; empty where the archive holds
    several platforms.
    """

    name: str
    image_id: str
    needed_bytes: int


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────


def write_archive(
    path: Path,
    *,
    name: str,
    program: Path,
    files: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Writes an OCI archive of one layer: ``program`` as the entry point, and ``files`` by absolute path.

    Equal input gives equal bytes. The image's user is 65532, which Pod Security `restricted` admits.
    """
    layer = _layer(program, files or {})
    command = f"/{program.name}"
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "Entrypoint": [command],
            "Env": [f"{key}={value}" for key, value in sorted((environment or {}).items())],
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "history": [{"created_by": f"devcluster: {program.name}"}],
    }
    config_bytes = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_bytes),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    }
    manifest_bytes = _json(manifest)
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest_bytes)
    entry["annotations"] = {"io.containerd.image.name": name}
    index = {"schemaVersion": 2, "manifests": [entry]}
    members = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    for blob in (manifest_bytes, config_bytes, layer):
        members[f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"] = blob
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    partial.write_bytes(_tar({member: (content, 0o644) for member, content in members.items()}))
    partial.replace(path)


def _layer(program: Path, files: Mapping[str, bytes]) -> bytes:
    members = {program.name: (program.read_bytes(), 0o755)}
    members |= {name.lstrip("/"): (content, 0o644) for name, content in files.items()}
    return _tar(members)


def _tar(members: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), mode, 0
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def inspect(path: Path) -> ArchiveInfo:
    """What an OCI or Docker archive holds. Reads headers only: a 6-GB archive takes a moment.

    Raises ImageError that says what is wrong with the file.
    """
    if not path.is_file():
        raise ImageError(f"{path}: no such file")
    try:
        return _inspect(path)
    except (tarfile.TarError, KeyError, ValueError, EOFError) as error:
        raise ImageError(
            f"{path} is no OCI or Docker image archive ({error}); make one with "
            f"`buildah push NAME oci-archive:{path.name}:NAME` or `docker save -o {path.name} NAME`"
        ) from None


def _inspect(path: Path) -> ArchiveInfo:
    total = packed = 0
    documents: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is None:
                continue
            total += member.size
            if member.size <= _LARGEST_DOCUMENT_BYTES:
                documents[member.name.removeprefix("./")] = handle.read()
            elif handle.read(2) == _GZIP_MAGIC:
                packed += member.size
    needed = int(total + (total - packed) + packed * UNPACKED_FACTOR)
    for name, image_id in (_read_oci(documents), _read_docker(documents)):
        if name:
            return ArchiveInfo(name, image_id, needed)
    if not {"index.json", "manifest.json"} & documents.keys():
        raise KeyError("neither index.json nor manifest.json inside")
    raise ImageError(
        f"{path}: the archive does not say its image's name; push with a full name and tag, "
        f"as in `buildah push NAME oci-archive:{path.name}:registry/name:tag`"
    )


def _read_oci(documents: Mapping[str, bytes]) -> tuple[str, str]:
    """Name and id by index.json of the OCI image layout; empty where it does not say."""
    if "index.json" not in documents:
        return "", ""
    entry = json.loads(documents["index.json"])["manifests"][0]
    annotations = entry.get("annotations", {})
    name = next((annotations[key] for key in _NAME_ANNOTATIONS if ":" in annotations.get(key, "")), "")
    manifest = json.loads(documents.get(f"blobs/{entry['digest'].replace(':', '/')}", b"{}"))
    return name, manifest.get("config", {}).get("digest", "")


def _read_docker(documents: Mapping[str, bytes]) -> tuple[str, str]:
    """Name and id by manifest.json of `docker save`; its configuration is ``ID.json`` or ``blobs/sha256/ID``."""
    entry = json.loads(documents.get("manifest.json", b"[{}]"))[0]
    names = entry.get("RepoTags") or [""]
    config = entry.get("Config", "").removesuffix(".json").rpartition("/")[2]
    return names[0], f"sha256:{config}" if config else ""


# ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────


def runtime_answers(node: NodeLayout) -> bool:
    """Whether the node's container runtime takes connections."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(node.containerd_socket))
        except OSError:
            return False
    return True


def check_room(info: ArchiveInfo, *, nodes: int, free_bytes: int, where: Path) -> None:
    """Raises ImageError unless ``nodes`` copies fit and 2 GiB stay free."""
    needed = info.needed_bytes * nodes + RESERVE_BYTES
    if needed > free_bytes:
        gib = 1024**3
        raise ImageError(
            f"{info.name} needs {needed / gib:.1f} GiB under {where} for {nodes} node(s), 2 GiB of reserve included; "
            f"{free_bytes / gib:.1f} GiB are free: load it into one node with --node, or free disk"
        )


def load(archive: Path, nodes: Sequence[NodeLayout], *, ctr: Path, say: Callable[[str], None]) -> str:
    """Imports ``archive`` into the nodes that do not have that very image yet; returns its name."""
    info = inspect(archive)
    missing = [node for node in nodes if not is_loaded(info, loaded_images(node, ctr))]
    if missing:
        where = missing[0].folder
        check_room(info, nodes=len(missing), free_bytes=shutil.disk_usage(where).free, where=where)
    for node in missing:
        say(f"loading {info.name} into {node.name} …")
        output = run([*_ctr(node, ctr), "image", "import", "--index-name", info.name, str(archive)])
        if info.name not in loaded_images(node, ctr):
            raise ImageError(
                f"{archive}: imported into {node.name}, but not under the name {info.name}: {output}"
            )
    return info.name


def is_loaded(info: ArchiveInfo, images: Mapping[str, str]) -> bool:
    """Whether a node's images (name → digest) have this image, and not another of its name.

    The runtime names each image also by its id: both names then lead to the same digest.
    """
    return info.name in images and images.get(info.image_id) == images[info.name]


def loaded_images(node: NodeLayout, ctr: Path) -> dict[str, str]:
    """Names of a node's images, each with its digest."""
    try:
        lines = run([*_ctr(node, ctr), "image", "ls"]).splitlines()
    except CommandError as error:
        raise ImageError(f"{node.name} cannot be asked for its images: {error}") from None
    rows = [line.split() for line in lines[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def _ctr(node: NodeLayout, ctr: Path) -> list[str]:
    return [str(ctr), "--address", str(node.containerd_socket), "--namespace", "k8s.io"]
