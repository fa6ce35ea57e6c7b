"""The two ways from a Dockerfile to an archive: buildah, which needs no daemon, and Docker."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from images import network
from images.base import base_image, base_key
from images.errors import BuildError
from images.layout import ROOT
from images.recipes import Recipe
from images.shell import output, run, say, timed


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """What a build may read and must not keep: shell assignments, and certificates."""

    build_env: Path
    ca_bundle: Path | None

    def arguments(self) -> list[str]:
        """`--secret` arguments, the same for buildah and Docker."""
        found = ["--secret", f"id=build-env,src={self.build_env}"]
        if self.ca_bundle is not None:
            found += ["--secret", f"id=ca-bundle,src={self.ca_bundle}"]
        return found


class Builder(Protocol):
    """Makes one archive."""

    salt: str

    def build(self, recipe: Recipe, archive: Path, *, work: Path, secrets: Secrets) -> None:
        """Build the image and write it, as a Docker archive with uncompressed layers, to `archive`."""
        ...


class Docker:
    """`docker build` and `docker save`, on the official base images."""

    salt = "docker"

    def build(self, recipe: Recipe, archive: Path, *, work: Path, secrets: Secrets) -> None:
        """See Builder."""
        del work
        dockerfile = str(ROOT / recipe.dockerfile)
        environ = {"DOCKER_BUILDKIT": "1"}
        with timed(f"docker build {recipe.reference}"):
            command = [
                "docker",
                "build",
                "--file",
                dockerfile,
                "--tag",
                recipe.reference,
                *secrets.arguments(),
            ]
            run([*command, str(ROOT)], environ=environ)
        with timed("docker save"):
            run(["docker", "save", "--output", str(archive), recipe.reference])


class Buildah:
    """`buildah` with a storage of its own that is removed afterwards, on a base made from a Debian mirror.

    Layers stay uncompressed: they never cross a network, and gzip would take longer than the whole build.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.salt = f"buildah {base_key()}"

    def build(self, recipe: Recipe, archive: Path, *, work: Path, secrets: Secrets) -> None:
        """See Builder."""
        base = base_image(self._folder)
        environ = storage(work)
        # Committed straight into the archive: by way of buildah's storage each layer is unpacked and packed again.
        target = f"docker-archive:{archive}:{recipe.reference}"
        command = [
            "buildah", "bud", "--isolation", "chroot", "--network", "host", "--layers=false", "--quiet",
            "--build-arg", f"BASE={base}", *secrets.arguments(),
            "--file", str(ROOT / recipe.dockerfile), "--tag", target, str(ROOT),
        ]  # fmt: skip
        with timed(f"buildah build {recipe.reference}"):
            run(command, environ=environ, cwd=self._folder)


def storage(work: Path) -> Mapping[str, str]:
    """The environment of a buildah whose storage and scratch files are all under `work`."""
    (work / "tmp").mkdir(parents=True, exist_ok=True)
    configuration = work / "storage.conf"
    environ = {
        "CONTAINERS_STORAGE_CONF": str(configuration),
        "TMPDIR": str(work / "tmp"),
        "BUILDAH_ISOLATION": "chroot",
    }
    for driver in ("overlay", "vfs"):
        configuration.write_text(
            f'[storage]\ndriver = "{driver}"\nrunroot = "{work}/run"\ngraphroot = "{work}/graph"\n'
        )
        try:
            output(["buildah", "info"], environ=environ)
        except BuildError as error:
            say(f"buildah's storage driver {driver} does not work here: {error}")
        else:
            return environ
    raise BuildError(
        f"buildah works with neither overlay nor vfs under {work}: set XDG_CACHE_HOME to a local disk"
    )


def remove_work(work: Path) -> None:
    """Remove a build's storage, also one that a killed build has left with its mounts."""
    if not work.exists():
        return
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    targets = [line.split()[1] for line in mounts]
    for target in reversed([target for target in targets if target.startswith(f"{work}/")]):
        run(["umount", "--lazy", target])
    shutil.rmtree(work)


def choose(folder: Path, environ: Mapping[str, str] = os.environ) -> Builder:
    """The builder that IMAGE_BUILDER names: `buildah` (the default) or `docker`."""
    name = environ.get("IMAGE_BUILDER", "") or "buildah"
    if name == "docker":
        return Docker()
    if name == "buildah":
        return Buildah(folder)
    raise BuildError(f"IMAGE_BUILDER is {name!r}; it may be buildah or docker")


def write_secrets(work: Path, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Write down, for the builds alone, how this machine reaches package indexes."""
    pip = network.pip_settings(network.pip_config_paths(Path(environ.get("HOME", "/"))))
    certificates = network.ca_bundle(environ, pip)
    path = work / "build-env"
    path.touch(mode=0o600)
    path.write_text(network.build_environment(environ, pip, ca_bundle=certificates))
    return Secrets(build_env=path, ca_bundle=certificates)
