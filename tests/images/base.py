"""A local stand-in for the Debian base image, for machines that reach a Debian mirror but no image registry."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from images.shell import run, timed

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
_UNUSED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAG = "base"


def base_key() -> str:
    """Changes when another base would be made."""
    return hashlib.sha256("\0".join((SUITE, *PACKAGES, *_UNUSED)).encode()).hexdigest()[:8]


def base_image(folder: Path) -> str:
    """The stand-in as `oci:NAME:TAG`, relative to `folder`; made there unless it is there.

    Relative, since buildah makes an image's name of the path, and a name may hold no folder such as `.cache`.
    """
    layout = folder / f"base-{base_key()}"
    if not (layout / "index.json").is_file():
        partial = layout.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with timed(f"Debian {SUITE} with Python as the base of the images (once)"):
            layer = partial / "layer.tar"
            excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED]
            packages = f"--include={','.join(PACKAGES)}"
            run(["mmdebstrap", "--quiet", "--variant=minbase", packages, *excluded, SUITE, str(layer)])
            write_layout(partial, layer)
        partial.rename(layout)
    return f"oci:{layout.name}:{_TAG}"


def write_layout(folder: Path, layer: Path) -> None:
    """Make `folder` an OCI image layout of one uncompressed layer; the layer's file is moved into it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with layer.open("rb") as file:
        layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
    layer_size = layer.stat().st_size
    layer.rename(blobs / layer_digest)

    def put(document: dict[str, Any], media_type: str) -> dict[str, Any]:
        content = json.dumps(document, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = put(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": [_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        },
        "application/vnd.oci.image.config.v1+json",
    )
    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": f"sha256:{layer_digest}",
            "size": layer_size,
        }
    ]
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": layers}
    entry = put(manifest, manifest_type) | {"annotations": {"org.opencontainers.image.ref.name": _TAG}}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
